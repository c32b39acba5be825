"""Products with the data matrix, in row blocks: the only places that read all of X.

Rows are centred block by block, so that data far from the origin lose no digits and no
centred copy of X is ever made.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastmetric import engine

_BLOCK_VALUES = 2**17  # numbers of X in a block: it should stay in the cache


def _row_ranges(X: np.ndarray) -> list[slice]:
    """Return the row ranges of X, a function of its shape alone."""
    n, step = len(X), max(64, _BLOCK_VALUES // X.shape[1])
    return [slice(first, min(first + step, n)) for first in range(0, n, step)]


def _sum_of_blocks(
    task: Callable[[slice], np.ndarray], X: np.ndarray, n_jobs: int | None
) -> np.ndarray:
    """Return the float64 sum over the row ranges of X of what `task` makes of each, in order."""
    total: np.ndarray | None = None
    for part in engine.run(task, _row_ranges(X), n_jobs=n_jobs):
        total = part.astype(np.float64) if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def column_means(X: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
    """Return the mean of each column of X (n, D), in the precision of X."""
    total = _sum_of_blocks(lambda rows: X[rows].sum(axis=0, dtype=np.float64), X, n_jobs)
    return (total / len(X)).astype(X.dtype)


def column_deviations(X: np.ndarray, center: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
    """Return the standard deviation of each column (D,), float64; 0 for one that is constant.

    Constant is also what varies by rounding alone.
    """

    def task(rows: slice) -> np.ndarray:
        centred = np.subtract(X[rows], center, dtype=np.float64)
        return np.stack([centred.sum(axis=0), np.einsum("ij,ij->j", centred, centred)])

    # The centre is rounded, the more the more rows there are: what is left of it is taken off.
    offsets, squares = _sum_of_blocks(task, X, n_jobs) / len(X)
    deviations = np.sqrt(np.maximum(squares - offsets**2, 0))
    return beyond_rounding(deviations, center, X.dtype)


def beyond_rounding(deviations: np.ndarray, sizes: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return deviations (D,) of numbers of these sizes (D,), 0 where rounding explains them."""
    return np.where(deviations <= 8 * np.finfo(dtype).eps * np.abs(sizes), 0.0, deviations)


def project(
    X: np.ndarray, center: np.ndarray, A: np.ndarray, n_jobs: int | None = None
) -> np.ndarray:
    """Return (X - center) A^T, (n, d), in the precision of X."""
    Z = np.empty((len(X), len(A)), X.dtype)

    def task(rows: slice) -> None:
        np.matmul(X[rows] - center, A.T, out=Z[rows])

    for _ in engine.run(task, _row_ranges(X), n_jobs=n_jobs):
        pass
    return Z


def whitened(
    X: np.ndarray, center: np.ndarray, A: np.ndarray, n_jobs: int | None = None
) -> np.ndarray:
    """Return (X - center) A^T, (n, d), computed in float64, in the precision of X.

    For maps that blow up directions in which X hardly varies.
    """
    Z = np.empty((len(X), len(A)), X.dtype)

    def task(rows: slice) -> None:
        Z[rows] = np.subtract(X[rows], center, dtype=np.float64) @ A.T

    for _ in engine.run(task, _row_ranges(X), n_jobs=n_jobs):
        pass
    return Z


def cross_product(
    U: np.ndarray, X: np.ndarray, center: np.ndarray, n_jobs: int | None = None
) -> np.ndarray:
    """Return U^T (X - center), (d, D), for U (n, d)."""
    return _sum_of_blocks(lambda rows: U[rows].T @ (X[rows] - center), X, n_jobs)


def covariance(X: np.ndarray, center: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
    """Return the covariance (D, D) about `center`, divisor n."""

    def task(rows: slice) -> np.ndarray:
        centred = np.subtract(X[rows], center, dtype=np.float64)
        return centred.T @ centred

    return _sum_of_blocks(task, X, n_jobs) / len(X)


def class_means(
    X: np.ndarray,
    center: np.ndarray,
    order: np.ndarray,
    offsets: np.ndarray,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Return the means (C, D) about `center` of the classes X[order[offsets[c]:offsets[c + 1]]]."""
    sums = np.zeros((len(offsets) - 1, X.shape[1]))
    ranges = _row_ranges(X)

    def task(rows: slice) -> tuple[int, np.ndarray]:
        centred = np.subtract(X[order[rows]], center, dtype=np.float64)
        first = int(np.searchsorted(offsets, rows.start, side="right")) - 1
        last = int(np.searchsorted(offsets, rows.stop, side="left"))
        begins = np.maximum(offsets[first:last] - rows.start, 0)
        return first, np.add.reduceat(centred, begins, axis=0)

    for first, part in engine.run(task, ranges, n_jobs=n_jobs):
        sums[first : first + len(part)] += part
    return sums / np.diff(offsets)[:, None]
