"""Files of rows for the command line: .csv with a header, .npz, .npy."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

KINDS = (".csv", ".npz", ".npy")


class TableError(Exception):
    """A file that cannot be read as a table; the message is for the user."""


class Table(NamedTuple):
    """Rows of numbers, and the class of each if the file has it."""

    X: np.ndarray
    y: np.ndarray | None
    names: list[str] | None  # of the columns of X; None: the file has no names


def read_table(path: Path, target: str, *, target_required: bool = True) -> Table:
    """Return the table in `path`, its column (or array) `target` set apart as y."""
    if path.suffix not in KINDS:
        raise TableError(f"{path}: unknown kind of file; give one of {', '.join(KINDS)}")
    if not path.exists():
        raise TableError(f"{path}: no such file")
    if path.is_dir():
        raise TableError(f"{path}: a folder; a file was expected")
    if path.suffix == ".csv":
        return _read_csv(path, target, target_required)
    loaded = _load(path)
    if isinstance(loaded, dict):
        return _from_arrays(path, loaded, target, target_required)
    return _from_matrix(path, loaded, target, None, target_required)


def _load(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """Return the array of a .npy, or the named arrays of a .npz."""
    try:
        # Read here, so that a damaged member of a .npz is found here.
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded as arrays:
            return dict(arrays)
    except MemoryError as error:
        raise TableError(f"{path}: too large for the memory, or damaged") from error
    except OSError as error:
        if error.errno is not None:  # the system's: it may not be read, for example
            raise
        raise TableError(_damaged(path, error)) from error
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds for damaged files
        raise TableError(_damaged(path, error)) from error


def _damaged(path: Path, error: Exception) -> str:
    """Return the message for a file that NumPy cannot read."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return (
        f"{path}: not a plain NumPy file, or damaged ({reason}); give a file written by "
        f"{'np.savez' if path.suffix == '.npz' else 'np.save'}, of numbers and strings"
    )


def _read_csv(path: Path, target: str, required: bool) -> Table:
    """Return a table from a file with a header and commas."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path}: not a text file in UTF-8, from byte {error.start} on; save it as UTF-8"
        ) from error
    except csv.Error as error:
        raise TableError(f"{path}: not a table of comma-separated values ({error})") from error
    if len(lines) < 2:
        raise TableError(f"{path}: a header and at least one row were expected")
    header, rows = [name.strip() for name in lines[0]], lines[1:]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise TableError(
                f"{path}, row {number}: {len(row)} fields, the header has {len(header)}"
            )
    return _from_matrix(path, np.array(rows), target, header, required)


def _column(target: str, width: int, header: list[str] | None) -> int | None:
    """Return the number of the target column, or None if there is none."""
    if header is not None and target in header:
        return header.index(target)
    try:
        number = int(target)
    except ValueError:
        return None
    return number % width if -width <= number < width else None


def _from_matrix(
    path: Path, matrix: np.ndarray, target: str, header: list[str] | None, required: bool
) -> Table:
    """Return a table from a matrix, one of whose columns is the target."""
    if matrix.ndim != 2:
        raise TableError(f"{path}: shape {matrix.shape}; rows and columns were expected")
    column = _column(target, matrix.shape[1], header)
    if column is None:
        if required:
            known = f"the columns {', '.join(header)}" if header else f"{matrix.shape[1]} columns"
            raise TableError(f"{path}: no column {target!r}; the file has {known}")
        return Table(_numbers(path, matrix, header), None, header)
    names = None if header is None else header[:column] + header[column + 1 :]
    X = _numbers(path, np.delete(matrix, column, axis=1), names)
    return Table(X, matrix[:, column], names)


def _numbers(path: Path, cells: np.ndarray, names: list[str] | None) -> np.ndarray:
    """Return cells as floats; name the first that is no number."""
    if cells.dtype.kind != "U":
        return cells
    try:
        return cells.astype(float)
    except ValueError:
        for row, column in np.ndindex(cells.shape):
            try:
                float(cells[row, column])
            except ValueError:
                name, cell = names[column] if names else column, str(cells[row, column])
                raise TableError(
                    f"{path}, row {row + 2}, column {name}: {cell!r} is no number"
                ) from None
        raise


def _from_arrays(path: Path, arrays: dict[str, np.ndarray], target: str, required: bool) -> Table:
    """Return a table from named arrays: `target`, and X or the only other array of rows."""
    y = arrays.pop(target, None)
    if y is None and required:
        raise TableError(f"{path}: no array {target!r}; the file has {', '.join(arrays)}")
    matrices = {name: array for name, array in arrays.items() if array.ndim == 2}
    if "X" in matrices:
        return Table(matrices["X"], y, None)
    if len(matrices) != 1:
        raise TableError(f"{path}: name the array of rows X; the file has {', '.join(arrays)}")
    return Table(next(iter(matrices.values())), y, None)


def write_rows(path: Path, Z: np.ndarray, names: np.ndarray) -> None:
    """Write projected rows as .csv with a header, .npz (array Z) or .npy."""
    if path.suffix == ".csv":
        header = ",".join(names)
        np.savetxt(path, Z, delimiter=",", header=header, comments="", fmt="%.10g")
    elif path.suffix == ".npz":
        np.savez(path, Z=Z)
    elif path.suffix == ".npy":
        np.save(path, Z)
    else:
        raise TableError(f"{path}: unknown kind of file; give one of {', '.join(KINDS)}")
