"""Files that the command line writes: checked before the work, never overwritten unasked."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastmetric.cli.files.columns import Table
from fastmetric.cli.files.tables import ARROW, PARQUET, TEXT, need_pyarrow, suffixes
from fastmetric.cli.files.text_tables import TableError

MODELS = (".skops", ".joblib")
PICTURES = (".png", ".pdf", ".svg")
TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".npz", ".npy")


def check(option: str, path: Path | None, kinds: Sequence[str], force: bool) -> None:
    """Raise if a file cannot, or must not, be written: before the work, not after it."""
    if path is None or (str(path) == "-" and kinds is TABLES):
        return
    suffix, compressed = suffixes(path)
    known = (*kinds, *TEXT, *PARQUET, *ARROW) if kinds is TABLES else kinds
    if suffix not in known or (compressed and suffix not in TEXT):
        advice = " (.joblib: for your own use, loading it runs code)" if kinds is MODELS else ""
        raise TableError(f"{option} {path} should end in {' or '.join(kinds)}{advice}")
    if suffix in PARQUET + ARROW:
        need_pyarrow(path)
    folder = path.parent
    if not folder.is_dir():
        raise TableError(f"{option} {path}: there is no folder {folder}; make it first")
    if path.is_dir():
        raise TableError(f"{option} {path}: a folder; a file was expected")
    if path.exists() and not force:
        raise TableError(f"{option} {path}: the file exists; give --force to replace it")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise TableError(f"{option} {path}: you may not write there")


def refuse_inputs(options: Any) -> None:
    """Raise if a file to be written is one of those to be read, which --force would replace."""
    for output in ("out", "picture"):
        path = getattr(options, output, None)
        for name in ("data", "model", "queries"):
            given = getattr(options, name, None)
            if path and given and path.exists() and given.exists() and path.samefile(given):
                raise TableError(f"--{output} {path}: this file is read, too; give another name")


def write_table(path: Path, table: Table, results: dict[str, np.ndarray]) -> None:
    """Write the results of rows beside their ids and their target, if the table has these."""
    import pandas as pd

    beside = {str(name): table.ids[name].to_numpy() for name in table.ids.columns}
    if table.y is not None and table.target not in beside:
        beside[table.target] = table.y
    suffix, _ = suffixes(path)
    if suffix == ".npy":
        np.save(path, np.column_stack(list(results.values())))
        return
    if suffix == ".npz":
        columns = list(results.values())
        Z = np.column_stack(columns) if len(columns) > 1 else columns[0]
        np.savez(path, Z=Z, **{name: _plain(values) for name, values in beside.items()})
        return
    twice = beside.keys() & results.keys()
    renamed = {f"{name}_" if name in twice else name: column for name, column in results.items()}
    frame = pd.DataFrame(beside | renamed)
    if str(path) == "-":
        frame.to_csv(sys.stdout, index=False)
    elif suffix in PARQUET:
        frame.to_parquet(path, index=False)
    elif suffix in ARROW:
        frame.to_feather(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")


def _plain(values: np.ndarray) -> Any:
    """Return values as an array that needs no pickle."""
    if values.dtype.kind in "biuf":
        return values
    return np.array(["" if value is None else str(value) for value in values])
