"""The files of the command line: tables in, tables and models out.

* `text_tables`: where do the fields of a text file begin and end, and which row is wrong?
* `tables`: how is a table read, of whatever kind its file is?
* `columns`: which columns are features, the target, ids or none of them?
* `outputs`: may this file be written, and how are results written beside ids and target?
* `models`: how is a model written and read, and which files may run code?

Data flow: `tables.read_raw` returns a frame as it is in the file; `columns.columns_to_fit` for a
fit, or `columns.columns_to_apply` for new data, returns rows of numbers and categories, with
labels and ids.

Decisions
---------
**pandas reads.** The parser of text files is pandas's. Only what it guesses silently is decided
here, from the first lines: delimiter, decimal comma, row names, and rows that are too short.
pandas is a dependency, so that a CSV works after any installation; Parquet and Arrow need
pyarrow, which is large, and is the extra `io`.

**Columns have names.** New data are matched by name; their order, a target or further columns do
not matter. Arrays of NumPy have numbers for names.

**Nothing is a feature by accident.** A column without a name, or saved by pandas as an index, is
left out; one that numbers the rows is reported. A text in a column of numbers is an error, a
column of texts alone is one of categories; both are said.
"""
