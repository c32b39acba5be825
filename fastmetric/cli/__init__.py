"""What the command line does with files: `fastmetric demo`, `fit` and `transform`.

* `commands`: which commands and options exist, and what does each run?
* `models`: how is a model written and read, and which files may run code?
* `tables`: how are rows read from .csv, .npz and .npy, and written?
* `demo`: what does NCA show on handwritten digits, next to PCA?

Data flow: `commands.main` parses; `tables.read_table` reads rows and labels; `NCA` fits, and
`models.write_model` writes it; `transform` reads both and writes projected rows.

Decisions
---------
**Optional.** Nothing in the package imports this folder. matplotlib is imported only when
the demo draws.

**No code from files.** A model is a `.skops` file of `fastmetric.persistence`, with notes on the
columns of its table. A pickle is loaded with `--trust` only, since loading it runs code before
anything can be checked.

**Messages, not tracebacks.** An error in a file or an option is one line on standard error.
"""
