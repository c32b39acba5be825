"""Linear maps to start from: PCA, LDA, RCA, identity, random.

PCA and RCA come from the D x D moments, gathered in row blocks without a copy of the data (for
more features than rows, from an SVD of the rows); the same bits on any number of threads. RCA
of low rank whitens the scatter within classes and keeps the directions of largest total
scatter; as that is the within-class scatter plus the scatter between classes, these are LDA's
directions, and one function serves both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh, svd

from fastmetric import engine
from fastmetric.learn.rows import ArrayRows, Rows, class_means, column_means, covariance

NAMES = ("auto", "rca", "lda", "pca", "identity", "random")

# Within-class variances below this share of the largest are raised to it: a direction in
# which the classes hardly vary, or not at all (a constant feature), is noise to be left alone.
_FLOOR = 0.01


class _Moments(NamedTuple):
    """Second moments in an orthonormal basis of the data's span."""

    basis: np.ndarray | None  # (r, D); None: the features themselves
    total: np.ndarray  # (r, r), divisor n
    within: np.ndarray  # (r, r), divisor n


def start(
    name: str,
    d: int,
    X: Rows,
    y: np.ndarray,
    random_state: np.random.RandomState,
    price: float = 0.0,
) -> np.ndarray:
    """Return the start `name` (not "auto") as a map (d, D), float64.

    Of rows X (n, D) of class numbers y (n,), none missing. `price` is the cost of |A|^2 to a row:
    alpha / n.
    """
    n_features = X.shape[1]
    if name == "identity":
        return np.eye(d, n_features)
    if name == "random":
        return random_state.standard_normal((d, n_features))
    with engine.one_thread_blas():
        moments = _moments(X, y)
        A = _leading(moments.total, d) if name == "pca" else _whitened_leading(moments, d, price)
        if moments.basis is not None:
            A = A @ moments.basis
    return _signed(A)


def rca(X: Rows, y: np.ndarray, d: int) -> np.ndarray:
    """Return the start "rca" of rows X (n, D) of classes y (n,): d rows, or as many as it has."""
    numbers = np.unique(y, return_inverse=True)[1]
    return start("rca", min(d, *X.shape), X, numbers, np.random.RandomState(0))


def pca(X: Rows, d: int) -> np.ndarray:
    """Return the d leading principal directions of X (n, D), d <= min(n, D), as a map (d, D)."""
    center = column_means(X)
    with engine.one_thread_blas():
        if X.shape[1] > len(X):
            centred = np.subtract(X.resident(), center, dtype=np.float64)
            return _signed(svd(centred, full_matrices=False)[2][:d])
        return _signed(_leading(covariance(X, center), d))


def _signed(A: np.ndarray) -> np.ndarray:
    """Return the rows with their largest entry positive: an eigenvector's sign is arbitrary."""
    largest = np.take_along_axis(A, np.abs(A).argmax(axis=1)[:, None], axis=1)
    return A * np.where(largest < 0, -1.0, 1.0)


def _moments(X: Rows, y: np.ndarray) -> _Moments:
    """Return the moments of the data; for more features than rows, in the span of the rows."""
    center, basis = column_means(X), None
    if X.shape[1] > len(X):
        centred = np.subtract(X.resident(), center, dtype=np.float64)
        basis = svd(centred, full_matrices=False)[2]
        X, center = ArrayRows(centred @ basis.T, X.n_jobs), np.zeros(len(basis))
    total, means = covariance(X, center), class_means(X, y, center)
    within = total - (means.T * np.bincount(y)) @ means / len(X)
    return _Moments(basis, total, (within + within.T) / 2)


def _leading(symmetric: np.ndarray, d: int) -> np.ndarray:
    """Return the d leading eigenvectors as rows."""
    return eigh(symmetric)[1][:, ::-1][:, :d].T


def _whitened_leading(moments: _Moments, d: int, price: float) -> np.ndarray:
    """Return V_d^T S_W^(-1/2), V the leading eigenvectors of S_W^(-1/2) S_T S_W^(-1/2).

    In units in which every coordinate has total variance one. The price of |A|^2 counts as
    variance within classes: large weights on what hardly varies would be undone by the penalty.
    """
    units = np.sqrt(np.maximum(np.diag(moments.total), 0) + price)
    units[units <= np.finfo(np.float64).eps * units.max()] = 1.0  # it does not vary
    priced = moments.within + price * np.eye(len(units))
    total, within = (S / units / units[:, None] for S in (moments.total, priced))
    variances, directions = eigh(within)
    if variances[-1] <= 0:  # every row equals its class mean: only the total scatter is left
        variances, directions = eigh(total)
    floor = max(_FLOOR * variances[-1], np.finfo(np.float64).tiny)
    root = directions / np.sqrt(np.maximum(variances, floor)) @ directions.T
    return _leading(root @ total @ root, d) @ root / units
