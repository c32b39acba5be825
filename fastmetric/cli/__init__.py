"""What the command line does: fits, predictions, densities and clusters of tables in files.

* `commands`: which commands are there, and what does an error look like?
* `options`: which options do commands share?
* `methods`: which estimator has which name, and which parameters were given?
* `preparation`: how are missing values, scales and categories dealt with, as part of the model?
* `work`: what do `fit`, `transform`, `predict`, `density` and `cluster` do?
* `model_info`: what is a saved model, and what can it do?
* `comparison`: how good is a method on rows held out, beside raw features, PCA and scikit-learn?
* `pictures`: what do densities, clusters and projections of a table look like?
* `demo`: what does NCA show on handwritten digits, next to PCA and scikit-learn's NCA?
* `files`: how are tables read and written, and models?

Data flow: `commands.main` parses; `work` has `files` read the table and choose its columns;
`methods` makes an estimator and `preparation` a pipeline around it, which is fitted, saved
with notes on the columns, and applied to new tables that `files` matches with these notes.

Decisions
---------
**Optional.** Nothing in the package imports this folder. matplotlib is imported only where
a picture is drawn, pyarrow where a file needs it.

**The preparation is part of the model.** Missing values, scaling and one-hot coding are steps of a
scikit-learn pipeline, saved with the estimator: new rows cannot be prepared in another way, and
`fastmetric.load` gives the whole pipeline, which takes a DataFrame. Without preparation the
model is the estimator alone.

**No code from files.** A model is a `.skops` file of `fastmetric.persistence`, with notes on the
columns of its table. A pickle is loaded with `--trust` only, since loading it runs code before
anything can be checked.

**Messages, not tracebacks.** An error in a file or an option is one line on standard error, with
file, row, column and what to do. Files to be written are checked before the work, and never
replaced without `--force`. Warnings and choices made for the user go to standard error, too.
"""
