"""Rows of data, wherever they lie: the only access to the data matrix X of a fit.

A fit asks for blocks of rows, for chosen rows, or for sums over all of them. What gives blocks and
chosen rows has all else by default, with the same bits: the ranges of rows depend on the shape
alone, and parts are added in their order. Rows are centred block by block, so that data far from
the origin lose no digits and no centred copy of X is made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from fastmetric import engine

_BLOCK_VALUES = 2**17  # numbers of X in a block: it should stay in the cache
_FEWEST = 64  # rows of a block
_MEAN_ROWS = 4096  # rows of a block in the second pass of a mean


class Rows(Protocol):
    """n rows of D numbers, float32 or float64; the arrays returned are read only.

    An implementation sets the attributes and gives `block` and `take`. It may replace another
    method by a faster one.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    n_jobs: int | None  # threads of the loops over blocks

    @abstractmethod
    def block(self, rows: slice) -> np.ndarray:
        """Return the rows of a range, (m, D), in C order and aligned."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of these numbers (m,), in any order and repeated, or of a mask (n,)."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def ranges(self) -> list[slice]:
        """Return the ranges of rows that sums are taken over, a function of the shape alone."""
        return engine.ranges(len(self), max(_FEWEST, _BLOCK_VALUES // self.shape[1]))

    def resident(self) -> np.ndarray:
        """Return all rows in memory, (n, D), for what needs the points themselves."""
        return np.concatenate([self.block(rows) for rows in self.ranges()])

    def subset(self, rows: np.ndarray) -> Rows:
        """Return the rows of these numbers (m,), or of a mask (n,), in memory."""
        return ArrayRows(self.take(rows), self.n_jobs)

    def project(self, center: np.ndarray, A: np.ndarray, precise: bool = False) -> np.ndarray:
        """Return (X - center) A^T, (n, d), in the precision of X.

        `precise` computes in float64: for maps that inflate directions in which X hardly varies.
        """
        Z = np.empty((len(self), len(A)), self.dtype)

        def in_own_precision(rows: slice) -> None:
            np.matmul(self.block(rows) - center, A.T, out=Z[rows])

        def in_float64(rows: slice) -> None:
            Z[rows] = self._centred(rows, center) @ A.T

        task = in_float64 if precise else in_own_precision
        engine.for_each(task, self.ranges(), n_jobs=self.n_jobs)
        return Z

    def cross(self, U: np.ndarray, center: np.ndarray) -> np.ndarray:
        """Return U^T (X - center), (d, D), float64, for U (n, d)."""
        return self._sum(lambda rows: U[rows].T @ (self.block(rows) - center), self.ranges())

    def sums(self) -> np.ndarray:
        """Return the sum of each column, (D,), float64."""
        return self._sum(lambda rows: self.block(rows).sum(axis=0, dtype=np.float64), self.ranges())

    def offset_sums(self, center: np.ndarray) -> np.ndarray:
        """Return the sums of X - center, (D,), float64."""
        # These ranges are not those of the other sums: means would have other last bits.
        ranges = engine.ranges(len(self), _MEAN_ROWS)
        return self._sum(lambda rows: self._centred(rows, center).sum(axis=0), ranges)

    def square_sums(self, center: np.ndarray) -> np.ndarray:
        """Return the sums of X - center and of its squares, (2, D), float64."""

        def task(rows: slice) -> np.ndarray:
            centred = self._centred(rows, center)
            return np.stack([centred.sum(axis=0), np.einsum("ij,ij->j", centred, centred)])

        return self._sum(task, self.ranges())

    def norms(self, center: np.ndarray) -> np.ndarray:
        """Return the norms of the rows of X - center, (n,), float64."""
        norms = np.empty(len(self))

        def task(rows: slice) -> None:
            norms[rows] = np.linalg.norm(self._centred(rows, center), axis=1)

        engine.for_each(task, self.ranges(), n_jobs=self.n_jobs)
        return norms

    def moments(self, center: np.ndarray) -> np.ndarray:
        """Return (X - center)^T (X - center), (D, D), float64."""

        def task(rows: slice) -> np.ndarray:
            centred = self._centred(rows, center)
            return centred.T @ centred

        return self._sum(task, self.ranges())

    def class_sums(self, y: np.ndarray, center: np.ndarray, C: int) -> np.ndarray:
        """Return the sums of X - center over each of C classes, (C, D), for class numbers y (n,).

        Rows are taken in the order of the classes, those of a class one after another.
        """
        sums, order = np.zeros((C, self.shape[1])), np.argsort(y, kind="stable")
        sizes = np.bincount(y, minlength=C)
        present = np.flatnonzero(sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes[present])])

        def task(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            centred = np.subtract(self.take(order[rows]), center, dtype=np.float64)
            first = int(np.searchsorted(offsets, rows.start, side="right")) - 1
            last = int(np.searchsorted(offsets, rows.stop, side="left"))
            begins = np.maximum(offsets[first:last] - rows.start, 0)
            return present[first:last], np.add.reduceat(centred, begins, axis=0)

        for classes, part in engine.run(task, self.ranges(), n_jobs=self.n_jobs):
            sums[classes] += part
        return sums

    def _centred(self, rows: slice, center: np.ndarray) -> np.ndarray:
        """Return the rows of a range minus `center`, (m, D), float64."""
        return np.subtract(self.block(rows), center, dtype=np.float64)

    def _sum(self, task: Callable[[slice], np.ndarray], ranges: Sequence[slice]) -> np.ndarray:
        """Return the float64 sum of what `task` makes of each range of rows, in their order."""
        total: np.ndarray | None = None
        for part in engine.run(task, ranges, n_jobs=self.n_jobs):
            total = part.astype(np.float64) if total is None else np.add(total, part, out=total)
        assert total is not None
        return total


class ArrayRows(Rows):
    """The rows of an array X (n, D) in memory, which is not copied."""

    def __init__(self, X: np.ndarray, n_jobs: int | None = None) -> None:
        self._X, self.shape, self.dtype, self.n_jobs = X, X.shape, X.dtype, n_jobs

    def block(self, rows: slice) -> np.ndarray:
        """Return a view of the rows of a range, (m, D)."""
        return self._X[rows]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of the rows of these numbers (m,) or of a mask (n,)."""
        return self._X[rows]

    def resident(self) -> np.ndarray:
        """Return the array itself."""
        return self._X


def as_rows(X: np.ndarray, n_jobs: int | None = None) -> Rows:
    """Return the rows of what a user gave, checked: the one place where their kind is decided."""
    return ArrayRows(X, n_jobs)


def column_means(X: Rows) -> np.ndarray:
    """Return the mean of each column of X (n, D), in the precision of X."""
    return (X.sums() / len(X)).astype(X.dtype)


def column_deviations(X: Rows, center: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each column (D,), float64; 0 for one that is constant.

    Constant is also what varies by rounding alone.
    """
    # The centre is rounded, the more the more rows there are: what is left of it is taken off.
    offsets, squares = X.square_sums(center) / len(X)
    deviations = np.sqrt(np.maximum(squares - offsets**2, 0))
    return beyond_rounding(deviations, center, X.dtype)


def beyond_rounding(deviations: np.ndarray, sizes: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return deviations (D,) of numbers of these sizes (D,), 0 where rounding explains them."""
    return np.where(deviations <= 8 * np.finfo(dtype).eps * np.abs(sizes), 0.0, deviations)


def covariance(X: Rows, center: np.ndarray) -> np.ndarray:
    """Return the covariance (D, D) about `center`, divisor n."""
    return X.moments(center) / len(X)


def mean_and_covariance(X: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (D,) and the covariance (D, D), divisor n, in float64.

    Features that are constant have a variance of exactly 0.
    """
    center = column_means(X)
    mean = center + X.offset_sums(center) / len(X)
    cov = covariance(X, mean)
    if not np.isfinite(cov).all():
        raise ValueError("The variances of X overflow float64. Scale the features down.")
    constant = np.sqrt(np.diag(cov)) <= 8 * np.finfo(X.dtype).eps * np.abs(mean)
    cov[constant] = 0
    cov[:, constant] = 0
    return mean, cov


def class_means(X: Rows, y: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return the means (C, D) about `center` of the classes of numbers y (n,), none missing."""
    sizes = np.bincount(y)
    return X.class_sums(y, center, len(sizes)) / sizes[:, None]


def cross_product(
    U: np.ndarray, points: np.ndarray, center: np.ndarray, n_jobs: int | None = None
) -> np.ndarray:
    """Return U^T (points - center), (d, D), for U (n, d) and points (n, D) in memory."""
    return ArrayRows(points, n_jobs).cross(U, center)
