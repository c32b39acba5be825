"""The NCA objective: the expected number of rows whose neighbour is of their own class.

Classic NCA, k(s) = exp(-s): P_i = own_i / (own_i + other_i), sums of k(s_ij) over j != i of
the own class and of the others; f(A) = sum P_i [CCK-2], [CCK-3] and its gradient [CCK-6].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from fastmetric import engine
from fastmetric.core import pairs
from fastmetric.core.blocks import row_blocks, symmetric_blocks
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.tiles import Points, add_pulls, make_points, no_pulls, pulled
from fastmetric.learn.forest import Forest
from fastmetric.learn.linear import column_means, cross_product, project

# A sum of unshifted kernels below this has lost digits to underflow: such a row is faint,
# and done relative to its nearest neighbour.
_FAINT = {np.dtype(np.float64): 1e-280, np.dtype(np.float32): 1e-28}

# Where "auto" looks at trees at all: rows, dimensions, and rows a class.
_TREES_FROM, _TREES_TO, _PER_CLASS = 5000, 12, 50

_PROBES = 48  # rows that are looked at before the way is chosen

Part = tuple[np.ndarray, ...]


class Evaluation(NamedTuple):
    """Value and gradient of the sum of P_i over the chosen rows."""

    value: float
    gradient: np.ndarray  # (d, D), float64
    error_bound: float = 0.0  # certified: how far the value is from the true one, but for rounding


class Objective:
    """NCA's objective on one data set: rows sorted by class once, evaluated at many A."""

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        n_jobs: int | None = None,
        *,
        method: str = "exact",
        rtol: float = 0.0,
    ) -> None:
        """Take the data X (n, D), a float array, and class numbers y (n,), 0-based.

        `method` is "exact", "tree", with class sums within `rtol`, or "auto", the faster one.
        """
        self.X, self.n_jobs, self.method, self.rtol = X, n_jobs, method, rtol
        self.center = column_means(X, n_jobs)
        self.order = np.argsort(y, kind="stable")
        self.offsets = np.concatenate([[0], np.cumsum(np.bincount(y))])
        sorted_y = y[self.order]
        self.starts, self.stops = self.offsets[sorted_y], self.offsets[sorted_y + 1]

    def project(self, A: np.ndarray) -> np.ndarray:
        """Return the centred, projected rows (n, d), sorted by class."""
        Z = project(self.X, self.center, A.astype(self.X.dtype), self.n_jobs)
        limit = np.sqrt(np.finfo(Z.dtype).max / (8 * Z.shape[1]))
        if not np.abs(Z).max() < limit:
            raise ValueError(
                f"The projected data reach beyond {limit:.1e}, where squared distances overflow "
                f"in {Z.dtype}. Scale the features or the transformation down."
            )
        return Z[self.order]

    def evaluate(
        self, A: np.ndarray, rows: np.ndarray | None = None, label: str | None = None
    ) -> Evaluation:
        """Return sum P_i over `rows` (all if None, repeats count) and its gradient at A (d, D)."""
        with engine.one_thread_blas():
            Z = self.project(A)
            error_bound = 0.0
            forest = self._forest(Z) if rows is None else None
            if forest is not None:
                value, U, error_bound = self._by_trees(forest, label)
            elif rows is None:
                value, U = self._all_rows(make_points(Z), label)
            else:
                points = make_points(Z)
                place = np.empty_like(self.order)
                place[self.order] = np.arange(len(place))
                chosen, counts = np.unique(place[rows], return_counts=True)
                value, U = self._some_rows(points, chosen, counts, label)
            unsorted = np.empty_like(U, dtype=self.X.dtype)
            unsorted[self.order] = 2 * U
            gradient = cross_product(unsorted, self.X, self.center, self.n_jobs)
        return Evaluation(value, gradient, error_bound)

    def _forest(self, Z: np.ndarray) -> Forest | None:
        """Return the trees to sum over, None for all pairs; "auto" goes by sizes and counts."""
        n, d = Z.shape
        small = n < _TREES_FROM or d > _TREES_TO or n < _PER_CLASS * (len(self.offsets) - 1)
        if self.method == "exact" or (self.method == "auto" and small):
            return None
        forest = Forest(Z, self.offsets, self.n_jobs)
        return forest if self.method == "tree" or forest.pays(self.rtol) else None

    def _by_trees(self, forest: Forest, label: str | None) -> tuple[float, np.ndarray, float]:
        """Return sum P_i over all rows, U (n, d), and the certified error of the sum."""
        own, other = forest.log_sums(self.rtol, label)
        p_own, p_other = expit(own[0] - other[0]), expit(other[0] - own[0])
        # P is largest with the own class at its upper and the others at their lower bound.
        lowest, highest = expit(own[1] - other[2]), expit(own[2] - other[1])
        error_bound = float(np.maximum(p_own - lowest, highest - p_own).sum())
        log_total = np.logaddexp(own[0], other[0])
        U = forest.scatter(log_total, -p_other, p_own, label)
        return float(p_own.sum()), U, error_bound

    def _all_rows(self, points: Points, label: str | None) -> tuple[float, np.ndarray]:
        """Return sum P_i over all rows and U (n, d) [CCK-6]: symmetric blocks, faint rows apart."""
        n, d = points.size, points.panels.shape[1]
        if self._mostly_faint(points):
            return self._some_rows(points, np.arange(n), np.ones(n), label)
        blocks = symmetric_blocks(n, d)
        own, other = self._symmetric_sums(points, blocks, label)
        total = own + other
        bright = total >= _FAINT[points.rows.dtype]
        total[~bright] = np.inf  # faint rows pull nothing here
        p_own, p_other = own / total, other / total
        other_pull = (p_own / total).astype(points.rows.dtype)
        own_pull = -(p_other / total).astype(points.rows.dtype)

        def scatter(block: pairs.Block) -> Part:
            return pairs.symmetric_scatter(
                points, self.starts, self.stops, own_pull, other_pull, block, GAUSSIAN
            )

        pulls = no_pulls(n, points)
        for block, (to_i, to_j) in self._run(scatter, blocks, label):
            add_pulls(pulls, to_i, slice(block.i0, block.i1))
            add_pulls(pulls, to_j, slice(block.j0, block.j1))
        value, U = float(p_own.sum()), pulled(pulls, points)
        faint = np.flatnonzero(~bright)
        if faint.size:
            faint_value, faint_U = self._some_rows(points, faint, np.ones(faint.size), label)
            value, U = value + faint_value, U + faint_U
        return value, U

    def _symmetric_sums(
        self, points: Points, blocks: Sequence[pairs.Block], label: str | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the unshifted sums of all rows over their own class and over the others."""

        def sums(block: pairs.Block) -> Part:
            return pairs.symmetric_sums(points, self.starts, self.stops, block, GAUSSIAN)

        own, other = np.zeros(points.size), np.zeros(points.size)
        for block, (own_i, other_i, own_j, other_j) in self._run(sums, blocks, label):
            own[block.i0 : block.i1] += own_i
            other[block.i0 : block.i1] += other_i
            own[block.j0 : block.j1] += own_j
            other[block.j0 : block.j1] += other_j
        return own, other

    def _mostly_faint(self, points: Points) -> bool:
        """Return whether most of a few rows are faint: then symmetric blocks are a detour."""
        chosen = np.arange(0, points.size, max(1, points.size // _PROBES))
        log_own, log_other = self._log_sums(points, chosen, None)
        log_faint = np.log(_FAINT[points.rows.dtype])
        return bool(np.median(np.logaddexp(log_own, log_other)) < log_faint)

    def _some_rows(
        self, points: Points, chosen: np.ndarray, counts: np.ndarray, label: str | None
    ) -> tuple[float, np.ndarray]:
        """Return sum counts_i P_i over the rows `chosen` (distinct, sorted) and U (n, d)."""
        n, d, dtype = points.size, points.panels.shape[1], points.rows.dtype
        blocks = row_blocks(len(chosen), n, d)
        log_own, log_other = self._log_sums(points, chosen, label)
        log_total = np.logaddexp(log_own, log_other).astype(dtype)
        p_own = counts * expit(log_own - log_other)
        other_pull = p_own.astype(dtype)
        own_pull = -(counts * expit(log_other - log_own)).astype(dtype)
        query, where = self._as_query(points, chosen)

        def scatter(block: pairs.Block) -> Part:
            return pairs.row_scatter(query, points, where, log_total, own_pull, other_pull, block)

        pulls = no_pulls(n, points)
        for block, (to_i, to_j) in self._run(scatter, blocks, label):
            add_pulls(pulls, to_i, chosen[block.i0 : block.i1])
            add_pulls(pulls, to_j, slice(block.j0, block.j1))
        return float(p_own.sum()), pulled(pulls, points)

    def _log_sums(
        self, points: Points, chosen: np.ndarray, label: str | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the logs of the sums of the rows `chosen` over their own class and the others."""
        query, where = self._as_query(points, chosen)
        blocks = row_blocks(len(chosen), points.size, points.panels.shape[1])

        def sums(block: pairs.Block) -> Part:
            return pairs.row_log_sums(query, points, where, block)

        log_own, log_other = np.full(len(chosen), -np.inf), np.full(len(chosen), -np.inf)
        for block, (own, other) in self._run(sums, blocks, label):
            rows = slice(block.i0, block.i1)
            log_own[rows] = np.logaddexp(log_own[rows], own)
            log_other[rows] = np.logaddexp(log_other[rows], other)
        return log_own, log_other

    def _as_query(self, points: Points, chosen: np.ndarray) -> tuple[Points, pairs.Neighbours]:
        """Return the rows `chosen` as points of their own, and where they stand."""
        query = make_points(points.rows[chosen, : points.panels.shape[1]], points.products)
        return query, pairs.Neighbours(self.starts[chosen], self.stops[chosen], chosen)

    def _run(
        self,
        task: Callable[[pairs.Block], Part],
        blocks: Sequence[pairs.Block],
        label: str | None,
    ) -> Iterator[tuple[pairs.Block, Any]]:
        """Yield every block with its partial result, in order."""
        return zip(blocks, engine.run(task, blocks, n_jobs=self.n_jobs, label=label), strict=True)
