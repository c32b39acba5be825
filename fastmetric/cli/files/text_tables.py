"""Tables in text files: which delimiter, decimal sign and header, and which row is not in order.

pandas reads the table. What it guesses silently or not at all is decided here, from the first
lines: the delimiter, a decimal comma, a column of row names. What it accepts silently, rows
shorter than the header, is found and refused.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

_DELIMITERS = (",", ";", "\t", "|")
_SPACES = r"\s+"
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", _SPACES: "spaces"}
_HEAD = 1 << 16  # bytes that are looked at before the table is read
_LINES = 50
_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")


class TableError(Exception):
    """A file that cannot be read as a table; the message is for the user."""


class Reading(NamedTuple):
    """How a text file is to be read; None: as its first lines suggest."""

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str = "utf-8"
    header: bool = True
    missing: tuple[str, ...] = ()  # marks of missing values, besides an empty cell, NA, NaN, ...


class _Layout(NamedTuple):
    """What was decided on a text file."""

    delimiter: str
    decimal: str
    names: list[str] | None  # of the columns; None: the file has no header
    width: int


def read_text(name: str, file: BinaryIO, reading: Reading) -> tuple[pd.DataFrame, list[str]]:
    """Return the table in an open file, and what the user should know of how it was read."""
    import pandas as pd

    lines = _first_lines(name, file, reading.encoding)
    layout = _layout(name, lines, reading)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                file,
                sep=layout.delimiter,
                decimal=layout.decimal,
                header=None if layout.names is None else 0,
                names=range(layout.width) if layout.names is None else layout.names,
                index_col=False,
                skipinitialspace=True,
                na_values=list(reading.missing),
                encoding=_encoding(reading.encoding),
                low_memory=False,
            )
    except UnicodeDecodeError as error:
        raise _undecodable(name, file, reading.encoding) from error
    except pd.errors.EmptyDataError as error:
        raise TableError(f"{name}: a header and at least one row were expected") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _refuse_ragged(name, file, layout, reading.encoding)
        kind = "comma" if layout.delimiter == "," else "delimiter"
        reason = " ".join(str(error).split())
        raise TableError(f"{name}: not a table of {kind}-separated values ({reason})") from error
    if not len(frame):
        raise TableError(f"{name}: a header and at least one row were expected")
    if frame.iloc[:, -1].isna().any():  # pandas fills short rows silently
        _refuse_ragged(name, file, layout, reading.encoding)
    return frame, _notes(name, layout, reading)


def _encoding(encoding: str) -> str:
    """Return the codec of an encoding: that of UTF-8 leaves out a byte order mark."""
    return "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding


def _notes(name: str, layout: _Layout, reading: Reading) -> list[str]:
    """Return what was decided that the user did not ask for and may not expect."""
    notes = []
    if reading.delimiter is None and layout.delimiter not in (",", "\t"):
        notes.append(f"fields are separated by {_NAMES[layout.delimiter]}")
    if reading.decimal is None and layout.decimal == ",":
        notes.append("numbers have a decimal comma")
    return [f"{name}: {', '.join(notes)}"] if notes else []


# The first lines


def _first_lines(name: str, file: BinaryIO, encoding: str) -> list[str]:
    """Return the first complete lines of a file that hold anything; rewind it."""
    start = file.read(_HEAD)
    file.seek(0)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) and not encoding.lower().startswith("utf-16"):
        raise TableError(f"{name}: not a text file in UTF-8; save it as UTF-8, or give --encoding")
    try:
        text = start.decode(_encoding(encoding), errors="replace")
    except LookupError as error:
        raise TableError(f"--encoding {encoding} is not known; cp1252 is one") from error
    lines = text.splitlines(keepends=True)
    if len(start) == _HEAD and len(lines) > 1:
        lines.pop()  # it may be cut
    return [line for line in lines if line.strip()][:_LINES]


def _rows(lines: list[str], delimiter: str) -> list[list[str]]:
    """Return the fields of lines."""
    if delimiter == _SPACES:
        return [line.split() for line in lines]
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        return [row for row in reader if row]
    except csv.Error:  # a field beyond csv's limit; pandas has none
        return [line.split(delimiter) for line in lines]


def _layout(name: str, lines: list[str], reading: Reading) -> _Layout:
    """Decide on the delimiter, the decimal sign and the names of the columns."""
    if not lines:
        raise TableError(f"{name}: a header and at least one row were expected")
    delimiter = reading.delimiter or _likely_delimiter(lines)
    if reading.delimiter is not None and len(delimiter) > 1 and delimiter != _SPACES:
        raise TableError(f"--delimiter {delimiter!r}: one sign was expected, or tab or space")
    rows = _rows(lines, delimiter)
    body = rows[1:] if reading.header else rows
    decimal = reading.decimal or _likely_decimal(body, delimiter)
    if decimal == delimiter:
        raise TableError(f"--decimal {decimal} is the delimiter, too; give another --delimiter")
    if not reading.header:
        return _Layout(delimiter, decimal, None, len(rows[0]))
    names = [field.strip() for field in rows[0]]
    if all(_is_number(field, decimal) for field in names):
        raise TableError(
            f"{name}: the first line holds numbers ({', '.join(names[:3])}, …), a header was "
            "expected; give --no-header if there is none, and columns by their number from 0"
        )
    if body and all(len(row) == len(names) + 1 for row in body):
        names = ["", *names]  # as R writes row names
    _check_names(name, names)
    return _Layout(delimiter, decimal, names, len(names))


def _likely_delimiter(lines: list[str]) -> str:
    """Return the delimiter under which all lines have the same number of fields, and the most."""

    def order(delimiter: str) -> tuple[bool, int]:
        header, *body = ([len(row) for row in _rows(lines, delimiter)]) or [0]
        even = all(width == header for width in body) or all(width == header + 1 for width in body)
        return even and header > 1, header

    best = max(_DELIMITERS, key=order)
    if order(best)[1] == 1 and order(_SPACES)[0]:
        return _SPACES
    return best


def _likely_decimal(rows: list[list[str]], delimiter: str) -> str:
    """Return the decimal sign: a comma if numbers have one and none has a point."""
    if delimiter == ",":
        return "."
    cells = [cell.strip() for row in rows for cell in row]
    commas = any(_COMMA.fullmatch(cell) for cell in cells)
    return "," if commas and not any(_POINT.fullmatch(cell) for cell in cells) else "."


def _is_number(field: str, decimal: str) -> bool:
    """Return whether a field is a number."""
    try:
        float(field.replace(decimal, "."))
    except ValueError:
        return False
    return True


def _check_names(name: str, names: list[str]) -> None:
    """Raise if two columns have one name."""
    for number, one in enumerate(names):
        if one and one in names[:number]:
            raise TableError(
                f"{name}: the header has the column {one!r} twice; give each a name of its own"
            )


# What went wrong


def _refuse_ragged(name: str, file: BinaryIO, layout: _Layout, encoding: str) -> None:
    """Raise if a row has more or fewer fields than the header."""
    file.seek(0)
    lines = io.TextIOWrapper(file, encoding=_encoding(encoding), newline="")
    try:
        if layout.delimiter == _SPACES:
            rows: Iterator[list[str]] = (line.split() for line in lines)
        else:
            rows = csv.reader(lines, delimiter=layout.delimiter, skipinitialspace=True)
        for number, row in enumerate((row for row in rows if row), start=1):
            first = number == 1 and layout.names is not None
            if not first and len(row) != layout.width:
                fields = "1 field" if len(row) == 1 else f"{len(row)} fields"
                other = "the header" if layout.names is not None else "the first row"
                raise TableError(
                    f"{name}, row {number}: {fields}, {other} has {layout.width}; correct that "
                    "row, or give --delimiter"
                )
    except (csv.Error, UnicodeDecodeError):
        return  # pandas says what is wrong
    finally:
        lines.detach()  # it would close the file


def _undecodable(name: str, file: BinaryIO, encoding: str) -> TableError:
    """Return the error of a text in another encoding, with its first line that shows it."""
    file.seek(0)
    where = ""
    for number, line in enumerate(file, start=1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError:
            where = f", see line {number}"
            break
    return TableError(
        f"{name}: not a text file in {encoding.upper()}{where}; save it as UTF-8, or give its "
        "--encoding, cp1252 for example"
    )
