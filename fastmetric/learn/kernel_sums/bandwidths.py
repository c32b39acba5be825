"""Bandwidths: scalars, vectors and matrices as a metric, and the scalar of largest likelihood."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from fastmetric.learn.optim.scalar_search import search_on_grid
from fastmetric.learn.rows import ArrayRows, column_deviations, column_means

LEAST_LOO = 1e-6  # lower bound of "loo", in units of the largest range of a feature


class Metric(NamedTuple):
    """A bandwidth as a map of the points, followed by a scalar bandwidth h."""

    h: float
    log_scale: float  # the log of the volume of the unit cube scaled by the bandwidth
    map: np.ndarray | None = None  # None, a divisor per feature (D,), or a whitening map (D, D)
    center: np.ndarray | None = None

    def points(self, X: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
        """Return the points (n, D) whose Euclidean distances, over h, are the kernel's argument."""
        if self.map is None or self.center is None:
            return X
        with np.errstate(all="ignore"):  # overflow raises below
            A = self.map.astype(X.dtype)
            Z = (
                (X - self.center) / A
                if A.ndim == 1
                else ArrayRows(X, n_jobs).project(self.center, A)
            )
        if not np.isfinite(Z).all():
            raise ValueError(
                f"bandwidth is too small for these rows: divided by it, they leave {X.dtype}."
            )
        return Z

    def rows(self, Z: np.ndarray) -> np.ndarray:
        """Return the rows (n, D) whose points are Z: the inverse of `points`."""
        if self.map is None or self.center is None:
            return Z
        if self.map.ndim == 1:
            X = Z * self.map + self.center
        else:
            X = solve_triangular(self.map, Z.T, lower=True).T + self.center
        return X.astype(Z.dtype, copy=False)


def metric_of(bandwidth: Any, X: np.ndarray, n_jobs: int | None = None) -> Metric:
    """Return the metric of a number, a vector (D,) or a covariance (D, D) for points X (n, D)."""
    d = X.shape[1]
    if np.ndim(bandwidth) == 0:
        h = _number(bandwidth, X.dtype)
        return Metric(h, d * math.log(h))
    scale = _array(bandwidth, d)
    # Centred, so that rows far from the origin keep their digits in the map.
    center = column_means(ArrayRows(X, n_jobs))
    if scale.ndim == 1:
        return Metric(1.0, float(np.log(scale).sum()), scale, center)
    root = _root(scale)
    whiten = solve_triangular(root, np.eye(d), lower=True)
    return Metric(1.0, float(np.log(np.diag(root)).sum()), whiten, center)


def _number(bandwidth: Any, dtype: np.dtype) -> float:
    """Return a bandwidth h > 0 whose square and its inverse are numbers of `dtype`."""
    real = isinstance(bandwidth, numbers.Real | np.ndarray) and not isinstance(bandwidth, bool)
    if not real or not np.isfinite(bandwidth) or bandwidth <= 0:
        raise ValueError(
            "bandwidth should be a number > 0, one such number per feature, or a covariance "
            f"matrix; got {bandwidth!r}."
        )
    h, tiny = float(bandwidth), float(np.finfo(dtype).tiny)
    if not tiny <= h * h <= 1 / tiny:
        raise ValueError(f"bandwidth={h!r}: its square leaves {dtype}. Scale the features.")
    return h


def _array(bandwidth: Any, d: int) -> np.ndarray:
    """Return a bandwidth of shape (d,), all > 0, or (d, d), symmetric, as float64."""
    scale = np.array(bandwidth, dtype=np.float64)
    if scale.shape not in ((d,), (d, d)):
        raise ValueError(
            f"bandwidth has shape {scale.shape}; for {d} features a number, a vector of shape "
            f"({d},) or a covariance of shape ({d}, {d}) was expected."
        )
    if not np.isfinite(scale).all():
        raise ValueError("bandwidth holds NaN or infinity; finite numbers were expected.")
    if scale.ndim == 1 and scale.min() <= 0:
        raise ValueError(f"bandwidth should be positive for every feature; got {scale.min()}.")
    sizes = np.sqrt(np.abs(np.diag(scale)))
    if scale.ndim == 2 and np.any(np.abs(scale - scale.T) > 1e-8 * np.outer(sizes, sizes)):
        raise ValueError("bandwidth is a matrix, but not symmetric; a covariance was expected.")
    return scale


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor (D, D) of a covariance."""
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise ValueError(
            "bandwidth is a matrix, but not positive definite; a covariance of full rank was "
            "expected. Add a small multiple of the identity, or drop redundant features."
        ) from None


def gradient_bandwidth(X: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
    """Return widths (d,) that estimate the gradient of a density best if X (n, d) is normal.

    The width is 1 for a feature that is constant up to rounding.
    """
    n, d = X.shape
    rows = ArrayRows(X, n_jobs)
    deviations = column_deviations(rows, column_means(rows))
    widths = deviations * (4 / ((d + 4) * n)) ** (1 / (d + 6))
    return np.where(deviations == 0, 1.0, widths)


def loo_bandwidth(
    X: np.ndarray, weights: np.ndarray | None, log_sums: Callable[[float], np.ndarray]
) -> float:
    """Return the number h of largest leave-one-out likelihood of X (n, d), weights (n,).

    log_sums(h) returns the log sums (n,) of the kernels of width h, without each row's own kernel.
    """
    d = X.shape[1]
    counted = slice(None) if weights is None else weights > 0
    weights = None if weights is None else weights[counted]
    spread = float(np.ptp(X[counted], axis=0).max())
    if not spread > 0:
        raise ValueError(
            'bandwidth="loo" needs at least two different rows of positive weight, and these are '
            f"all equal (X has {len(X)} rows). Give a number."
        )

    def mean_log_likelihood(h: float) -> float:
        return float(np.average(log_sums(h)[counted], weights=weights)) - d * math.log(h)

    # Beyond the diameter, at most spread * sqrt(d), every kernel reaches every row.
    start, most = spread * len(X) ** (-1 / (d + 4)), 4 * spread * math.sqrt(d)
    h, at_the_end = search_on_grid(mean_log_likelihood, start, LEAST_LOO * spread, most)
    if at_the_end:
        warnings.warn(
            f'bandwidth="loo": the likelihood still rises at the lower bound {h:.3g}, '
            f"{LEAST_LOO:g} of the largest range of a feature: rows have duplicates. Merge them "
            "into sample_weight, or give a number.",
            stacklevel=4,
        )
    return h
