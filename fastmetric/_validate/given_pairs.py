"""Checks of labelled pairs of rows given by users."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmetric._validate.arrays import FLOATS, numeric_array, refuse_unusable
from fastmetric._validate.data import rows_of, squarable
from fastmetric._validate.wording import shown


def pairs(
    estimator: Any, pairs: Any, y: Any, X: Any, first: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (n, D) as floats, the two rows of each pair (m,), and whether it coincides (m,).

    From pairs (m, 2, D) and no X, or from row numbers (m, 2) into X; y (m,) is +1 or -1. The
    squared differences can be added up.
    """
    by_number = X is not None
    if not by_number:
        wanted = (
            "an array of finite numbers of shape (n_pairs, 2, n_features), or row numbers "
            "(n_pairs, 2) with the rows as X=X"
        )
        pairs = numeric_array("pairs", pairs, wanted, FLOATS, order="C")
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise ValueError(
                f"pairs has shape {pairs.shape}; (n_pairs, 2, n_features) was expected, or row "
                "numbers (n_pairs, 2) with the rows as X=X; X is None."
            )
        X = pairs.reshape(-1, pairs.shape[2])
    name = "X" if by_number else "pairs"
    X = rows_of(estimator, X, name, reset=first)
    members = _row_numbers(pairs, len(X)) if by_number else np.arange(len(X)).reshape(-1, 2)
    coincide = _signs(y, len(members))
    squarable(X, name, len(coincide))
    firsts, seconds = (np.ascontiguousarray(part, np.int32) for part in members.T)
    return X, firsts, seconds, coincide


def _row_numbers(pairs: Any, n: int) -> np.ndarray:
    """Return pairs of row numbers (m, 2), each in 0..n-1."""
    refuse_unusable("pairs", pairs, "row numbers of shape (n_pairs, 2)")
    pairs = np.asarray(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not len(pairs):
        raise ValueError(
            f"pairs should be row numbers of shape (n_pairs, 2), integers, at least one pair, if X "
            f"is given; got {pairs.dtype} of shape {pairs.shape}."
        )
    if pairs.min() < 0 or pairs.max() >= n:
        raise ValueError(
            f"pairs run from {pairs.min()} to {pairs.max()}; X has rows 0 to {n - 1}. Give numbers "
            "of these."
        )
    return pairs


def _signs(y: Any, m: int) -> np.ndarray:
    """Return whether y (m,) is +1; it may be -1 otherwise."""
    y = numeric_array("y", y, f"one sign, +1 or -1, for each of the {m} pairs", dtype=None)
    if y.shape != (m,):
        raise ValueError(
            f"y has shape {y.shape}; one sign per pair, shape ({m},), was expected. The number of "
            f"pairs is {m}."
        )
    coincide = y == 1
    wrong = y[~(coincide | (y == -1))]
    if len(wrong):
        raise ValueError(
            f"y should be +1 (the pair coincides) or -1; it holds {shown(wrong[0])}. "
            "For 0 and 1, give 2 * y - 1."
        )
    return coincide
