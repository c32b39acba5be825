"""What the command line does with files: `fastmetric demo`, `fit` and `transform`.

* `commands`: which commands and options exist, and what does each run?
* `tables`: how are rows read from .csv, .npz and .npy, and written?
* `demo`: what does NCA show on handwritten digits, next to PCA?

Data flow: `commands.main` parses; `tables.read_table` reads rows and labels; `NCA` fits, and
the model is written by joblib; `transform` reads both and writes projected rows.

Decisions
---------
**Optional.** Nothing in the package imports this folder. matplotlib is imported only when
the demo draws.

**Messages, not tracebacks.** An error in a file or an option is one line on standard error.
"""
