"""Log sums of kernels over weighted points, with certified bounds."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.error_bounds import distance_slack, log_rounding
from fastmetric.core.far_field.expansions import highest_degree
from fastmetric.core.kernels import GAUSSIAN, has_tails
from fastmetric.core.pairs.pair_tiles import ALIGN
from fastmetric.core.tree.balanced_tree import Tree
from fastmetric.core.walk.interaction_lists import Walk
from fastmetric.core.walk.mean_shift_replay import replay_mean_shift
from fastmetric.core.walk.query_groups import LONGEST, Queries, Rule
from fastmetric.learn.chooser import choose
from fastmetric.learn.kernel_sums.certified_walks import (
    Interactions,
    group_starts,
    in_float32,
    walk_sums,
)
from fastmetric.learn.kernel_sums.kernel_table import KERNELS
from fastmetric.learn.kernel_sums.walk_ways import WAYS, WalkProblem
from fastmetric.learn.tree_building import NODES, SUMS_LEAF_SIZE, build_tree, summarised

METHODS = ("auto", "exact", "tree")

_LARGEST = -np.log(np.finfo(float).tiny)
_ROOT = np.array([0])


class LogSums(NamedTuple):
    """Log sums at the queries (m,), with certified bounds of the exact ones; float64."""

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
        leaf_size: int = SUMS_LEAF_SIZE,
        n_jobs: int | None = None,
    ) -> None:
        """Take the points X (n, d), a float array, and weights (n,) >= 0, some > 0.

        Squared distances, including those to queries, must not overflow.
        """
        self.X, self.n_jobs, self.code = X, n_jobs, KERNELS[kernel].code
        weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
        self._kept = np.flatnonzero(weights > 0)
        self._unit = float(weights.max())
        self._tree = build_tree(X[self._kept], min(leaf_size, LONGEST), n_jobs)
        self._weights = (weights[self._kept] / weights.max())[self._tree.order]
        self.set_bandwidth(bandwidth)

    def set_bandwidth(self, bandwidth: float) -> None:
        """Change the bandwidth; the tree is kept."""
        self.bandwidth = float(bandwidth)
        self._factor = (0.5 if self.code == GAUSSIAN else 1.0) / self.bandwidth**2
        d, tree = self.X.shape[1], self._tree
        rows = np.pad(tree.rows, ((0, -len(tree.rows) % ALIGN), (0, 0)))
        stages = [
            list(pairwise([*range(level.start, level.stop, NODES), level.stop]))
            for level in reversed(_levels(tree))
        ]
        self._reference = summarised(
            tree._replace(rows=rows),
            self._weights,
            self.bandwidth,
            stages,
            expanded=self.code == GAUSSIAN and highest_degree(d) > 1,
            n_jobs=self.n_jobs,
        )

    def log_sums(
        self,
        query: np.ndarray | None = None,
        *,
        rtol: float = 0.0,
        atol: float = 0.0,
        method: str = "auto",
        bounds: bool = True,
        label: str | None = None,
    ) -> LogSums:
        """Return log sums at `query` (m, d); None: at the points, each left out of its own sum.

        The error of each sum is at most `rtol` times the exact sum plus `atol`, up to rounding.
        Without `bounds` the bounds are the estimate.
        """
        order, queries = self._queries(query)
        eps = float(np.finfo(self.X.dtype).eps)
        rule = self._rule(rtol, min(atol / self._unit, 1e300))
        plain = Walk(self._reference, rule, _ROOT)
        problem = WalkProblem(queries, plain, lambda: self._walk(rule))
        walk = choose(problem, WAYS, method, self.n_jobs).walk
        estimate, *ends = self._log_sums(queries, walk, label)
        if bounds and not has_tails(self.code):
            # Near the rim of a compact kernel a distance's last bit is a large part of the
            # kernel: the bounds are those of distances that much larger and smaller.
            slack = distance_slack(self.X.shape[1], eps)
            for k, sign in enumerate((1, -1)):
                moved = rule._replace(factor=rule.factor * (1 + sign * slack))
                ends[k] = self._log_sums(queries, walk._replace(rule=moved), label)[1 + k]
        out = np.empty((3, len(order)))
        out[:, order] = (estimate, *ends) if bounds else (estimate, estimate, estimate)
        if bounds:
            n, d = self._tree.rows.shape
            # Exponents are relative to the largest weight.
            exponents = np.maximum(np.abs(out), np.abs(out - np.log(self._unit)))
            size = np.where(np.isfinite(out), exponents, 0).max(axis=0) + d + np.log2(n + 1)
            rounding = log_rounding(size, d, eps)
            out[1] -= rounding
            out[2] += rounding
        return LogSums(*out)

    def mean_shift_steps(
        self, query: np.ndarray, *, rtol: float = 0.0, label: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log sums (m,) at `query` (m, d), and the steps of mean shift (m, d) [SHI-1].

        The kernel is Gaussian. The sums are within `rtol`; the steps are gradients of these sums.
        """
        order, queries = self._queries(query)
        rule = self._rule(rtol, 0.0)
        walk = Walk(self._reference, rule, _ROOT, keep=True)
        # Steps follow the interaction lists of walks in float64.
        walk = choose(WalkProblem(queries, walk, lambda: walk), WAYS, n_jobs=self.n_jobs).walk
        [found] = walk_sums([(queries, walk)], self.n_jobs, label)

        def task(part: Interactions) -> np.ndarray:
            return replay_mean_shift(part.queries, walk, part.lists)

        together = np.empty(query.shape)
        alone = np.empty((len(found.underflowed), query.shape[1]))
        results = engine.run(task, found.interactions, n_jobs=self.n_jobs, label=label)
        for part, steps in zip(found.interactions, results, strict=True):
            start = part.queries.starts[part.lists.first]
            target = together if part.queries is queries else alone
            target[start : start + len(steps)] = steps
        together[found.underflowed] = alone
        logs, moves = np.empty(len(query)), np.empty(query.shape)
        logs[order], moves[order] = found.logs()[0] + np.log(self._unit), together
        return logs, moves

    def _rule(self, rtol: float, atol: float) -> Rule:
        """Return the rule of a walk within the tolerances."""
        # Without a tolerance, terms within the rounding error are omitted. Plain floats: walks
        # are compiled for the types of a rule.
        rtol = float(max(rtol, np.finfo(self.X.dtype).eps / 2))
        return Rule(self.code, self._factor, rtol, float(atol))

    def _walk(self, rule: Rule) -> Walk:
        """Return the walk by a rule, leaves in float32 if its tolerance is wide enough [SUM-8]."""
        self._reference, rule = in_float32(self._reference, rule, self.bandwidth, self.n_jobs)
        return Walk(self._reference, rule, _ROOT)

    def _log_sums(self, queries: Queries, walk: Walk, label: str | None) -> list[np.ndarray]:
        """Return the logs of the sums and of their bounds (m,), up to rounding."""
        [found] = walk_sums([(queries, walk)], self.n_jobs, label)
        whole = found._replace(total=found.total * self._unit, error=found.error * self._unit)
        # The unit is multiplied before the log where possible: logs of opposite sign cancel.
        apart, logs = found.logs() + np.log(self._unit), whole.logs()
        return list(np.where(np.abs(logs + found.shift) < _LARGEST, logs, apart))

    def _queries(self, query: np.ndarray | None) -> tuple[np.ndarray, Queries]:
        """Return the caller's row of each query, and the queries, grouped."""
        whole = len(self._kept) == len(self.X)
        points = self.X if query is None else query.astype(self.X.dtype, copy=False)
        if whole and (query is None or np.array_equal(points, self.X)):
            tree = self._tree
        else:
            tree = build_tree(points, SUMS_LEAF_SIZE, self.n_jobs)
        self_index = np.full(len(points), -1)
        if query is None:
            place = np.full(len(points), -1)
            place[self._kept[self._tree.order]] = np.arange(len(self._kept))
            self_index = place[tree.order]
        starts = group_starts(tree)
        stops = np.append(starts[1:], len(points))
        return tree.order, Queries(tree.rows, self_index, starts, stops, np.zeros(len(starts)))


def _levels(tree: Tree) -> list[range]:
    """Return the levels of the tree as ranges of nodes."""
    levels = [range(0, 1)]
    while levels[-1].stop < len(tree.starts):
        inner = np.count_nonzero(tree.children[levels[-1].start : levels[-1].stop] >= 0)
        levels.append(range(levels[-1].stop, levels[-1].stop + 2 * inner))
    return levels
