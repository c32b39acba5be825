"""Bandwidths: scalars, vectors and matrices as a metric, and the scalar of largest likelihood."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from fastmetric.core.error_bounds import MapRounding
from fastmetric.learn.optim.scalar_search import search_on_grid
from fastmetric.learn.rows import ArrayRows, column_deviations, column_means

_SINGULAR = 1e6 * np.finfo(float).eps  # of the largest eigenvalue
_COARSEST, _USELESS = 0.3, 1e100
_WIDE_TO = 128
LEAST_LOO = 1e-6  # lower bound of "loo", in units of the largest range of a feature


class Metric(NamedTuple):
    """A bandwidth as a map of the points, followed by a scalar bandwidth h."""

    h: float
    log_scale: float  # the log of the volume of the unit cube scaled by the bandwidth
    map: np.ndarray | None = None  # None, a divisor per feature (D,), or a whitening map (D, D)
    center: np.ndarray | None = None
    rounding: MapRounding = MapRounding()  # of the map, and of the rows that it is applied to

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


def metric_of(bandwidth: float | np.ndarray, X: np.ndarray, n_jobs: int | None = None) -> Metric:
    """Return the metric of a number, a vector (D,) or a covariance (D, D) for points X (n, D)."""
    d = X.shape[1]
    if not isinstance(bandwidth, np.ndarray):
        return Metric(bandwidth, d * math.log(bandwidth))
    root = None if bandwidth.ndim == 1 else _root(bandwidth)  # raises before any row is read
    # Centred, so that rows far from the origin keep their digits in the map.
    center = column_means(ArrayRows(X, n_jobs))
    unit = float(np.finfo(X.dtype).eps) / 2
    if root is None:
        # The difference to the centre and the quotient are rounded; a divisor in float32, too.
        rounding = MapRounding(2.1 * unit, 1.1 * unit)
        return Metric(1.0, float(np.log(bandwidth).sum()), bandwidth, center, rounding)
    whiten = solve_triangular(root, np.eye(d), lower=True)
    rounding = _whitening_error(whiten, bandwidth, root, X.dtype)
    return Metric(1.0, float(np.log(np.diag(root)).sum()), whiten, center, rounding)


def _whitening_error(
    whiten: np.ndarray, covariance: np.ndarray, root: np.ndarray, dtype: np.dtype
) -> MapRounding:
    """Return the rounding of a whitening map A (D, D) of a covariance H, and of rows mapped by it.

    A H A^T = I + E, so that a squared distance |A v|^2 is v^T H^-1 v up to a factor 1 +- |E|. E is
    computed in the widest floats, beyond `_WIDE_TO` features, where these take seconds, in float64.
    The product of a row and A is off by (D + 2) units of |A| |x|,
    and |A| |x| <= |A| |H^1/2| |z|.
    """
    wide = np.longdouble if len(whiten) <= _WIDE_TO else np.float64
    A, lower = whiten.astype(dtype).astype(wide), np.tril(covariance)
    H = (lower + np.tril(lower, -1).T).astype(wide)
    off = np.abs(A @ H @ A.T - np.eye(len(A)))
    own = 2 * (len(A) + 2) * float(np.finfo(wide).eps) * (np.abs(A) @ np.abs(H) @ np.abs(A).T)
    error = float(np.linalg.norm((off + own).astype(np.float64)))
    condition = float(np.linalg.norm(np.abs(whiten) @ np.abs(root)))
    unit = float(np.finfo(dtype).eps) / 2
    # Beyond, the error of a distance is no longer at most that of its square.
    error = error if error < _COARSEST else _USELESS
    return MapRounding(1.01 * (len(A) + 2) * unit * condition, error)


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor (D, D) of a covariance."""
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        root = None
    if root is None or _numerically_singular(covariance):
        raise ValueError(
            "bandwidth is a matrix, but not positive definite, at least numerically; a covariance "
            "of full rank was expected. Add a small multiple of its diagonal, or drop redundant "
            "features."
        )
    return root


def _numerically_singular(covariance: np.ndarray) -> bool:
    """Return whether the least eigenvalue, in units of the diagonal, is at most rounding.

    SciPy's threshold for covariances of normal densities, in units in which features of different
    scales do not count as redundant.
    """
    sizes = np.sqrt(np.diag(covariance))
    values = np.linalg.eigvalsh(covariance / np.outer(sizes, sizes))
    return bool(values[0] <= _SINGULAR * values[-1])


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
