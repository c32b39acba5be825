"""Targets, impostors (rows of other classes nearer than a row's farthest target), the active set.

Only rows that have, or once had, impostors are learnt from, and of rows of other classes only
those that are, or once were, impostors.
"""

from __future__ import annotations

import numpy as np

from fastmetric import engine
from fastmetric.core.pairs.dense_pairs import Block
from fastmetric.core.pairs.labelled_pairs import (
    FoundPairs,
    LabelledRows,
    Pairs,
    ProductTile,
    impostors_of_tile,
    offer_to_heaps,
)
from fastmetric.core.pairs.partition import symmetric_blocks
from fastmetric.learn.coincidence.likelihood import make_pairs
from fastmetric.learn.nearest_neighbours import others
from fastmetric.learn.rows import Rows

_TIES = 1e-6  # rows at the distance of the farthest target, up to rounding, are also impostors
_MOST = 100  # impostors of a row in one search: outliers in small classes have all rows
_LOOK = 250  # cost of a pair besides its product, in dimensions: it keeps tiles short


def target_neighbors(X: Rows, y: np.ndarray, k: int) -> np.ndarray:
    """Return pairs (2, m) of each row of X (n, D) with its k nearest of the same class y (n,).

    A row of a smaller class is paired with all others of its class.
    """
    pairs = [np.empty((2, 0), np.int32)]
    for label in np.unique(y):
        members = np.flatnonzero(y == label).astype(np.int32)
        most = min(k, len(members) - 1)
        if most:
            rows = np.ascontiguousarray(X.take(members))
            targets = members[nearest_others(rows, most, X.n_jobs)]
            pairs.append(np.stack([np.repeat(members, most), targets.ravel()]))
    return np.concatenate(pairs, axis=1)


def nearest_others(points: np.ndarray, k: int, n_jobs: int | None = None) -> np.ndarray:
    """Return the row numbers (n, k) of the nearest others of each of the points (n, D)."""
    search = others(points, k, n_jobs)
    blocks = search.blocks(len(points))
    found = np.empty((len(points), k), np.int64)
    parts = engine.run(search.nearest, blocks, n_jobs=n_jobs)
    for rows, part in zip(blocks, parts, strict=True):
        found[rows] = part
    return found


def find_impostors(
    Z: np.ndarray, y: np.ndarray, reach: np.ndarray, n_jobs: int | None
) -> np.ndarray:
    """Return pairs (2, m) of rows i, j of Z (n, p) with |z_i - z_j|^2 < reach[i], y[i] != y[j].

    Of a row with more than _MOST impostors, only the nearest are returned. A later search finds
    the rest, when the map has moved the nearest away.
    """
    n, p = Z.shape
    norms = np.einsum("ij,ij->i", Z, Z)
    slack = 4 * (p + 4) * np.finfo(Z.dtype).eps  # of the product form of a distance
    reach = reach.copy()
    best, others = np.full((n, min(n, _MOST)), np.inf), np.empty((n, min(n, _MOST)), np.int32)

    def task(block: Block) -> tuple[np.ndarray, np.ndarray]:
        rows, cols = Z[block.i0 : block.i1], Z[block.j0 : block.j1]
        products = rows @ cols.T
        found = FoundPairs(np.empty((2, 2 * products.size), np.int32), np.empty(2 * products.size))
        tile = ProductTile(products, block.i0, block.j0)
        count = impostors_of_tile(LabelledRows(Z, norms, y, reach), slack, tile, found)
        return found.rows[:, :count].copy(), found.squares[:count].copy()

    # The reach of a row decreases while tiles are computed. The result does not depend on which
    # tiles use the smaller reach: a pair beyond it is not among the nearest.
    for found, squares in engine.run(task, symmetric_blocks(n, p + _LOOK), n_jobs=n_jobs):
        offer_to_heaps(found, squares, best, others, reach)
    firsts, places = np.nonzero(best < np.inf)
    return np.stack([firsts.astype(np.int32), others[firsts, places]])


class ActiveSet:
    """The pairs that are learnt from: a row with its targets and with all impostors so far."""

    def __init__(self, y: np.ndarray, targets: np.ndarray, n_jobs: int | None) -> None:
        """Take the class numbers (n,) and pairs (2, m) of rows with their target neighbours."""
        self.y, self.targets, self.n_jobs = y, targets, n_jobs
        self._known = np.empty(0, np.int64)  # i * n + j, sorted
        self.active = np.zeros(len(y), bool)

    @property
    def n_impostors(self) -> int:
        """Return the number of pairs with impostors."""
        return len(self._known)

    def reach(self, Z: np.ndarray) -> np.ndarray:
        """Return the squared distance to the farthest target of each row, 0 without targets."""
        firsts, seconds = self.targets
        gaps = Z[firsts] - Z[seconds]
        reach = np.zeros(len(Z))
        np.maximum.at(reach, firsts, np.einsum("ij,ij->i", gaps, gaps, dtype=np.float64))
        return reach

    def refresh(self, Z: np.ndarray, reach: np.ndarray) -> int:
        """Add the impostors under a map; return the number of new ones."""
        n, before = len(Z), self.n_impostors
        firsts, seconds = find_impostors(Z, self.y, (1 + _TIES) * reach, self.n_jobs)
        self._known = np.union1d(self._known, firsts.astype(np.int64) * n + seconds)
        self.active[firsts] = True
        return self.n_impostors - before

    def pairs(self) -> Pairs:
        """Return the pairs of all active rows: targets coincide, impostors do not."""
        n = len(self.y)
        targets = self.targets[:, self.active[self.targets[0]]]
        impostors = np.stack(np.divmod(self._known, n)).astype(np.int32)
        firsts, seconds = np.concatenate([targets, impostors], axis=1)
        coincide = np.arange(len(firsts)) < targets.shape[1]
        return make_pairs(n, firsts, seconds, coincide)
