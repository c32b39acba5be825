"""Log sums of kernels over weighted points, with certified bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

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
from fastmetric.core.walk.query_groups import GROUP, LONGEST, Queries, Reference, Rule
from fastmetric.learn.chooser import choose
from fastmetric.learn.kernel_sums.bandwidths import Metric
from fastmetric.learn.kernel_sums.certified_walks import group_starts, in_float32
from fastmetric.learn.kernel_sums.lattice_steps import STEPPING_WAYS
from fastmetric.learn.kernel_sums.lattice_sums import LatticeSums
from fastmetric.learn.kernel_sums.product_sums import ProductSums
from fastmetric.learn.kernel_sums.sum_problem import (
    ROOT,
    Options,
    SteppingWay,
    SumProblem,
    SumWay,
)
from fastmetric.learn.kernel_sums.walk_ways import WALKS
from fastmetric.learn.kernel_table import KERNELS
from fastmetric.learn.lattices.point_lattice import Box, PointLattice, box_of
from fastmetric.learn.tree_building import NODES, SUMS_LEAF_SIZE, build_tree, summarised

METHODS = ("auto", "exact", "tree", "grid")
WAYS: tuple[type[SumWay], ...] = (LatticeSums, ProductSums, *WALKS)

FEW = 32  # queries: over all points as they come, exact sums take less than building a tree

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
        self.X, self.n_jobs, self.kernel = X, n_jobs, kernel
        self.code = KERNELS[kernel].code
        self._parts: list[KernelSums] = []
        # The numbers of the points, and their weights; None: all of X, of weight 1.
        self._kept: np.ndarray | None = None
        self._weights: np.ndarray | None = None
        self.points, self.unit, self.total = X, 0, float(len(X))
        if weights is not None:
            weights = np.asarray(weights, np.float64)
            parts = _parts_of_like_weights(weights, _WEIGHT_SPAN[X.dtype])
            if len(parts) > 1:
                how: dict[str, Any] = dict(kernel=kernel, bandwidth=bandwidth, leaf_size=leaf_size)
                self._parts = [KernelSums(X, part, n_jobs=n_jobs, **how) for part in parts]
                return
            self._kept = np.flatnonzero(weights > 0)
            if len(self._kept) < len(X):
                self.points = X[self._kept]
            # The binary logarithm of the unit.
            self.unit = int(np.frexp(weights.max())[1]) - 1
            self._weights = np.ldexp(weights[self._kept], -self.unit)
            self.total = float(self._weights.sum())
        self._leaf_size = min(leaf_size, LONGEST)
        self._tree: Tree | None = None
        self.set_bandwidth(metric.h)

    @property
    def kept(self) -> np.ndarray:
        """Return the numbers (n,) of the points, those of X of positive weight."""
        if self._kept is None:
            self._kept = np.arange(len(self.X))
        return self._kept

    @property
    def weights(self) -> np.ndarray:
        """Return the weights (n,) of the points, in their unit."""
        if self._weights is None:
            self._weights = np.ones(len(self.points))
        return self._weights

    @property
    def any_weights(self) -> np.ndarray:
        """Return the weights (n,), or (1,) if all are equal."""
        return np.ones(1) if self._weights is None else self._weights

    @property
    def log_unit(self) -> float:
        """Return the log of the unit of the weights."""
        return self.unit * math.log(2)

    def among(self, numbers: np.ndarray) -> KernelSums:
        """Return the sums over some of the points (n, d), by their numbers."""
        weights = None
        if self._weights is not None:
            weights = np.ldexp(self._weights[numbers], self.unit)
        how: dict[str, Any] = dict(kernel=self.kernel, bandwidth=self.bandwidth)
        how["leaf_size"] = self._leaf_size
        return KernelSums(self.points[numbers], weights, n_jobs=self.n_jobs, **how)

    @cached_property
    def box(self) -> Box:
        """Return the box of the points."""
        return box_of(self.points, self.n_jobs)

    @property
    def has_tree(self) -> bool:
        """Return whether the points' tree has been built."""
        return self._tree is not None

    @property
    def tree(self) -> Tree:
        """Return the points' tree."""
        if self._tree is None:
            self._tree = build_tree(self.points, self._leaf_size, self.n_jobs)
        return self._tree

    def set_bandwidth(self, bandwidth: float) -> None:
        """Change the bandwidth; the tree is kept."""
        self.bandwidth = float(bandwidth)
        for part in self._parts:
            part.set_bandwidth(bandwidth)
        if self._parts:
            return
        mantissa, self.exponent = math.frexp(self.bandwidth)
        self._h = mantissa  # in units of 2^exponent
        width = Fraction(2 if self.code == GAUSSIAN else 1) * Fraction(mantissa) ** 2
        self._factor = float(1 / width)  # rounded once
        self._reference: Reference | None = None
        self._flat: Reference | None = None
        self.lattice: tuple[Any, PointLattice, np.ndarray] | None = None  # the last one, smoothed

    @property
    def reference(self) -> Reference:
        """Return the points' tree in units of a power of two near the bandwidth, summarised."""
        if self._reference is None:
            d, tree = self.X.shape[1], self.tree
            lower, upper = (self._scaled(box) for box in (tree.lower, tree.upper))
            rows = np.zeros((len(tree.rows) + -len(tree.rows) % ALIGN, d), tree.rows.dtype)
            self._scaled(tree.rows, out=rows[: len(tree.rows)])
            stages = [
                list(pairwise([*range(level.start, level.stop, NODES), level.stop]))
                for level in reversed(_levels(tree))
            ]
            self._reference = summarised(
                tree._replace(rows=rows, lower=lower, upper=upper),
                self.weights[tree.order],
                self._h,
                stages,
                expanded=self.code == GAUSSIAN and highest_degree(d) > 1,
                n_jobs=self.n_jobs,
            )
        return self._reference

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
        eps = float(np.finfo(self.X.dtype).eps)
        with np.errstate(over="ignore"):
            rule = self._rule(rtol, min(float(np.ldexp(atol, -self.unit)), 1e300))
        # Exact sums at few queries need no tree.
        flat = method == "exact" and query is not None and len(query) <= FEW
        problem = SumProblem(self, query, rule, options=Options(bounds=bounds, flat=flat))
        way = choose(problem, WAYS, method, self.n_jobs)
        out = way.log_sums(label)
        if not bounds:
            return LogSums(out[0], out[0], out[0])
        norms = self._norms(self.X if query is None else query)
        if not has_tails(self.code):
            # Near the rim of a compact kernel a distance's last bit is a large part of the
            # kernel: the bounds are those of distances that much larger and smaller.
            largest = min(float(norms.max()), float(self._norms(self.X).max()) + 1)
            slack = distance_slack(eps) + self.rounding.slack(largest)
            if slack < COARSEST_SLACK:
                for k, sign in enumerate((1, -1)):
                    moved = rule._replace(factor=rule.factor * (1 + sign * slack))
                    out[1 + k] = way.log_sums(label, moved)[1 + k]
            else:  # all that is known is that a kernel is at most 1
                out[1], out[2] = -np.inf, math.log(self.total) + self.log_unit
        sizes = self._sizes(out)
        rounding = log_rounding(self.X.shape[1], sizes, eps)
        if self.rounding.of_rows > 0:
            rounding = rounding + self.rounding.log_error(self.code, norms, sizes)
        out[1] -= rounding
        out[2] += rounding
        if has_tails(self.code):  # a sum below the range of its log is not 0
            alone = len(self.points) == 1 and query is None
            lost = np.isneginf(out[2])
            lost[self.kept if alone else []] = False
            # The squared distance overflowed: s is at least a half of the largest number.
            most = float(np.finfo(float).max) / 4
            exponent = most if self.code == GAUSSIAN else math.sqrt(most) / 2
            out[2, lost] = max(0.0, math.log(self.total)) - exponent
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
        in_units = logs - self.log_unit
        with np.errstate(invalid="ignore"):
            below_total = math.log(self.total) - in_units
            sizes = np.maximum(np.maximum(np.abs(logs), np.abs(in_units)), below_total)
        return np.where(np.isfinite(logs), sizes, 0).max(axis=0)

    @property
    def flat_reference(self) -> Reference:
        """Return the points as they come, for sums over all of them at a few queries."""
        if self._flat is None:
            n, d = self.points.shape
            rows = np.zeros((n + -n % ALIGN, d), self.points.dtype)
            self._scaled(self.points, out=rows[:n])
            lower, upper = rows[:n].min(axis=0)[None], rows[:n].max(axis=0)[None]
            ends = np.array([0]), np.array([n]), np.array([-1])
            tree = Tree(np.arange(n), rows, *ends, lower, upper)
            self._flat = summarised(
                tree, self.weights, self._h, [[(0, 1)]], expanded=False, n_jobs=self.n_jobs
            )
        return self._flat

    @property
    def row_unit(self) -> float:
        """Return the power of two by which rows are in the units of the sums."""
        return math.ldexp(1.0, -self.exponent)

    def _scaled(self, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return rows (n, d) in the units of the sums."""
        return np.ldexp(rows, -self.exponent, out=out)

    def mean_shift_steps(
        self, query: np.ndarray, label: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log sums (m,) at `query` (m, d), and the steps of mean shift (m, d) [SHI-1].

        The kernel is Gaussian. Sums are exact; the steps are gradients of these sums.
        """
        assert not self._parts, "mean shift has no weights"
        options = Options(in_float32=False, flat=len(query) <= FEW)
        problem = SumProblem(self, query, self._rule(0.0, 0.0), options=options)
        return choose(problem, WALKS, n_jobs=self.n_jobs).mean_shift(label)

    def way_of_steps(self, starts: np.ndarray, rtol: float) -> SteppingWay:
        """Return what takes steps of mean shift from `starts` (m, d) on, by sums within `rtol`."""
        assert not self._parts, "mean shift has no weights"
        options = Options(in_float32=False)
        problem = SumProblem(self, starts, self._rule(rtol, 0.0), options=options)
        return choose(problem, STEPPING_WAYS, n_jobs=self.n_jobs)

    def _rule(self, rtol: float, atol: float) -> Rule:
        """Return the rule of a walk within the tolerances."""
        # Without a tolerance, terms within the rounding error are omitted. Plain floats: walks
        # are compiled for the types of a rule.
        rtol = float(max(rtol, np.finfo(self.X.dtype).eps / 2))
        return Rule(self.code, self._factor, rtol, float(atol))

    def walk_over_leaves(self, rule: Rule) -> Walk:
        """Return the walk by a rule, leaves in float32 if its tolerance is wide enough [SUM-8]."""
        self._reference, rule = in_float32(self.reference, rule, self._h, self.n_jobs)
        return Walk(self._reference, rule, ROOT)

    def grouped(
        self, rows: np.ndarray, own: np.ndarray | None, flat: bool = False
    ) -> tuple[np.ndarray, Queries]:
        """Return the caller's row of each query (m, d), and the queries, grouped.

        `own` (m,) are the points that the queries are, left out of their sums, or -1; numbered in
        the order of the tree, or as they come if `flat`.
        """
        whole = len(self.points) == len(self.X)
        if flat:  # over all points, neighbouring queries have nothing in common
            order, scaled = np.arange(len(rows)), self._scaled(rows)
            starts = np.arange(0, len(rows), GROUP)
        elif whole and (rows is self.X or np.array_equal(rows, self.X)):
            order, scaled = self.tree.order, self.reference.tree.rows[: len(rows)]
            starts = group_starts(self.tree)
        else:
            tree = build_tree(rows, SUMS_LEAF_SIZE, self.n_jobs)
            order, scaled = tree.order, self._scaled(tree.rows, out=tree.rows)
            starts = group_starts(tree)
        self_index = np.full(len(rows), -1)
        if own is not None:
            place = np.full(len(self.X) + 1, -1)  # the last one: no point
            ordered = self.kept if flat else self.kept[self.tree.order]
            place[ordered] = np.arange(len(ordered))
            self_index = place[own[order]]
        stops = np.append(starts[1:], len(rows))
        return order, Queries(scaled, self_index, starts, stops, np.zeros(len(starts)))


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
