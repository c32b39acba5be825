"""The nearest neighbours of every point among the others, exact, a block of points at a time."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fastmetric.core.tree.nearest_search import Search, nearest
from fastmetric.core.tree.product_candidates import nearest_by_differences, offer, sq_distances
from fastmetric.core.vector.panel_scan import UNIT
from fastmetric.core.vector.register_blocks import make_panels
from fastmetric.learn import costs
from fastmetric.learn.rows import ArrayRows, column_means
from fastmetric.learn.tree_building import build_tree

_COORDINATES = 8192  # of the queries in a block over the tree
_FLOPS = 1e10  # of a block by products, a fraction of a second
_COLUMNS = 512  # of a tile
_SPARE = 12  # candidates beyond the k neighbours


class Others(Protocol):
    """Finds neighbours among the other points."""

    def blocks(self, most: int) -> list[np.ndarray]:
        """Return the row numbers, cut into blocks that suit the search, of `most` at most."""

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """Return the row numbers (b, k) of the nearest others of each row."""


def others(X: np.ndarray, k: int, n_jobs: int | None = None) -> Others:
    """Return what finds the k nearest of the n - 1 others of each point of X (n, D), k < n."""
    n, n_features = X.shape
    if k == n - 1:
        return _AllOthers(n)
    return (_ByTree if n_features <= costs.TREE_DIMENSIONS else _ByProducts)(X, k, n_jobs)


def _cut(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Return the rows in blocks of `size`."""
    return [rows[first : first + size] for first in range(0, len(rows), size)]


class _AllOthers:
    """All other points, if all of them are neighbours."""

    def __init__(self, n: int) -> None:
        self._n = n

    def blocks(self, most: int) -> list[np.ndarray]:
        """Return a few rows at a time: each has many neighbours."""
        return _cut(np.arange(self._n), min(16, most))

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """Return all rows except the row itself."""
        before = np.arange(self._n - 1)[None, :]
        return before + (before >= rows[:, None])


class _ByTree:
    """A k-d tree, in few dimensions."""

    def __init__(self, X: np.ndarray, k: int, n_jobs: int | None) -> None:
        n, d = X.shape
        tree = build_tree(X, n_jobs=n_jobs)
        panels = make_panels(np.pad(tree.rows, ((0, -n % UNIT), (0, 0))), d, UNIT)
        self._X, self._k, self._search = X, k, Search(tree, panels)

    def blocks(self, most: int) -> list[np.ndarray]:
        """Return the rows in the order of the tree: neighbours together."""
        size = max(16, _COORDINATES // self._X.shape[1])
        return _cut(self._search.tree.order, min(size, most))

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """Return the k nearest others."""
        shape = (len(rows), self._k + 1)
        found = np.empty(shape, np.int64)
        nearest(
            self._search, self._X[rows], np.arange(len(rows)), np.empty(shape, self._X.dtype), found
        )
        other = found != rows[:, None]
        # A row with more duplicates than neighbours may not be among them itself.
        other[other.all(axis=1), -1] = False
        return found[other].reshape(len(rows), self._k)


class _ByProducts:
    """Distances by matrix products, certified by differences, in many dimensions."""

    def __init__(self, X: np.ndarray, k: int, n_jobs: int | None) -> None:
        self._X, self._k = X, k
        # One centred copy: centring anew for every block would take a good part of its time.
        self._centred = X - column_means(ArrayRows(X, n_jobs))
        self._norms = np.einsum("ij,ij->i", self._centred, self._centred)

    def blocks(self, most: int) -> list[np.ndarray]:
        """Return blocks that take a fraction of a second each."""
        n, n_features = self._X.shape
        size = int(np.clip(_FLOPS / (2 * n * n_features), 64, 512))
        return _cut(np.arange(n), min(size, most))

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """Return the k nearest others."""
        best, found = self._candidates(rows)
        sq_dist = sq_distances(self._X, rows, found)
        # By distance, then by number: the candidates come in the order of a heap.
        order = np.lexsort((found, sq_dist))[:, : self._k]
        farthest = np.take_along_axis(sq_dist, order[:, -1:], axis=1)[:, 0]
        found = np.take_along_axis(found, order, axis=1)
        # What is not a candidate is at least as far as the worst of them, up to rounding: twice
        # the bound of a product of D terms, of the norms and of their difference.
        n, n_features = self._X.shape
        eps, norms = np.finfo(self._X.dtype).eps, self._norms[rows].astype(np.float64)
        rounding = 4 * (n_features + 4) * eps * (norms + self._norms.max())
        doubtful = (farthest > best[:, 0] + norms - rounding) & (farthest > 0)
        if best.shape[1] < n - 1:
            for i in np.flatnonzero(doubtful):
                nearest_by_differences(self._X, rows[i], np.empty(self._k), found[i])
        return found

    def _candidates(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return heaps of the nearest others by products: |x_j|² - 2 x_i . x_j and j, (b, K)."""
        n = len(self._X)
        shape = (len(rows), min(self._k + _SPARE, n - 1))
        best, found = np.full(shape, np.inf, self._X.dtype), np.zeros(shape, np.int64)
        own = self._centred[rows]
        for first in range(0, n, _COLUMNS):
            columns = slice(first, min(first + _COLUMNS, n))
            offer(own @ self._centred[columns].T, self._norms[columns], rows, first, best, found)
        return best, found
