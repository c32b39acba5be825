"""Checks of data given by users: rows, labels, weights, queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from fastmetric._validate.arrays import FLOATS, ROWS, numeric_array, refuse_unusable
from fastmetric._validate.parameters import integer
from fastmetric._validate.wording import named, shown

_LABELS = "one class label per row of X"


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Give the estimator back its attributes if the body raises: nothing is half-fitted."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        # In one step that takes no memory: the error may be that there is none.
        estimator.__dict__ = before
        raise


def training_data(estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X (n, D) as floats, the classes (C,) sorted, and class numbers y (n,), 0-based."""
    X = rows_of(estimator, X, ensure_min_samples=2)
    return X, *_class_numbers(_labels(y, X))


def unlabelled_data(
    estimator: Any, X: Any, copy: bool = False, least_rows: int = 1, first: bool = True
) -> np.ndarray:
    """Return X (n, D) as floats, rows contiguous, and let the estimator know its features.

    Not `first`: these should be the features it knows.
    """
    return rows_of(estimator, X, order="C", copy=copy, ensure_min_samples=least_rows, reset=first)


def query_data(estimator: Any, X: Any) -> np.ndarray:
    """Return X (m, D) as floats, with the features the estimator was fitted on."""
    return rows_of(estimator, X, reset=False)


def rows_of(estimator: Any, X: Any, name: str = "X", **options: Any) -> np.ndarray:
    """Return X (n, D) as floats; `options` are those of scikit-learn's validate_data."""
    refuse_unusable(name, X)
    with named(name, ROWS):
        return validate_data(estimator, X, dtype=FLOATS, **options)


def float_array(X: Any, name: str, dtype: Any = FLOATS) -> np.ndarray:
    """Return X (n, D) as a float array of `dtype`, one or several; for functions."""
    return numeric_array(name, X, ROWS, dtype, order="C", ensure_2d=True, allow_nd=False)


def in_precision_of(query: np.ndarray, X: np.ndarray, name: str = "query") -> np.ndarray:
    """Return queries (m, D) in the precision of the points X (n, D)."""
    if query.shape[1] != X.shape[1]:
        raise ValueError(
            f"{name} has {query.shape[1]} features; X has {X.shape[1]}. Give the same features."
        )
    with np.errstate(over="ignore"):
        query = query.astype(X.dtype, copy=False)
    if not np.isfinite(query).all():
        raise ValueError(f"{name} is out of the range of {X.dtype}, the precision of X.")
    return query


def squarable(X: np.ndarray, name: str, terms: int = 1) -> np.ndarray:
    """Return X (n, d), of whose squared distances so many can be added up without overflow."""
    # Differences are then at most sqrt(max / (d terms)), up to rounding.
    most = 0.49 * np.sqrt(np.finfo(X.dtype).max / X.shape[1] / terms)
    largest = max(-float(X.min()), float(X.max()))
    if largest > most:
        raise ValueError(
            f"{name} has coordinates up to {largest:.3g}; beyond {most:.3g} squared distances "
            f"overflow in {X.dtype}. Scale the data down"
            f"{', or give float64' * (X.dtype == np.float32)}."
        )
    return X


def labelled_arrays(X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return X (n, D) as floats and class numbers y (n,), 0-based; for functions."""
    options: dict[str, Any] = dict(ensure_2d=True, allow_nd=False, ensure_min_samples=2)
    X = numeric_array("X", X, ROWS, FLOATS, **options)
    return X, _class_numbers(_labels(y, X))[1]


def _labels(y: Any, X: np.ndarray) -> np.ndarray:
    """Return the labels y (n,) of the rows X (n, D), of classes: without gaps, not continuous."""
    if y is None:
        raise ValueError(
            f"y should be {_LABELS}: this requires y to be passed, but the target y is None."
        )
    y = _label_array("y", y, _LABELS)
    with named("y", _LABELS):
        check_consistent_length(X, y)
        check_classification_targets(y)
    return y


def _label_array(name: str, labels: Any, wanted: str) -> np.ndarray:
    """Return labels (m,) of any kind, without gaps."""
    if isinstance(labels, str | bytes | dict) or not (
        hasattr(labels, "__len__") or hasattr(labels, "__array__")
    ):
        raise ValueError(f"{name} should be {wanted}; got {shown(labels)}.")
    if isinstance(labels, np.ma.MaskedArray):
        raise ValueError(
            f"{name} is a masked array, and its mask would be ignored; {wanted} was expected. "
            "Leave out the rows without a label."
        )
    with named(name, wanted):
        labels = column_or_1d(labels, warn=True)
        return check_array(labels, dtype=None, ensure_2d=False, input_name=name)


def _class_numbers(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes and the number of each row's class."""
    with named("y", "labels that can be sorted"):
        classes, numbers_of_rows = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes[0]!r}); at least two classes are needed."
        )
    return classes, numbers_of_rows


def transformation(A: Any, n_features: int, name: str = "A") -> np.ndarray:
    """Return a linear map A (d, D), d <= D, as float64."""
    wanted = "a map: an array of finite numbers, components by features"
    A = numeric_array(name, A, wanted, ensure_2d=True, allow_nd=False)
    if A.shape[1] != n_features:
        raise ValueError(
            f"{name} has shape {A.shape}; its {A.shape[1]} columns should be the {n_features} "
            "features of X."
        )
    if A.shape[0] > n_features:
        raise ValueError(
            f"{name} has shape {A.shape}; a map to more dimensions than the {n_features} features "
            "of X gains nothing. Give at most as many rows as columns."
        )
    return A


def row_indices(rows: Any, n: int) -> np.ndarray:
    """Return indices of rows, each in 0..n-1, as an integer array."""
    refuse_unusable("rows", rows, "a non-empty 1-D array of row numbers")
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.size == 0:
        raise ValueError(
            f"rows should be a non-empty 1-D array of row numbers; got {rows.dtype} of shape "
            f"{rows.shape}. For a mask, give np.flatnonzero(mask)."
        )
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(
            f"rows run from {rows.min()} to {rows.max()}; X has rows 0 to {n - 1}. Give numbers of "
            "these."
        )
    return rows.astype(np.intp)


def new_rows(
    estimator: Any, X: Any, y: Any, classes: Any, known: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X (n, D) as floats, all classes sorted, and class numbers y (n,); for partial_fit.

    `classes` None: those of y. `known` are those of the first rows; None: these are the first.
    """
    X = rows_of(estimator, X, reset=known is None)
    y = _labels(y, X)
    if classes is not None:
        classes = _label_array("classes", classes, "all class labels there will be, 1-D")
    with named("classes", "labels of one kind, that of y"):
        given = y if classes is None else classes
        given = np.unique(given) if known is None or classes is not None else known
        if known is not None and not np.array_equal(given, known):
            raise ValueError(
                f"classes={given.tolist()} are not those of the first rows, "
                f"{known.tolist()}. Leave classes out, or begin anew with fit."
            )
        unknown = np.setdiff1d(y, given)
    if unknown.size:
        raise ValueError(
            f"y holds {unknown.tolist()}; the classes are {given.tolist()}. Give all classes "
            "there will be in the first call of partial_fit."
        )
    if len(given) < 2:
        raise ValueError(
            f"There is one class only in y or classes ({given[0]!r}); at least two are needed. "
            "Give all classes there will be in the first call of partial_fit."
        )
    return X, given, np.searchsorted(given, y)


def components_so_far(estimator: Any) -> np.ndarray:
    """Return the map that learning goes on from, in float64; its rows are `n_components` still."""
    components, wanted = estimator.components_, estimator.n_components
    if wanted is not None and integer("n_components", wanted, 1) != len(components):
        raise ValueError(
            f"n_components is {wanted!r}; the map so far has {len(components)} rows, and learning "
            "goes on from there. Leave n_components as it was, or fit anew."
        )
    return components.astype(np.float64)


def sample_weights(name: str, weights: Any, X: np.ndarray) -> np.ndarray:
    """Return weights (n,) >= 0 of the rows of X as float64, some of them > 0."""
    n = len(X)
    wanted = f"one number of at least 0 for each of the {n} rows"
    weights = numeric_array(name, weights, wanted, copy=True)
    if weights.shape != (n,):
        raise ValueError(
            f"{name} has shape {weights.shape}; one number per row, shape ({n},), was expected."
        )
    if weights.min() < 0:
        raise ValueError(f"{name} should not be negative; the least is {weights.min()}.")
    positive = weights[weights > 0]
    if not positive.size:
        raise ValueError(f"{name} are all zero; at least one row needs a positive weight.")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        raise ValueError(
            f"{name} run from {positive.min()} to {positive.max()}, and their sum is {total}; a "
            "finite sum was expected. Divide them by a common factor."
        )
    return weights
