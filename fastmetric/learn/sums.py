"""Sums of kernels over weighted points, in logs, with a certificate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core import sums
from fastmetric.core.expansion import make_series
from fastmetric.core.kernels import CODES, GAUSSIAN, has_tails
from fastmetric.core.nodes import Nodes, empty_nodes, summarise
from fastmetric.core.registers import make_panels, panel_width
from fastmetric.core.tiles import ALIGN
from fastmetric.core.tree import Tree
from fastmetric.learn.trees import build_tree

KERNELS = tuple(CODES)
METHODS = ("auto", "exact", "tree")

# A shifted or unshifted sum below this has lost terms to underflow.
_FAINT = {np.dtype(np.float64): 1e-250, np.dtype(np.float32): 1e-25}
_GROUPS = 16  # of queries in a task
_NODES = 500  # in a task


class LogSums(NamedTuple):
    """Log sums of the queries (m,), with certified bounds of the true ones; float64."""

    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class KernelSums:
    """The sums sum_j w_j k(|q - x_j|^2 / h^2) over fixed points x_j, for many queries q.

    The Gaussian is exp(-|q - x_j|^2 / (2 h^2)).
    """

    def __init__(
        self,
        X: np.ndarray,
        weights: np.ndarray | None = None,
        *,
        kernel: str = "gaussian",
        bandwidth: float = 1.0,
        leaf_size: int = 48,
        n_jobs: int | None = None,
    ) -> None:
        """Take the points X (n, d), a float array, and weights (n,) >= 0, some > 0."""
        self.X, self.n_jobs = X, n_jobs
        self.code, self.bandwidth = CODES[kernel], float(bandwidth)
        self.factor = (0.5 if self.code == GAUSSIAN else 1.0) / self.bandwidth**2
        weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
        self.kept = np.flatnonzero(weights > 0)
        self.log_unit = float(np.log(weights.max()))
        tree = build_tree(X[self.kept], min(leaf_size, sums.LONGEST), n_jobs)
        self.reference = self._summarise(tree, (weights[self.kept] / weights.max())[tree.order])

    def _summarise(self, tree: Tree, weights: np.ndarray) -> sums.Reference:
        """Return the tree with what the sums need."""
        n, d = tree.rows.shape
        rows = np.zeros((n + -n % ALIGN, d), tree.rows.dtype)
        rows[:n] = tree.rows
        panels = make_panels(rows, d, panel_width(rows.dtype))
        series = make_series(d)
        count = len(series.indices) if self.code == GAUSSIAN else 0
        nodes = empty_nodes(len(tree.starts), d, count)
        inverse_h = 1 / self.bandwidth

        def task(part: tuple[int, int]) -> None:
            summarise(tree, weights, series, inverse_h, nodes, *part)

        for level in reversed(_levels(tree)):
            cuts = [*range(level.start, level.stop, _NODES), level.stop]
            for _ in engine.run(task, list(zip(cuts, cuts[1:])), n_jobs=self.n_jobs):
                pass
        return sums.Reference(tree, panels, weights, nodes, series)

    def log_sums(
        self,
        query: np.ndarray | None = None,
        *,
        rtol: float = 0.0,
        atol: float = 0.0,
        method: str = "auto",
        label: str | None = None,
    ) -> LogSums:
        """Return the log sums of `query` (m, d); None: of the points, each left out of its own.

        Each sum is within rtol times the truth plus `atol` of it, and rounding.
        """
        order, queries = self._queries(query)
        exact = self._is_exact(method, len(order))
        # Without a tolerance, as much is left out as rounding loses anyway.
        rtol = max(rtol, np.finfo(self.X.dtype).eps / 2)
        rule = sums.Rule(self.code, self.factor, rtol, atol / np.exp(self.log_unit))
        total, error = self._sum(queries, rule, exact, label)
        shift = np.zeros(len(total))
        if has_tails(self.code):
            faint = np.flatnonzero(total < _FAINT[self.X.dtype])
            if faint.size and rule.atol < _FAINT[self.X.dtype]:
                total[faint], error[faint], shift[faint] = self._sum_faint(
                    queries, faint, rule, exact, label
                )
        return self._logs(order, total, error, shift)

    def _logs(
        self, order: np.ndarray, total: np.ndarray, error: np.ndarray, shift: np.ndarray
    ) -> LogSums:
        """Return logs and bounds in the caller's order."""
        n, d = self.reference.tree.rows.shape
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.stack([total, np.maximum(total - error, 0), total + error]))
            logs += self.log_unit - shift
        out = np.empty_like(logs)
        out[:, order] = logs
        size = np.where(np.isfinite(out[0]), np.abs(out[0]), 0) + d + np.log2(n + 1)
        rounding = 8 * np.finfo(self.X.dtype).eps * size
        return LogSums(out[0], out[1] - rounding, out[2] + rounding)

    def _is_exact(self, method: str, m: int) -> bool:
        """Return whether all pairs are summed: a choice by sizes alone."""
        if method == "auto":
            n, d = self.reference.tree.rows.shape
            return n < 1000 or d > 30
        return method == "exact"

    def _queries(self, query: np.ndarray | None) -> tuple[np.ndarray, sums.Queries]:
        """Return the queries, grouped, and the caller's row of each."""
        tree, whole = self.reference.tree, len(self.kept) == len(self.X)
        points = self.X if query is None else query.astype(self.X.dtype, copy=False)
        if whole and (query is None or np.array_equal(points, self.X)):
            own = tree
        else:
            own = build_tree(points, sums.GROUP, self.n_jobs)
        if query is not None:
            selves = np.full(len(points), -1)
        elif whole:
            selves = np.arange(len(points))
        else:
            place = np.full(len(points), -1)
            place[self.kept[tree.order]] = np.arange(len(self.kept))
            selves = place[own.order]
        starts, stops = _leaf_ranges(own)
        return own.order, sums.Queries(own.rows, selves, starts, stops, np.zeros(len(starts)))

    def _sum(
        self, queries: sums.Queries, rule: sums.Rule, exact: bool, label: str | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return sums and errors of the queries (m,), in their own order."""
        groups = len(queries.starts)
        cuts = [*range(0, groups, _GROUPS), groups]
        total, error = np.empty(len(queries.rows)), np.empty(len(queries.rows))

        def task(part: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
            return sums.group_sums(queries, self.reference, rule, exact, *part)

        parts = list(zip(cuts, cuts[1:]))
        results = engine.run(task, parts, n_jobs=self.n_jobs, label=label)
        for (first, last), (values, errors) in zip(parts, results, strict=True):
            lengths = queries.stops[first:last] - queries.starts[first:last]
            rows = slice(queries.starts[first], queries.stops[last - 1])
            total[rows], error[rows] = values, np.repeat(errors, lengths)
        return total, error

    def _sum_faint(
        self,
        queries: sums.Queries,
        faint: np.ndarray,
        rule: sums.Rule,
        exact: bool,
        label: str | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return sums, errors and shifts of queries one by one, relative to their largest term."""
        alone = np.arange(len(faint))
        queries = sums.Queries(
            queries.rows[faint], queries.selves[faint], alone, alone + 1, np.zeros(len(faint))
        )
        log_weights = np.log(self.reference.point_weights)
        shift = -sums.largest_exponents(queries, self.reference, rule, log_weights)
        shift[~np.isfinite(shift)] = 0  # nothing to sum at all
        total, error = self._sum(queries._replace(shifts=shift), rule, exact, label)
        return total, error, shift


def _levels(tree: Tree) -> list[range]:
    """Return the levels of the tree as ranges of nodes."""
    levels = [range(0, 1)]
    while levels[-1].stop < len(tree.starts):
        inner = np.count_nonzero(tree.children[levels[-1].start : levels[-1].stop] >= 0)
        levels.append(range(levels[-1].stop, levels[-1].stop + 2 * inner))
    return levels


def _leaf_ranges(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranges of the leaves, in order, cut to at most GROUP points."""
    leaves = tree.children < 0
    starts, stops = np.sort(tree.starts[leaves]), np.sort(tree.stops[leaves])
    cuts = [np.arange(a, b, sums.GROUP) for a, b in zip(starts, stops)]
    starts = np.concatenate(cuts)
    return starts, np.append(starts[1:], len(tree.rows))
