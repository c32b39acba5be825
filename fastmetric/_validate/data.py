"""Checks of data given by users: rows, labels, weights, queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

FLOATS = (np.float64, np.float32)

_LEAST_PRIOR = 1e-250  # of their sum: below, one over a compact kernel's sum may overflow


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Give the estimator back its attributes if the body raises: nothing is half-fitted."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def refuse_strings(X: Any) -> None:
    """Raise if X is made of strings, which NumPy would parse as numbers."""
    kind = np.asarray(X).dtype if isinstance(X, list | tuple) else getattr(X, "dtype", None)
    if isinstance(kind, np.dtype) and kind.kind in ("U", "S"):
        raise ValueError(
            f"X holds strings ({kind}); numbers were expected. "
            "Convert it first, for example with X.astype(float)."
        )


def training_data(estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X (n, D) as floats, the classes (C,) sorted, and class numbers y (n,), 0-based."""
    refuse_strings(X)
    X, y = validate_data(estimator, X, y, dtype=FLOATS, ensure_min_samples=2)
    return X, *_class_numbers(y)


def unlabelled_data(
    estimator: Any, X: Any, copy: bool = False, least_rows: int = 1, first: bool = True
) -> np.ndarray:
    """Return X (n, D) as floats, rows contiguous, and let the estimator know its features.

    Not `first`: these should be the features it knows.
    """
    refuse_strings(X)
    return validate_data(
        estimator,
        X,
        dtype=FLOATS,
        order="C",
        copy=copy,
        ensure_min_samples=least_rows,
        reset=first,
    )


def query_data(estimator: Any, X: Any) -> np.ndarray:
    """Return X (m, D) as floats, with the features the estimator was fitted on."""
    refuse_strings(X)
    return validate_data(estimator, X, dtype=FLOATS, reset=False)


def float_array(X: Any, name: str, dtype: Any = FLOATS) -> np.ndarray:
    """Return X (n, D) as a float array of `dtype`, one or several; for functions."""
    refuse_strings(X)
    return check_array(X, dtype=dtype, order="C", input_name=name)


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
    refuse_strings(X)
    X = check_array(X, dtype=FLOATS, ensure_min_samples=2, input_name="X")
    y = check_array(y, dtype=None, ensure_2d=False, input_name="y")
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; one label per row of X was expected.")
    check_consistent_length(X, y)
    return X, _class_numbers(y)[1]


def _class_numbers(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes and the number of each row's class."""
    check_classification_targets(y)
    classes, numbers_of_rows = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes[0]!r}); at least two classes are needed."
        )
    return classes, numbers_of_rows


def transformation(A: Any, n_features: int, name: str = "A") -> np.ndarray:
    """Return a linear map A (d, D), d <= D, as float64."""
    A = check_array(A, dtype=np.float64, input_name=name)
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
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.size == 0:
        raise ValueError(
            f"rows should be a non-empty 1-D array of row numbers; got {rows.dtype} of shape "
            f"{rows.shape}. For a mask, give np.flatnonzero(mask)."
        )
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"rows run from {rows.min()} to {rows.max()}; X has rows 0 to {n - 1}.")
    return rows.astype(np.intp)


def new_rows(
    estimator: Any, X: Any, y: Any, classes: Any, first: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X (n, D) as floats, all classes sorted, and class numbers y (n,); for partial_fit.

    `classes` None: those of y.
    """
    refuse_strings(X)
    X, y = validate_data(estimator, X, y, dtype=FLOATS, reset=first)
    check_classification_targets(y)
    classes = np.unique(y if classes is None else np.asarray(classes))
    unknown = np.setdiff1d(y, classes)
    if unknown.size:
        raise ValueError(
            f"y holds {unknown.tolist()}; the classes are {classes.tolist()}. Give all classes "
            "there will be in the first call of partial_fit."
        )
    if len(classes) < 2:
        raise ValueError(
            f"There is one class only ({classes[0]!r}); at least two are needed. Give all classes "
            "there will be in the first call of partial_fit."
        )
    return X, classes, np.searchsorted(classes, y)


def components_so_far(estimator: Any) -> np.ndarray:
    """Return the map that learning goes on from, in float64; its rows are `n_components` still."""
    components, wanted = estimator.components_, estimator.n_components
    if wanted not in (None, len(components)):
        raise ValueError(
            f"n_components is {wanted!r}; the map so far has {len(components)} rows, and learning "
            "goes on from there. Leave n_components as it was, or fit anew."
        )
    return components.astype(np.float64)


def sample_weights(name: str, weights: Any, X: np.ndarray) -> np.ndarray:
    """Return weights (n,) >= 0 of the rows of X as float64, some of them > 0."""
    n = len(X)
    weights = check_array(weights, dtype=np.float64, ensure_2d=False, copy=True, input_name=name)
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
