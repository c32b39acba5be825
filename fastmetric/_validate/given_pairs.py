"""Checks of labelled pairs of rows given by users."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from fastmetric import _validate


def pairs(
    estimator: Any, pairs: Any, y: Any, X: Any, first: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (n, D) as floats, the two rows of each pair (m,), and whether it coincides (m,).

    From pairs (m, 2, D) and no X, or from row numbers (m, 2) into X; y (m,) is +1 or -1. The
    squared differences can be added up.
    """
    by_number = X is not None
    if not by_number:
        _validate.refuse_strings(pairs)
        pairs = check_array(
            pairs, dtype=_validate.FLOATS, allow_nd=True, ensure_2d=False, order="C"
        )
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise ValueError(
                f"pairs has shape {pairs.shape}; (n_pairs, 2, n_features) was expected, or row "
                "numbers (n_pairs, 2) with the rows as X=X."
            )
        X = pairs.reshape(-1, pairs.shape[2])
    _validate.refuse_strings(X)
    X = validate_data(estimator, X, dtype=_validate.FLOATS, reset=first)
    members = _row_numbers(pairs, len(X)) if by_number else np.arange(len(X)).reshape(-1, 2)
    coincide = _signs(y, len(members))
    _validate.squarable(X, "X", len(coincide))
    firsts, seconds = (np.ascontiguousarray(part, np.int32) for part in members.T)
    return X, firsts, seconds, coincide


def _row_numbers(pairs: Any, n: int) -> np.ndarray:
    """Return pairs of row numbers (m, 2), each in 0..n-1."""
    pairs = np.asarray(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not len(pairs):
        raise ValueError(
            f"pairs should be row numbers of shape (n_pairs, 2), integers, at least one pair, if X "
            f"is given; got {pairs.dtype} of shape {pairs.shape}."
        )
    if pairs.min() < 0 or pairs.max() >= n:
        raise ValueError(f"pairs run from {pairs.min()} to {pairs.max()}; X has rows 0 to {n - 1}.")
    return pairs


def _signs(y: Any, m: int) -> np.ndarray:
    """Return whether y (m,) is +1; it may be -1 otherwise."""
    y = check_array(y, dtype=None, ensure_2d=False, input_name="y")
    if y.shape != (m,):
        raise ValueError(f"y has shape {y.shape}; one sign per pair, shape ({m},), was expected.")
    coincide = y == 1
    if not np.all(coincide | (y == -1)):
        raise ValueError(
            f"y should be +1 (the pair coincides) or -1; it holds {np.unique(y)[:5].tolist()}. "
            "For 0 and 1, give 2 * y - 1."
        )
    return coincide
