"""Checks of bandwidths given by users: a number, a vector or a covariance."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmetric._validate.arrays import numeric_array
from fastmetric._validate.parameters import real
from fastmetric._validate.wording import shown

_WANTED = "a number > 0, one such number per feature, or a covariance matrix"


def bandwidth(value: Any, X: np.ndarray) -> float | np.ndarray:
    """Return a bandwidth for rows X (n, D): a number, or a float64 copy of shape (D,) or (D, D).

    Numbers are positive and a matrix is symmetric; whether it is a covariance, its factors tell.
    """
    if value is None or isinstance(value, bool | str) or real(value) is not None:
        return _number(value, X.dtype)
    scale = numeric_array("bandwidth", value, _WANTED, copy=True, ensure_min_samples=0)
    if scale.ndim == 0:
        return _number(scale.item(), X.dtype)
    d = X.shape[1]
    if scale.shape not in ((d,), (d, d)):
        raise ValueError(
            f"bandwidth has shape {scale.shape}; for {d} features a number, a vector of shape "
            f"({d},) or a covariance of shape ({d}, {d}) was expected."
        )
    if scale.ndim == 1 and scale.min() <= 0:
        raise ValueError(f"bandwidth should be positive for every feature; got {scale.min()}.")
    sizes = np.sqrt(np.abs(np.diag(scale)))
    if scale.ndim == 2 and np.any(np.abs(scale - scale.T) > 1e-8 * np.outer(sizes, sizes)):
        raise ValueError("bandwidth is a matrix, but not symmetric; a covariance was expected.")
    return scale


def _number(value: Any, dtype: np.dtype) -> float:
    """Return a bandwidth h > 0 whose square and its inverse are numbers of `dtype`."""
    h, tiny = real(value), float(np.finfo(dtype).tiny)
    if h is None or not 0 < h < np.inf:
        raise ValueError(f"bandwidth should be {_WANTED}; got {shown(value)}.")
    if not tiny <= h * h <= 1 / tiny:
        raise ValueError(
            f"bandwidth={shown(value)} should have a square within the range of {dtype}. Scale the "
            "features."
        )
    return h
