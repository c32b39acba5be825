"""Sums of Gaussians over segments and their gradient by lattices, one per segment [GRD-7].

The lattices have common cells, so that the sum over the other segments is the lattice of all less
that of the own segment. Queries that the lattices cannot certify, far from all points, go
elsewhere.
"""

from __future__ import annotations

import math
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.lattice.reading import Margins, intervals
from fastmetric.core.lattice.segment_lattices import (
    Own,
    Parts,
    Rows,
    class_bounds,
    read_adjoint,
    read_own_and_total,
    read_segments,
)
from fastmetric.core.lattice.stencils import AXES
from fastmetric.learn import costs
from fastmetric.learn.kernel_table import EXP_BANDWIDTH
from fastmetric.learn.lattices.aligned_lattices import AlignedLattices, Sorted
from fastmetric.learn.lattices.lattice_plan import Plan, plans
from fastmetric.learn.lattices.point_lattice import Box, PointLattice, box_of, shape_of
from fastmetric.learn.pair_sums.problem import (
    ClassSums,
    Gradient,
    PairProblem,
    Queries,
    RowWeights,
)
from fastmetric.learn.pair_sums.uncertified import Uncertified

FINEST = 1e-9  # tolerances below have no plan
_COARSEST = 0.3  # wider ones have the plan of this one
_LIGHTER = (10.0, 4.0)  # nats: sums so far below the total weight are certified
_BESIDE = 6.5  # bandwidths around a segment's points in which queries are read off
_CELLS, _CELLS_PER_ROW = 1 << 22, 3  # of all lattices: so many, or for every point and query
_ROWS = 1 << 15  # of a task that computes row by row
_UNIT, _TINY = 2.0**-53, float(np.finfo(float).tiny)
_NOTHING = Margins(np.zeros((1, 2)), 0.0, 0.0, 0.0, 0.0, 0.0)  # of sums over no points


class _Fit(NamedTuple):
    """A plan, the box of all, those of the segments, and what the sums by it take."""

    plan: Plan
    box: Box
    boxes: list[Box]
    nanoseconds: float


class ClassLattices:
    """A lattice for every segment, and their total."""

    all_pairs: ClassVar[bool] = False
    method: ClassVar[str] = "grid"
    name = "grid"

    def __init__(self, problem: PairProblem, n_jobs: int | None = None) -> None:
        """Take the points and the queries; sums are within problem.rtol."""
        self.problem, self.n_jobs = problem, n_jobs
        self._left: Uncertified | None = None
        self._slopes = np.empty((0, 0))
        self._spread: tuple[AlignedLattices, Sorted, np.ndarray] | None = None

    @staticmethod
    def serves(problem: PairProblem) -> bool:
        """Return whether the kernel is Gaussian, dimensions are few, and there is a tolerance.

        A gradient is that of points.
        """
        few = problem.dims == problem.points.shape[1] <= AXES
        free = isinstance(problem.queries, Queries) and not problem.per_segment
        return problem.code == GAUSSIAN and few and problem.rtol >= FINEST and not free

    @staticmethod
    def worth_building(
        problem: PairProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return whether points and queries are many."""
        return problem.n >= costs.TREE_POINTS and problem.m >= costs.GRID_QUERIES

    @property
    def pair_share(self) -> float:
        """Return the share of the pairs that were visited, those of queries summed elsewhere."""
        if self._left is None:
            return 0.0
        return self._left.pair_share * len(self._left.numbers) / self.problem.m

    def with_queries(self, queries: Queries) -> ClassLattices:
        """Return the sums of other queries over the same points."""
        other = copy(self)
        other.problem, other._left = self.problem._replace(queries=queries), None
        return other

    @cached_property
    def _fit(self) -> _Fit | None:
        """Return the cheapest plan; None, if every lattice has too many cells."""
        problem, d = self.problem, self.problem.dims
        boxes = self._boxes()
        box = Box(
            np.min([one.lower for one in boxes], axis=0),
            np.max([one.upper for one in boxes], axis=0),
        )
        most = max(_CELLS, _CELLS_PER_ROW * (problem.n + problem.m))
        log_weight, found = math.log(float(problem.weights.sum())), []
        for lighter in _LIGHTER:
            log_mass = 2.0 * math.ceil((max(0.0, log_weight) + lighter) / 2)
            for plan in plans(d, self._tolerance(), log_mass):
                total = math.prod(shape_of(plan, box, EXP_BANDWIDTH))
                cells = sum(math.prod(shape_of(plan, one, EXP_BANDWIDTH)) for one in boxes)
                if total + cells <= most:
                    price = self._price(plan, cells, total)
                    found.append(_Fit(plan, box, boxes, price))
            if found:
                break
        return min(found, key=lambda fit: fit.nanoseconds, default=None)

    def _boxes(self) -> list[Box]:
        """Return the boxes of the segments, with room for queries of their own around them."""
        problem = self.problem
        boxes = [
            box_of(problem.points[a:b], self.n_jobs) for a, b in pairwise(problem.segments.offsets)
        ]
        if not isinstance(problem.queries, Queries):
            return boxes
        asked, beside = box_of(problem.queries.rows, self.n_jobs), _BESIDE * EXP_BANDWIDTH
        return [
            Box(
                np.minimum(one.lower, np.maximum(asked.lower, one.lower - beside)),
                np.maximum(one.upper, np.minimum(asked.upper, one.upper + beside)),
            )
            for one in boxes
        ]

    def _tolerance(self) -> float:
        """Return the tolerance of the plan: of sums that count by themselves, of either side."""
        rtol = self.problem.rtol if self.problem.factors is not None else self.problem.rtol / 2
        return min(rtol, _COARSEST)

    def _price(self, plan: Plan, cells: float, total: float) -> float:
        """Return what the sums will take, in nanoseconds: by counts."""
        problem, d, table = self.problem, self.problem.dims, costs.GRID
        n, m, C = problem.n, problem.m, len(problem.segments.sizes)
        taps = table.row * plan.width ** (d - 1) * -(-plan.width // 8)
        place, smoothing = table.place * d, d * (plan.reach + 1) * table.cell_tap
        one = cells * (table.cell + smoothing)
        if problem.per_segment:
            return n * (place + taps) + m * (place + C * taps) + one
        # Points are spread, and read with slopes; queries are read twice, and spread twice.
        rows = n * (3 * place + 2.5 * taps) + m * (3 * place + 5 * taps + costs.GRID_ROW)
        rows += costs.GRID_CLASSES
        return rows + 2 * one + 2 * total * (table.cell + smoothing)

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds."""
        return math.inf if self._fit is None else self._fit.nanoseconds

    def _lattices(self, fit: _Fit) -> tuple[AlignedLattices, Sorted, np.ndarray]:
        """Return the lattices, the points in their order, and the cells with the points added."""
        if self._spread is None:
            problem, offsets = self.problem, self.problem.segments.offsets
            frame = PointLattice(fit.plan, self._tolerance(), fit.box, EXP_BANDWIDTH, self.n_jobs)
            lattices = AlignedLattices(frame, fit.boxes)
            points = lattices.in_order(problem.points, offsets)
            weights = problem.weights[offsets[:-1]]
            self._spread = lattices, points, lattices.spread(points, weights)
        return self._spread

    def _margins(self, lattices: AlignedLattices, c: int) -> tuple[Margins, Margins]:
        """Return the margins of sums over a segment and over the others."""
        problem, frame = self.problem, lattices.frame
        sizes, totals = problem.segments.sizes, self._totals()
        own = frame.margins(int(sizes[c]), float(totals[c]), True)
        if len(sizes) == 1:
            return own, _NOTHING
        others = float(np.delete(totals, c).sum())
        other = frame.margins(problem.n, others, False)
        # Adding up the lattices of the segments is one more rounding for each.
        return own, other._replace(relative=other.relative + len(sizes) * _UNIT)

    def _queries(self, lattices: AlignedLattices, points: Sorted) -> Sorted:
        """Return the queries, which are points, in their order."""
        problem = self.problem
        if problem.queries is None:
            return points
        offsets = np.searchsorted(problem.queries, problem.segments.offsets)
        return lattices.in_order(problem.points[problem.queries], offsets)

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the log sums of the queries."""
        problem = self.problem
        logs, accepted = (
            np.empty((6 if problem.bounds else 2, problem.m)),
            np.zeros(problem.m, bool),
        )
        if self._fit is not None:
            self._read(self._fit, logs, accepted, label)
        self._left = self._elsewhere(np.flatnonzero(~accepted))
        if self._left is not None:
            where, found = self._left.numbers, self._left.log_sums(label)
            logs[0, where], logs[1, where] = found.own, found.other
            if problem.bounds:
                logs[2:4, where], logs[4:6, where] = found.own_ends, found.other_ends
        return ClassSums(logs[0], logs[1], *((logs[2:4], logs[4:6]) if problem.bounds else ()))

    def _read(self, fit: _Fit, logs: np.ndarray, accepted: np.ndarray, label: str | None) -> None:
        """Write the logs of sums and bounds (6 or 2, m), and which are within the tolerance."""
        problem, (lattices, points, values) = self.problem, self._lattices(fit)
        self._asked = self._queries(lattices, points)
        self._slopes = np.empty((2 * problem.dims, problem.m))
        margins = [self._margins(lattices, c) for c in range(len(problem.segments.sizes))]
        weights = problem.weights[problem.segments.offsets[:-1]]
        frame, factors = lattices.frame, problem.factors
        allowed = problem.rtol / 2 if factors is not None else problem.rtol

        def task(some: Rows) -> None:
            c, m = some.segment, some.last - some.first
            own = Own(lattices.own, weights[c : c + 1])
            found = read_own_and_total(
                values, some, lattices.parts, own, frame.lattice, frame.taps.stencil
            )
            sums, factor = np.empty((6, m)), 0.0 if factors is None else float(factors[c])
            good = class_bounds(found, margins[c], factor, allowed, sums)
            with np.errstate(divide="ignore"):
                found_logs = np.log(sums[: len(logs)])
            where = _where(some)
            accepted[where], logs[:, where] = good, found_logs
            self._slopes[:, where] = found[3:]

        engine.for_each(task, self._asked.tasks(), n_jobs=self.n_jobs, label=label)

    def _elsewhere(self, left: np.ndarray) -> Uncertified | None:
        """Return some queries, by their numbers, summed elsewhere; None for none."""
        if not left.size:
            return None
        frame = None if self._fit is None else self._lattices(self._fit)[0].frame
        return Uncertified(self.problem, left, frame, self.n_jobs)

    def gradient(self, weights: RowWeights, label: str | None = None) -> Gradient:
        """Return the gradient at the points; after `log_sums`."""
        problem, left = self.problem, self._left
        U = np.zeros(problem.points.shape)
        if self._fit is not None:
            self._add_gradient(self._fit, self._strengths(weights), U, label)
        if left is not None:
            few = RowWeights(*(part[left.numbers] for part in weights))
            left.add_gradient(few, U, label)
        return Gradient(U)

    def _strengths(self, weights: RowWeights) -> np.ndarray:
        """Return the weights of own pairs, of others, and their difference (3, m); 0 elsewhere."""
        here, out = np.ones(self.problem.m, bool), np.zeros((3, self.problem.m))
        if self._left is not None:
            here[self._left.numbers] = False

        def task(rows: slice) -> None:
            strength, part = np.zeros(rows.stop - rows.start), out[:, rows]
            np.exp(-weights.log_totals[rows], where=here[rows], out=strength)
            np.multiply(weights.own[rows], strength, out=part[0])
            np.multiply(weights.other[rows], strength, out=part[1])
            np.subtract(part[0], part[1], out=part[2])

        engine.for_each(task, engine.ranges(out.shape[1], _ROWS), n_jobs=self.n_jobs)
        return out

    def _add_gradient(
        self, fit: _Fit, strengths: np.ndarray, U: np.ndarray, label: str | None
    ) -> None:
        """Write the gradient to U (n, d), by what `_strengths` returns."""
        problem, (lattices, points, _) = self.problem, self._lattices(fit)
        frame, stencil = lattices.frame, lattices.frame.taps.stencil
        d, slopes, chosen = problem.dims, self._slopes, problem.queries
        unit = frame.spacing / frame.plan.sigma**2
        values = lattices.spread_adjoint(self._asked, strengths[2:0:-1], label)
        own = strengths[0]
        if chosen is not None:
            own = np.zeros(problem.n)
            own[chosen] = strengths[0]
        itself = Own(lattices.own, own)
        point_weights = problem.weights[problem.segments.offsets[:-1]]

        def at_queries(which: np.ndarray | slice) -> np.ndarray:
            mine, others = strengths[0, which], strengths[1, which]
            return mine * slopes[:d, which] + others * slopes[d:, which]

        def at_points(some: Rows) -> None:
            found = read_adjoint(values, some, lattices.parts, itself, frame.lattice, stencil)
            where = _where(some)
            found *= point_weights[some.segment]
            if chosen is None:
                found += at_queries(where)
            found *= unit
            U[where] = found.T

        engine.for_each(at_points, points.tasks(), n_jobs=self.n_jobs, label=label)
        if chosen is not None:
            U[chosen] += unit * at_queries(slice(None)).T

    def by_segment(self, label: str | None = None) -> np.ndarray:
        """Return the log sums over every segment (m, C); nothing is left out."""
        problem, m = self.problem, self.problem.m
        logs, accepted = np.empty((m, len(problem.segments.sizes))), np.zeros(m, bool)
        if self._fit is not None:
            self._read_segments(self._fit, logs, accepted, label)
        self._left = self._elsewhere(np.flatnonzero(~accepted))
        if self._left is not None:
            logs[self._left.numbers] = self._left.by_segment(label)
        return logs

    def _read_segments(
        self, fit: _Fit, logs: np.ndarray, accepted: np.ndarray, label: str | None
    ) -> None:
        """Write log sums over every segment (m, C), and which are within the tolerance."""
        problem, (lattices, _, values) = self.problem, self._lattices(fit)
        rows, C = problem.asked().rows, len(problem.segments.sizes)
        frame, parts = lattices.frame, Parts(*(part[:-1] for part in lattices.parts))
        offsets, totals = problem.segments.offsets, self._totals()
        margins = [
            frame.margins(int(size), float(total), False)
            for size, total in zip(problem.segments.sizes, totals, strict=True)
        ]
        boxes = [box_of(problem.points[a:b], self.n_jobs) for a, b in pairwise(offsets)]

        def task(some: Rows) -> None:
            found = read_segments(values, some, parts, frame.lattice, frame.taps.stencil)
            where = _where(some)
            sums, ends = found, np.empty((2, C, found.shape[1]))
            for c in range(C):
                ends[:, c] = intervals(np.stack([found[c], np.zeros(found.shape[1])]), margins[c])
                off = np.flatnonzero(np.isnan(found[c]))
                if off.size:
                    most = totals[c] * _kernel_of_box(rows[where][off], boxes[c])
                    most = np.maximum(most, _TINY)  # what underflows is not known to be 0
                    ends[0, c, off], ends[1, c, off], sums[c, off] = 0.0, most, most / 2
            by_share = problem.factors is not None
            accepted[where] = _within(sums, ends, problem.rtol, by_share)
            with np.errstate(divide="ignore"):
                logs[where] = np.log(sums).T

        ordered = lattices.in_order(rows, np.array([0, problem.m]))
        engine.for_each(task, ordered.tasks(), n_jobs=self.n_jobs, label=label)

    def _totals(self) -> np.ndarray:
        """Return the weights of all points of each segment (C,)."""
        segments = self.problem.segments
        return self.problem.weights[segments.offsets[:-1]] * segments.sizes


def _where(some: Rows) -> np.ndarray | slice:
    """Return the numbers of some rows."""
    part = slice(some.first, some.last)
    return some.order[part] if some.order.size else part


def _kernel_of_box(rows: np.ndarray, box: Box) -> np.ndarray:
    """Return the largest kernel (m,) that rows have with a point in a box, from above."""
    beyond = np.maximum(0, np.maximum(box.lower - rows, rows - box.upper))
    return np.exp(-(beyond**2).sum(axis=1) * (1 - 1e-12)) * (1 + 1e-12)


def _within(sums: np.ndarray, ends: np.ndarray, rtol: float, by_share: bool) -> np.ndarray:
    """Return which queries' sums (C, m) with bounds (2, C, m) are within the tolerance."""
    lower, upper = ends
    with np.errstate(invalid="ignore", divide="ignore"):
        if not by_share:
            within = (upper - sums <= rtol * lower) & (sums - lower <= rtol * lower)
            return within.all(axis=0)
        share = sums / sums.sum(axis=0)
        most = upper / (upper + (lower.sum(axis=0) - lower))
        least = lower / (lower + (upper.sum(axis=0) - upper))
        within = (most - share <= rtol / 2) & (share - least <= rtol / 2)
    return within.all(axis=0)
