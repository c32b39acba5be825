"""Log sums of kernels over weighted points, with certified bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.error_bounds import (
    COARSEST_SLACK,
    distance_slack,
    log_rounding,
)
from fastmetric.core.far_field.expansions import highest_degree
from fastmetric.core.kernels import GAUSSIAN, has_tails
from fastmetric.core.pairs.pair_tiles import ALIGN
from fastmetric.core.tree.balanced_tree import Tree
from fastmetric.core.walk.interaction_lists import Walk
from fastmetric.core.walk.mean_shift_replay import replay_mean_shift
from fastmetric.core.walk.query_groups import LONGEST, Queries, Rule
from fastmetric.learn.chooser import choose
from fastmetric.learn.kernel_sums.bandwidths import Metric
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
# Binary orders of magnitude that the weights of one tree may span: the product of a weight and a
# kernel relative to the largest term then neither underflows nor overflows.
_WEIGHT_SPAN = {np.dtype(np.float64): 400, np.dtype(np.float32): 40}


class LogSums(NamedTuple):
    """Log sums at the queries (m,), with certified bounds of the exact ones; float64."""

    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class KernelSums:
    """The sums sum_j w_j k(|q - x_j|^2 / h^2) over fixed points x_j, for many queries q.

    The Gaussian is exp(-|q - x_j|^2 / (2 h^2)). Rows are summed in units of a power of two near the
    bandwidth, weights in units of a power of two near the largest: both are exact, and every
    intermediate number has a known size, whatever the scales of the data. Points whose weights
    span more than `_WEIGHT_SPAN` are summed in several trees.
    """

    def __init__(
        self,
        X: np.ndarray,
        weights: np.ndarray | None = None,
        *,
        kernel: str = "gaussian",
        bandwidth: float | Metric = 1.0,
        leaf_size: int = SUMS_LEAF_SIZE,
        n_jobs: int | None = None,
    ) -> None:
        """Take the points X (n, d), a float array, and weights (n,) >= 0, some > 0.

        Squared distances, including those to queries, must not overflow. A metric as bandwidth is
        that whose map made points and queries; bounds contain its rounding.
        """
        metric = bandwidth if isinstance(bandwidth, Metric) else Metric(bandwidth, 0.0)
        self.rounding = metric.rounding
        self.X, self.n_jobs, self.code = X, n_jobs, KERNELS[kernel].code
        weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
        parts = _parts_of_like_weights(weights, _WEIGHT_SPAN[X.dtype])
        self._parts: list[KernelSums] = []
        if len(parts) > 1:
            how: dict[str, Any] = dict(kernel=kernel, bandwidth=bandwidth, leaf_size=leaf_size)
            self._parts = [KernelSums(X, part, n_jobs=n_jobs, **how) for part in parts]
            return
        self._kept = np.flatnonzero(weights > 0)
        self._unit = int(np.frexp(weights.max())[1]) - 1  # the binary logarithm of the unit
        self._tree = build_tree(X[self._kept], min(leaf_size, LONGEST), n_jobs)
        self._weights = np.ldexp(weights[self._kept], -self._unit)[self._tree.order]
        self._log_total = float(np.log(self._weights.sum()))
        self.set_bandwidth(metric.h)

    def set_bandwidth(self, bandwidth: float) -> None:
        """Change the bandwidth; the tree is kept."""
        self.bandwidth = float(bandwidth)
        for part in self._parts:
            part.set_bandwidth(bandwidth)
        if self._parts:
            return
        mantissa, self._exponent = math.frexp(self.bandwidth)
        self._h = mantissa  # in units of 2^exponent
        width = Fraction(2 if self.code == GAUSSIAN else 1) * Fraction(mantissa) ** 2
        self._factor = float(1 / width)  # rounded once
        d, tree = self.X.shape[1], self._tree
        lower, upper = (self._scaled(box) for box in (tree.lower, tree.upper))
        rows = np.zeros((len(tree.rows) + -len(tree.rows) % ALIGN, d), tree.rows.dtype)
        self._scaled(tree.rows, out=rows[: len(tree.rows)])
        stages = [
            list(pairwise([*range(level.start, level.stop, NODES), level.stop]))
            for level in reversed(_levels(tree))
        ]
        self._reference = summarised(
            tree._replace(rows=rows, lower=lower, upper=upper),
            self._weights,
            self._h,
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
        if self._parts:
            how: dict[str, Any] = dict(
                rtol=rtol, atol=atol / len(self._parts), method=method, bounds=bounds
            )
            return _added([part.log_sums(query, label=label, **how) for part in self._parts])
        order, queries = self._queries(query)
        eps = float(np.finfo(self.X.dtype).eps)
        with np.errstate(over="ignore"):
            rule = self._rule(rtol, min(float(np.ldexp(atol, -self._unit)), 1e300))
        plain = Walk(self._reference, rule, _ROOT)
        problem = WalkProblem(queries, plain, lambda: self._walk(rule))
        walk = choose(problem, WAYS, method, self.n_jobs).walk
        estimate, *ends = self._log_sums(queries, walk, label)
        points = self.X if query is None else query
        norms = self._norms(points) if bounds else np.zeros(len(points))
        if bounds and not has_tails(self.code):
            # Near the rim of a compact kernel a distance's last bit is a large part of the
            # kernel: the bounds are those of distances that much larger and smaller.
            largest = min(float(norms.max()), float(self._norms(self.X).max()) + 1)
            slack = distance_slack(eps) + self.rounding.slack(largest)
            if slack < COARSEST_SLACK:
                for k, sign in enumerate((1, -1)):
                    moved = rule._replace(factor=rule.factor * (1 + sign * slack))
                    ends[k] = self._log_sums(queries, walk._replace(rule=moved), label)[1 + k]
            else:  # all that is known is that a kernel is at most 1
                total = self._log_total + self._unit * math.log(2)
                ends = [np.full(len(order), -np.inf), np.full(len(order), total)]
        out = np.empty((3, len(order)))
        out[:, order] = (estimate, *ends) if bounds else (estimate, estimate, estimate)
        if bounds:
            sizes = self._sizes(out)
            rounding = log_rounding(self.X.shape[1], sizes, eps)
            if self.rounding.of_rows > 0:
                rounding = rounding + self.rounding.log_error(self.code, norms, sizes)
            out[1] -= rounding
            out[2] += rounding
            if has_tails(self.code):  # a sum below the range of its log is not 0
                alone = len(self._kept) == 1 and query is None
                lost = np.isneginf(out[2])
                lost[self._kept if alone else []] = False
                # The squared distance overflowed: s is at least a half of the largest number.
                most = float(np.finfo(float).max) / 4
                exponent = most if self.code == GAUSSIAN else math.sqrt(most) / 2
                out[2, lost] = max(0.0, self._log_total) - exponent
        return LogSums(*out)

    def _norms(self, rows: np.ndarray) -> np.ndarray:
        """Return the norms (m,) of rows that a map has made; 0 without a map."""
        if self.rounding.of_rows == 0:
            return np.zeros(len(rows))
        return np.linalg.norm(rows.astype(np.float64, copy=False), axis=1)

    def _sizes(self, logs: np.ndarray) -> np.ndarray:
        """Return the sizes (m,) that the rounding of log sums (3, m) is relative to.

        Of log S, of log S in units of the largest weight, and of log(W / S), W the total weight.
        """
        in_units = logs - self._unit * math.log(2)
        with np.errstate(invalid="ignore"):
            below_total = self._log_total - in_units
            sizes = np.maximum(np.maximum(np.abs(logs), np.abs(in_units)), below_total)
        return np.where(np.isfinite(logs), sizes, 0).max(axis=0)

    def _scaled(self, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return rows (n, d) in the units of the sums."""
        return np.ldexp(rows, -self._exponent, out=out)

    def mean_shift_steps(
        self, query: np.ndarray, *, rtol: float = 0.0, label: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log sums (m,) at `query` (m, d), and the steps of mean shift (m, d) [SHI-1].

        The kernel is Gaussian. The sums are within `rtol`; the steps are gradients of these sums.
        """
        assert not self._parts, "mean shift has no weights"
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
        logs[order] = found.logs()[0] + self._unit * math.log(2)
        moves[order] = np.ldexp(together, self._exponent)
        return logs, moves

    def _rule(self, rtol: float, atol: float) -> Rule:
        """Return the rule of a walk within the tolerances."""
        # Without a tolerance, terms within the rounding error are omitted. Plain floats: walks
        # are compiled for the types of a rule.
        rtol = float(max(rtol, np.finfo(self.X.dtype).eps / 2))
        return Rule(self.code, self._factor, rtol, float(atol))

    def _walk(self, rule: Rule) -> Walk:
        """Return the walk by a rule, leaves in float32 if its tolerance is wide enough [SUM-8]."""
        self._reference, rule = in_float32(self._reference, rule, self._h, self.n_jobs)
        return Walk(self._reference, rule, _ROOT)

    def _log_sums(self, queries: Queries, walk: Walk, label: str | None) -> list[np.ndarray]:
        """Return the logs of the sums and of their bounds (m,), up to rounding."""
        [found] = walk_sums([(queries, walk)], self.n_jobs, label)
        whole = found._replace(
            total=np.ldexp(found.total, self._unit), error=np.ldexp(found.error, self._unit)
        )
        # The unit is multiplied before the log where possible: logs of opposite sign cancel.
        apart, logs = found.logs() + self._unit * math.log(2), whole.logs()
        with np.errstate(invalid="ignore"):  # a shift beyond float32 is infinite
            return list(np.where(np.abs(logs + found.shift) < _LARGEST, logs, apart))

    def _queries(self, query: np.ndarray | None) -> tuple[np.ndarray, Queries]:
        """Return the caller's row of each query, and the queries, grouped."""
        whole = len(self._kept) == len(self.X)
        points = self.X if query is None else query.astype(self.X.dtype, copy=False)
        if whole and (query is None or np.array_equal(points, self.X)):
            tree, rows = self._tree, self._reference.tree.rows[: len(points)]
        else:
            tree = build_tree(points, SUMS_LEAF_SIZE, self.n_jobs)
            rows = self._scaled(tree.rows, out=tree.rows)
        self_index = np.full(len(points), -1)
        if query is None:
            place = np.full(len(points), -1)
            place[self._kept[self._tree.order]] = np.arange(len(self._kept))
            self_index = place[tree.order]
        starts = group_starts(tree)
        stops = np.append(starts[1:], len(points))
        return tree.order, Queries(rows, self_index, starts, stops, np.zeros(len(starts)))


def _parts_of_like_weights(weights: np.ndarray, span: int) -> list[np.ndarray]:
    """Return weights (n,) that add up to `weights`, the positive ones within 2^span each."""
    exponents = np.where(weights > 0, np.frexp(weights)[1], np.iinfo(np.int32).min)
    parts, left = [], weights > 0
    while left.any():
        chosen = left & (exponents > exponents[left].max() - span)
        parts.append(np.where(chosen, weights, 0.0))
        left &= ~chosen
    return parts


def _added(parts: list[LogSums]) -> LogSums:
    """Return the log sums of all parts together, with bounds that cover the addition's rounding."""
    estimate, lower, upper = (reduce(np.logaddexp, logs) for logs in zip(*parts, strict=True))
    if all(np.array_equal(part.lower, part.upper) for part in parts):  # no bounds asked for
        return LogSums(estimate, estimate, estimate)

    def rounding(logs: np.ndarray) -> np.ndarray:
        size = np.where(np.isfinite(logs), np.maximum(1, np.abs(logs)), 0)
        return 4 * len(parts) * float(np.finfo(float).eps) * size

    return LogSums(estimate, lower - rounding(lower), upper + rounding(upper))


def _levels(tree: Tree) -> list[range]:
    """Return the levels of the tree as ranges of nodes."""
    levels = [range(0, 1)]
    while levels[-1].stop < len(tree.starts):
        inner = np.count_nonzero(tree.children[levels[-1].start : levels[-1].stop] >= 0)
        levels.append(range(levels[-1].stop, levels[-1].stop + 2 * inner))
    return levels
