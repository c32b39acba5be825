"""Checks of arrays given by users, whatever they mean: numbers, without gaps, as floats."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from fastmetric._validate.wording import named, shown

FLOATS = (np.float64, np.float32)
ROWS = "a 2D array of finite numbers, rows by features"


def refuse_unusable(name: str, X: Any, wanted: str = ROWS) -> None:
    """Raise if X is no array, or one that NumPy would take for numbers that it does not hold.

    Strings are parsed, masks ignored, dates counted in their unit, imaginary parts dropped.
    """
    array_like = any(hasattr(X, one) for one in ("__len__", "__array__", "shape"))
    if not array_like or isinstance(X, str | bytes | bytearray | dict | set | frozenset):
        raise ValueError(f"{name} should be {wanted}; got {shown(X)}.")
    _refuse_masked(name, X)
    with named(name, wanted):
        kinds = _dtypes(X)
    for dtype in kinds:
        kind = getattr(dtype, "kind", "O")
        if kind in "US":
            raise ValueError(
                f"{name} holds strings ({dtype}); numbers were expected. "
                f"Convert it first, for example with {name}.astype(float)."
            )
        if kind in "mM":
            raise ValueError(
                f"{name} holds {'dates' if kind == 'M' else 'durations'} ({dtype}); numbers were "
                "expected. Divide durations by a unit, for example np.timedelta64(1, 'D'); of "
                "dates, take the durations since one of them."
            )
        if kind == "c":
            raise ValueError(
                f"{name} holds complex numbers ({dtype}). Complex data not supported: real "
                "numbers were expected. Give real and imaginary parts one beside the other."
            )


def _refuse_masked(name: str, X: Any) -> None:
    """Raise if X is a masked array, or a list of such."""
    parts = [X, *X] if isinstance(X, list | tuple) else [X]
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise ValueError(
            f"{name} is a masked array, and its mask would be ignored; an array without gaps was "
            f"expected. Give {name}.filled(value), leave out rows with gaps, or impute them, for "
            "example with sklearn.impute.SimpleImputer."
        )


def _dtypes(X: Any) -> list[Any]:
    """Return the dtypes of an array, of the columns of a frame, or of nested lists."""
    if isinstance(X, list | tuple):
        return [np.asarray(X).dtype]
    columns = getattr(X, "dtypes", None)  # of pandas
    if columns is not None and np.iterable(columns):
        return list(columns)
    return [getattr(X, "dtype", None)]


def numeric_array(
    name: str, value: Any, wanted: str, dtype: Any = np.float64, **options: Any
) -> np.ndarray:
    """Return an array-like of any shape as finite floats of `dtype`, or one of several.

    `options` are those of scikit-learn's check_array.
    """
    refuse_unusable(name, value, wanted)
    options = {"ensure_2d": False, "allow_nd": True} | options
    with named(name, wanted):
        return check_array(value, dtype=dtype, input_name=name, **options)
