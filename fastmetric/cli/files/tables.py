"""Files of tables: text, Parquet, Arrow and NumPy's, also from standard input."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from fastmetric.cli.files.text_tables import Reading, TableError, read_text

if TYPE_CHECKING:
    import pandas as pd

TEXT = (".csv", ".tsv", ".txt", ".dat", ".data")
PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather")
_COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MAGIC = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\x93NUMPY": ".npy", b"PK\x03\x04": ".npz"}
_GZIP = b"\x1f\x8b"
READABLE = ".csv, .tsv or other text (also .gz), .parquet, .arrow, .npz, .npy, or - (stdin)"


class Raw(NamedTuple):
    """A table as it is in a file."""

    name: str  # of the file, for messages
    frame: pd.DataFrame
    named: bool  # whether the columns have names; if not, they are numbered from 0
    features: list[Any]  # the columns that may be features; others hold the target or ids
    notes: list[str]
    first_row: int  # number of the first row, for messages: 2 below a header


def read_raw(path: Path, reading: Reading = Reading()) -> Raw:  # noqa: B008
    """Return the table in a file; its columns are chosen elsewhere."""
    if str(path) == "-":
        data = io.BytesIO(sys.stdin.buffer.read())
        return _by_kind("standard input", data, _kind_of_bytes(data), reading)
    if path.is_dir():
        raise TableError(f"{path}: a folder; a file was expected")
    suffix, compressed = suffixes(path)
    if suffix not in (*TEXT, *PARQUET, *ARROW, ".npy", ".npz"):
        raise TableError(f"{path}: unknown kind of file; give {READABLE}")
    if not path.exists():
        raise TableError(f"{path}: no such file")
    with _COMPRESSED[compressed](path) if compressed else path.open("rb") as file:
        try:
            return _by_kind(str(path), file, suffix, reading)
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise TableError(f"{path}: damaged ({error}); take it again from its source") from error


def suffixes(path: Path) -> tuple[str, str]:
    """Return the suffix of a file, and that of its compression or nothing."""
    names = [suffix.lower() for suffix in path.suffixes]
    if names and names[-1] in _COMPRESSED:
        return (names[-2] if len(names) > 1 else ""), names[-1]
    return (names[-1] if names else ""), ""


def need_pyarrow(path: object) -> None:
    """Raise unless the library that reads and writes Parquet and Arrow is there."""
    try:
        importlib.import_module("pyarrow")
    except ImportError as error:
        raise TableError(
            f"{path}: Parquet and Arrow files need pyarrow, which is not installed; "
            'pip install "fastmetric[io]", or pip install pyarrow'
        ) from error


def _kind_of_bytes(data: io.BytesIO) -> str:
    """Return the suffix of the kind of a table by its first bytes; unpack it if compressed."""
    start = data.getvalue()[:8]
    if start.startswith(_GZIP):
        unpacked = gzip.decompress(data.getvalue())
        data.seek(0)
        data.write(unpacked)
        data.truncate()
        data.seek(0)
        return _kind_of_bytes(data)
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), ".csv")


def _by_kind(name: str, file: BinaryIO, suffix: str, reading: Reading) -> Raw:
    """Return the table in an open file of a kind."""
    if suffix in PARQUET + ARROW:
        return _read_arrow(name, file, suffix)
    if suffix in (".npy", ".npz"):
        return _read_numpy(name, file, suffix)
    if suffix == ".tsv" and reading.delimiter is None:
        reading = reading._replace(delimiter="\t")
    frame, notes = read_text(name, file, reading)
    return Raw(name, frame, reading.header, list(frame.columns), notes, 1 + reading.header)


def _read_arrow(name: str, file: BinaryIO, suffix: str) -> Raw:
    """Return the table in a Parquet or Arrow file."""
    import pandas as pd

    need_pyarrow(name)
    try:
        frame = pd.read_parquet(file) if suffix in PARQUET else _read_ipc(file)
    except Exception as error:  # pyarrow raises a dozen kinds for damaged files
        kind = "Parquet" if suffix in PARQUET else "Arrow"
        raise TableError(f"{name}: no {kind} file, or damaged ({_one_line(error)})") from error
    if frame.index.names != [None]:
        frame = frame.reset_index()  # pandas's index is a column of the file
    frame.columns = [str(column) for column in frame.columns]
    if not len(frame):
        raise TableError(f"{name}: the table has no rows")
    return Raw(name, frame, True, list(frame.columns), [], 1)


def _read_ipc(file: BinaryIO) -> pd.DataFrame:
    """Return the table in an Arrow file, or an Arrow stream."""
    import pyarrow as pa

    try:
        return pa.ipc.open_file(file).read_all().to_pandas()
    except pa.ArrowInvalid:
        file.seek(0)
        return pa.ipc.open_stream(file).read_all().to_pandas()


# NumPy's files


def _read_numpy(name: str, file: BinaryIO, suffix: str) -> Raw:
    """Return the table in a .npy, or the arrays of a .npz."""
    loaded = _load(name, file, suffix)
    arrays = loaded if isinstance(loaded, dict) else {"X": loaded}
    if not isinstance(loaded, dict) and loaded.ndim != 2:
        raise TableError(f"{name}: shape {loaded.shape}; rows and columns were expected")
    return _from_arrays(name, arrays)


def _load(name: str, file: BinaryIO, suffix: str) -> np.ndarray | dict[str, np.ndarray]:
    """Return the array of a .npy, or the named arrays of a .npz."""
    try:
        # Read here, so that a damaged member of a .npz is found here.
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded as arrays:
            return dict(arrays)
    except MemoryError as error:
        raise TableError(f"{name}: too large for the memory, or damaged") from error
    except OSError as error:
        if error.errno is not None:  # the system's: it may not be read, for example
            raise
        raise TableError(_damaged(name, suffix, error)) from error
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds for damaged files
        raise TableError(_damaged(name, suffix, error)) from error


def _from_arrays(name: str, arrays: dict[str, np.ndarray]) -> Raw:
    """Return a table of X, or the only array of rows, and of all arrays with a value a row."""
    import pandas as pd

    matrices = [key for key, array in arrays.items() if array.ndim == 2]
    if "X" not in matrices and len(matrices) != 1:
        there = ", ".join(arrays) or "none"
        raise TableError(f"{name}: name the array of rows X; the file has {there}")
    X = arrays["X" if "X" in matrices else matrices[0]]
    if X.dtype.kind not in "biufU" or 0 in X.shape:
        raise TableError(f"{name}: rows of {X.dtype} of shape {X.shape}; numbers were expected")
    frame = pd.DataFrame(X if X.dtype != np.float16 else X.astype(np.float32))
    features = list(frame.columns)
    for key, array in arrays.items():
        if array.shape == (len(X),):
            frame[key] = array
    return Raw(name, frame, False, features, [], 0)


def _damaged(name: str, suffix: str, error: Exception) -> str:
    """Return the message for a file that NumPy cannot read."""
    return (
        f"{name}: not a plain NumPy file, or damaged ({_one_line(error)}); give a file written by "
        f"{'np.savez' if suffix == '.npz' else 'np.save'}, of numbers and strings"
    )


def _one_line(error: Exception) -> str:
    """Return the text of an error on one line."""
    return " ".join(str(error).split()) or type(error).__name__
