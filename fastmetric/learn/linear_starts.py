"""Where the search for A begins: PCA, LDA, RCA, identity, random, or an array.

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
from fastmetric.learn.kernel_sums.kernel_table import KERNELS
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.rows import class_means, column_means, covariance

NAMES = ("auto", "rca", "lda", "pca", "identity", "random")

# Within-class variances below this share of the largest are raised to it: a direction in
# which the classes hardly vary, or not at all (a constant feature), is noise to be left alone.
_FLOOR = 0.01

_WIDER = 3.0  # kernels to begin with, for steps by batches

# Rows that are looked at to see whether a compact kernel reaches their neighbours; and the
# neighbours that it should reach.
_PROBES, _NEIGHBOURS = 64, 10


class _Moments(NamedTuple):
    """Second moments in an orthonormal basis of the data's span."""

    basis: np.ndarray | None  # (r, D); None: the features themselves
    total: np.ndarray  # (r, r), divisor n
    within: np.ndarray  # (r, r), divisor n


def resolve(name: str, d: int, n_features: int, n_samples: int, n_classes: int) -> str:
    """Return what "auto" stands for, as in scikit-learn; other names unchanged."""
    if name == "lda" and d > n_classes - 1:
        raise ValueError(
            f"init='lda' gives at most n_classes - 1 = {n_classes - 1} directions; n_components is "
            f"{d}. Choose init='rca' or 'pca', or fewer components."
        )
    if name == "pca" and d > min(n_features, n_samples):
        raise ValueError(
            f"init='pca' gives at most min(n_samples, n_features) = {min(n_features, n_samples)} "
            f"directions; n_components is {d}. Choose init='identity' or fewer components."
        )
    if name != "auto":
        return name
    if d <= min(n_features, n_classes - 1):
        return "lda"
    return "pca" if d < min(n_features, n_samples) else "identity"


def start(
    name: str,
    d: int,
    problem: Objective,
    random_state: np.random.RandomState,
    price: float = 0.0,
) -> np.ndarray:
    """Return the start `name` (not "auto") as a map (d, D), float64.

    `price` is what |A|^2 costs a row: alpha / n.
    """
    n_features = problem.X.shape[1]
    if name == "identity":
        return np.eye(d, n_features)
    if name == "random":
        return random_state.standard_normal((d, n_features))
    with engine.one_thread_blas():
        moments = _moments(problem)
        A = _leading(moments.total, d) if name == "pca" else _whitened_leading(moments, d, price)
        if moments.basis is not None:
            A = A @ moments.basis
    return _signed(A)


def rca(X: np.ndarray, y: np.ndarray, d: int, n_jobs: int | None) -> np.ndarray:
    """Return the start "rca" of rows X (n, D) of classes y (n,): d rows, or as many as it has."""
    problem = Objective(X, np.unique(y, return_inverse=True)[1], n_jobs)
    return start("rca", min(d, *X.shape), problem, np.random.RandomState(0))


def pca(X: np.ndarray, d: int, n_jobs: int | None) -> np.ndarray:
    """Return the d leading principal directions of X (n, D), d <= min(n, D), as a map (d, D)."""
    center = column_means(X, n_jobs)
    with engine.one_thread_blas():
        if X.shape[1] > len(X):
            return _signed(
                svd(np.subtract(X, center, dtype=np.float64), full_matrices=False)[2][:d]
            )
        return _signed(_leading(covariance(X, center, n_jobs), d))


def _signed(A: np.ndarray) -> np.ndarray:
    """Return the rows with their largest entry positive: an eigenvector's sign is arbitrary."""
    largest = np.take_along_axis(A, np.abs(A).argmax(axis=1)[:, None], axis=1)
    return A * np.where(largest < 0, -1.0, 1.0)


def _moments(problem: Objective) -> _Moments:
    """Return the moments of the data; for more features than rows, in the span of the rows."""
    X, center, n_jobs = problem.X, problem.center, problem.n_jobs
    basis = None
    if X.shape[1] > len(X):
        rows = np.subtract(X, center, dtype=np.float64)
        basis = svd(rows, full_matrices=False)[2]
        X, center = rows @ basis.T, np.zeros(len(basis))
    total = covariance(X, center, n_jobs)
    means = class_means(X, center, problem.order, problem.classes.offsets, n_jobs)
    within = total - (means.T * problem.classes.sizes) @ means / len(X)
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


def adapted(A: np.ndarray, kernel: str, in_batches: bool) -> np.ndarray:
    """Return a start scaled to the kernel and to the solver.

    The biweight kernel's variance in every coordinate is made that of exp(-s), 1/2.
    Steps by batches only ever raise the scale, by their noise if by nothing else: they begin with
    kernels three times as wide.
    """
    if kernel == "biweight":
        A = A * np.sqrt(2 * KERNELS[kernel].variance(len(A)))
    return A / _WIDER if in_batches else A


def within_reach(A: np.ndarray, problem: Objective) -> np.ndarray:
    """Return the map, scaled down if it leaves most rows beyond a compact kernel's reach of all.

    Rows without neighbours teach nothing. The map is then scaled so that the median row reaches
    its k-th neighbour, k a hundredth of all rows, ten at least.
    """
    Z = problem.project(A).astype(np.float64)
    n = len(Z)
    k = min(n - 1, max(_NEIGHBOURS, n // 100))
    rows = np.arange(0, n, max(1, n // _PROBES))
    squares = np.empty((len(rows), 2))  # to the nearest other row, and to the k-th
    for at, i in enumerate(rows):
        gaps = Z - Z[i]
        sq = np.einsum("ij,ij->i", gaps, gaps)
        sq[i] = np.inf
        squares[at] = np.partition(sq, (0, k - 1))[[0, k - 1]]
    nearest, kth = np.median(squares, axis=0)
    if nearest < 1:
        return A
    return A / np.sqrt(kth)
