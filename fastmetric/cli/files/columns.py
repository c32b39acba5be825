"""Which columns of a table are features, the target, ids or none of them.

For a fit the user chooses; new data are matched with the columns that a model was fitted to.
"""

from __future__ import annotations

import csv
import io
import shlex
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastmetric.cli.files.tables import Raw
from fastmetric.cli.files.text_tables import TableError

if TYPE_CHECKING:
    import pandas as pd

_MOST_CATEGORIES = 50
_FEW = 10  # rows; a feature may number these by chance


class Choice(NamedTuple):
    """What the user said of the columns; names, patterns of names, or numbers from 0."""

    target: str = ""
    ids: str = ""
    features: str = ""
    drop: str = ""
    categories: str = ""
    impute: bool = False  # whether values may be missing
    texts: bool = True  # whether columns of texts are categories unasked


class Table(NamedTuple):
    """Rows of features, with what stands beside them."""

    X: pd.DataFrame  # numbers, and strings in the columns of categories
    y: np.ndarray | None
    ids: pd.DataFrame
    target: str  # the target's column
    categories: list[Any]
    named: bool
    notes: list[str]


def columns_to_fit(raw: Raw, choice: Choice) -> Table:
    """Return the table for a fit."""
    frame, notes = raw.frame, list(raw.notes)
    target = _target(raw, choice.target)
    ids = _listed(raw, choice.ids, "--id")
    dropped = _listed(raw, choice.drop, "--drop") + _without_name(raw, notes)
    others = {*ids, *dropped, *([] if target is None else [target])}
    candidates = [column for column in raw.features if column not in others]
    if choice.features:
        features = _listed(raw, choice.features, "--features")
        twice = [column for column in features if column in others]
        if twice:
            raise TableError(
                f"{raw.name}: column {twice[0]!r} is among --features and is the target, an id or "
                "dropped, too; give it once"
            )
    else:
        features = candidates
        _warn_of_counters(raw, features, notes)
    if not features:
        raise TableError(f"{raw.name}: no column is left as a feature")
    wanted = _listed(raw, choice.categories, "--categories")
    categories = [column for column in features if _is_category(raw, column, wanted, choice.texts)]
    if categories:
        shown = ", ".join(f"{c} ({frame[c].nunique()})" for c in categories)
        notes.append(f"{raw.name}: one column of 0 and 1 for each category of {shown}")
    empty = [column for column in features if frame[column].isna().all()]
    if empty:
        raise TableError(f"{raw.name}: column {empty[0]} has no values; --drop {_quoted(empty[0])}")
    X = _features(raw, features, categories, choice.impute)
    y = None if target is None else _labels(raw, target)
    return Table(
        X, y, frame[ids], "" if target is None else str(target), categories, raw.named, notes
    )


class Known(NamedTuple):
    """What a model knows of the table that it was fitted to."""

    features: list[str] | None  # names of the columns; None: they had none
    target: str  # the name or number of the column of classes; "": it is not known
    ids: list[str]
    categories: list[str]
    impute: bool
    width: int | None = None  # number of features


def columns_to_apply(raw: Raw, known: Known, ids: str = "", target: str = "") -> Table:
    """Return new rows with the columns that a model was fitted to, in its order."""
    notes = list(raw.notes)
    kept: list[Any]
    if ids:
        kept = _listed(raw, ids, "--id")
    else:
        kept = [column for column in known.ids if column in raw.frame.columns]
    found = _target(raw, target) if target else _target_if_there(raw, known)
    if known.features is not None and raw.named:
        features: list[Any] = list(known.features)
        missing = [column for column in features if column not in raw.frame.columns]
        if missing:
            raise TableError(
                f"{raw.name} has no column {_listing(missing)}; the model was fitted on "
                f"{_listing(features)}, and the file has {_listing(raw.features)}"
            )
        used = {*features, *kept, *([] if found is None else [found])}
        more = [c for c in raw.features if c not in used and c not in _without_name(raw, [])]
        if more:
            notes.append(f"{raw.name}: the model does not know {_listing(more)}: ignored")
        categories: list[Any] = [c for c in features if c in known.categories]
    else:
        beside = {*kept, *_without_name(raw, notes), *([] if found is None else [found])}
        features = [column for column in raw.features if column not in beside]
        width = known.width if known.features is None else len(known.features)
        if width is not None and len(features) != width:
            names = f", {_listing(known.features)}" if known.features is not None else ""
            raise TableError(
                f"{raw.name} has {len(features)} columns of features; the model was fitted on "
                f"{width}{names}"
            )
        numbered = known.features or [str(number) for number in range(len(features))]
        categories = [
            column
            for column, name in zip(features, numbered, strict=True)
            if name in known.categories
        ]
    X = _features(raw, features, categories, known.impute)
    if known.features is not None:
        X.columns = known.features
    y = None if found is None else _labels(raw, found, required=False)
    return Table(
        X, y, raw.frame[kept], "" if found is None else str(found), categories, raw.named, notes
    )


# Names


def _listed(raw: Raw, given: str, option: str) -> list[Any]:
    """Return the columns that an option lists, separated by commas; * stands for any letters."""
    columns: list[Any] = []
    for name in (part.strip() for part in next(csv.reader([given]), []) if part.strip()):
        found = _find(raw, name)
        matching = [c for c in raw.frame.columns if fnmatchcase(str(c), name)]
        if found is None and not matching:
            raise TableError(f"{option}: {raw.name} has no column {name!r}; it has {_all(raw)}")
        columns += [c for c in (matching if found is None else [found]) if c not in columns]
    return columns


def _find(raw: Raw, name: str) -> Any:
    """Return the column of a name or number, or None if there is none."""
    if name in raw.frame.columns:
        return name
    try:
        number = int(name)
    except ValueError:
        return None
    width = len(raw.features)
    return raw.features[number] if -width <= number < width else None


def _target(raw: Raw, name: str) -> Any:
    """Return the column of the target, or None if there shall be none."""
    if not name:
        return None
    found = _find(raw, name)
    if found is None:
        raise TableError(f"{raw.name}: no column {name!r} for --target; it has {_all(raw)}")
    return found


def _target_if_there(raw: Raw, known: Known) -> Any:
    """Return the column of the model's target in new data, or None."""
    if not known.target:
        return None
    if known.target in raw.frame.columns:
        return known.target
    if raw.named and known.features is not None:
        return None
    # Columns are numbered: the target is there if there is one column more than features.
    width = known.width if known.features is None else len(known.features)
    return _find(raw, known.target) if width is None or len(raw.features) > width else None


def _without_name(raw: Raw, notes: list[str]) -> list[Any]:
    """Return the columns without a name: those of row names or numbers, and empty ones."""
    if not raw.named:
        return []
    found = []
    for number, column in enumerate(raw.features):
        values = raw.frame[column]
        if str(column).strip() and not _is_saved_index(column, values):
            continue
        if number and not values.isna().all() and not _counts(values):
            raise TableError(
                f"{raw.name}: column {number + 1} of the header has no name; give it one"
            )
        found.append(column)
        where = f"column {column!r}" if str(column).strip() else "a column without a name"
        what = "empty" if values.isna().all() else "an index of the rows"
        notes.append(f"{raw.name}: {where} is {what}, no feature: left out")
    return found


def _is_saved_index(column: Any, values: pd.Series) -> bool:
    """Return whether a column is an index that pandas wrote twice."""
    return str(column).startswith("Unnamed: ") and _counts(values)


def _counts(values: pd.Series) -> bool:
    """Return whether values number the rows: each is one more than the one before."""
    if values.dtype.kind not in "iu" or len(values) < 2:
        return False
    return int(values.iloc[0]) in (0, 1) and bool((np.diff(values.to_numpy()) == 1).all())


def _warn_of_counters(raw: Raw, features: list[Any], notes: list[str]) -> None:
    """Say if a feature numbers the rows: a method would learn the order of the file."""
    for column in features:
        if len(raw.frame) >= _FEW and _counts(raw.frame[column]):
            notes.append(
                f"{raw.name}: warning: column {column} numbers the rows, and is used as a feature; "
                f"{_ways_out(column)}"
            )


def _all(raw: Raw) -> str:
    """Return the columns of a table for a message."""
    columns = list(raw.frame.columns)
    if raw.named:
        return f"the columns {_listing(columns)}"
    others = [column for column in columns if column not in raw.features]
    more = f", and {_listing(others)}" if others else ""
    return f"{len(raw.features)} columns, numbered from 0{more}"


def _listing(names: Any) -> str:
    """Return names for a message."""
    shown = ", ".join(str(name) or "''" for name in names[:8])
    return shown + (f", … ({len(names)} in all)" if len(names) > 8 else "")


def _quoted(*columns: Any) -> str:
    """Return columns as a shell takes them for the value of an option."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(columns)
    return shlex.quote(line.getvalue())


def _ways_out(column: Any) -> str:
    """Return what to do with a column that is no feature."""
    name = _quoted(column)
    return f"--id {name} keeps it beside the result, --drop {name} leaves it out"


# Values


def _is_category(raw: Raw, column: Any, wanted: list[Any], texts_are: bool) -> bool:
    """Return whether a feature holds categories: if it is asked for, or no value is a number.

    Distances between categories mean little without classes to learn from: unless `texts_are`
    categories, these must be asked for.
    """
    values = raw.frame[column]
    if values.dtype.kind == "M" or (values.dtype.kind == "O" and _holds_dates(values)):
        raise TableError(
            f"{raw.name}, column {column}: dates or times, numbers were expected; "
            f"{_ways_out(column)}"
        )
    if column in wanted:
        return True
    if values.dtype.kind in "biufc" or values.isna().all():
        return False
    texts = values.dropna()
    if not _parsed(texts).isna().all():
        return False  # numbers, or numbers with a few texts among them: `_numbers` names these
    many = texts.nunique() > min(_MOST_CATEGORIES, max(1, len(texts) - 1))
    if many or not texts_are:
        hardly = f", and {texts.nunique()} texts in {len(texts)} rows are hardly categories"
        of_class = "" if texts_are else f"--target {_quoted(column)} if it is the class, "
        raise TableError(
            f"{raw.name}, row {texts.index[0] + raw.first_row}, column {column}: "
            f"{str(texts.iloc[0])!r} is no number{hardly * many}; {of_class}{_ways_out(column)}, "
            f"--categories {_quoted(column)} takes it as categories"
        )
    return True


def _holds_dates(values: pd.Series) -> bool:
    """Return whether a column of objects holds dates."""
    first = values.dropna()
    return len(first) > 0 and hasattr(first.iloc[0], "isoformat")


def _parsed(values: pd.Series) -> pd.Series:
    """Return texts as numbers, missing where they are none."""
    import pandas as pd

    return pd.to_numeric(values.astype(object), errors="coerce")


def _features(raw: Raw, features: list[Any], categories: list[Any], impute: bool) -> pd.DataFrame:
    """Return the features: float32 if all are, else float64, and strings for categories."""
    import pandas as pd

    _refuse_missing(raw, features, impute)
    numbers = [column for column in features if column not in categories]
    narrow = all(raw.frame[column].dtype in (np.float32, np.float16) for column in numbers)
    dtype = np.float32 if narrow and numbers else np.float64
    values = np.empty((len(raw.frame), len(numbers)), dtype)
    for k, column in enumerate(numbers):
        values[:, k] = _numbers(raw, column)
    X = pd.DataFrame(values, columns=pd.Index(numbers, dtype=object))
    if not categories:
        return X if raw.named else X.set_axis(range(len(numbers)), axis=1)
    for column in categories:
        texts = raw.frame[column]
        X[column] = texts.astype(object).where(texts.isna(), texts.map(str)).where(~texts.isna())
    X = X[features]
    X.columns = [str(column) for column in X.columns]
    return X


def _numbers(raw: Raw, column: Any) -> np.ndarray:
    """Return a column as floats; name the first value that is no number."""
    values = raw.frame[column]
    if values.dtype.kind in "biuf" and isinstance(values.dtype, np.dtype):
        floats = values.to_numpy()
    elif values.dtype.kind == "c":
        raise TableError(f"{raw.name}, column {column}: complex numbers; real ones were expected")
    else:
        parsed = _parsed(values)
        wrong = (parsed.isna() & ~values.isna()).to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            raise TableError(
                f"{raw.name}, row {row + raw.first_row}, column {column}: "
                f"{str(values.iloc[row])!r} is no number; correct it, give --missing with "
                f"--impute if it marks a missing value, or --drop {_quoted(column)}"
            )
        floats = parsed.to_numpy(np.float64, na_value=np.nan)
    infinite = np.isinf(floats)
    if infinite.any():
        row = int(infinite.argmax())
        raise TableError(
            f"{raw.name}, row {row + raw.first_row}, column {column}: {floats[row]} is not finite"
        )
    return floats


def _refuse_missing(raw: Raw, features: list[Any], impute: bool) -> None:
    """Raise if values are missing and shall not be imputed."""
    gaps = raw.frame[features].isna()
    counts = gaps.sum()
    if impute or not counts.any():
        return
    first = next(column for column in features if counts[column])
    row = int(gaps[first].to_numpy().argmax())
    lacking = [column for column in features if counts[column]]
    where = ", ".join(f"{column} {counts[column]}" for column in lacking)
    raise TableError(
        f"{raw.name}, row {row + raw.first_row}, column {first}: the value is missing "
        f"({int(counts.sum())} in all: {where}); fit with --impute median (or mean, "
        f"most-frequent), or --drop {_quoted(*lacking)}"
    )


def _labels(raw: Raw, column: Any, required: bool = True) -> np.ndarray:
    """Return the classes of the rows: whole numbers as such, all else as texts; None: missing."""
    values = raw.frame[column]
    missing = values.isna().to_numpy()
    if missing.any() and required:
        row = int(missing.argmax())
        raise TableError(
            f"{raw.name}, row {row + raw.first_row}, column {column}: the class is missing; "
            "remove the rows without a class"
        )
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iufb":
        if not missing.any():
            return values.to_numpy()
        whole = (values[~missing] % 1 == 0).all()  # pandas makes floats of numbers with gaps
        kind: Any = int if whole else float
    else:
        kind = str
    labels = [None if gap else kind(value) for gap, value in zip(missing, values, strict=True)]
    return np.array(labels, dtype=object if missing.any() else None)
