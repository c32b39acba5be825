"""Sums of Gaussians by a lattice, where its bounds allow it, and by walks elsewhere."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.lattice.stencils import AXES, LANES
from fastmetric.core.walk.query_groups import Rule
from fastmetric.learn import costs
from fastmetric.learn.chooser import choose
from fastmetric.learn.kernel_sums.sum_problem import SumProblem
from fastmetric.learn.kernel_sums.walk_ways import WALKS, ExactWalk
from fastmetric.learn.lattices.lattice_plan import Plan, plans
from fastmetric.learn.lattices.nearby_points import NearbyPoints, Negligible, nearby_points
from fastmetric.learn.lattices.point_lattice import (
    NO_WEIGHTS,
    Box,
    PointLattice,
    Sorting,
    box_of,
    shape_of,
)

_FEW = 128  # queries that are summed over all points rather than over a tree that has to be built
_FINEST, _COARSEST = 1e-9, 0.3  # tolerances below have no plan, wider ones that of the second
_BESIDE = 6.5  # bandwidths around the points in which queries are read off
_LIGHTER = 2.0  # nats: sums so far below the weight of a point are within the tolerance, too
_LEFT_OUT = 0.1  # of the tolerance, by points that do not matter to a query
_QUERIES = 1 << 15  # in a task that takes logs
_CELLS, _CELLS_PER_ROW = 1 << 21, 2  # of a lattice at most: so many, or for every point and query


class Fit(NamedTuple):
    """A plan, the box that its lattice covers, and how many cells that are."""

    plan: Plan
    rtol: float
    box: Box
    cells: float


class LatticeSums:
    """Points are spread onto a lattice, which is smoothed and read off at the queries [GRD-1]."""

    all_pairs: ClassVar[bool] = False
    method: ClassVar[str] = "grid"
    name = "grid"

    def __init__(self, problem: SumProblem, n_jobs: int | None = None) -> None:
        """Take the points and the queries."""
        self.problem, self.n_jobs = problem, n_jobs
        self.walked = 0  # queries of the last sums that the lattice could not certify

    @staticmethod
    def serves(problem: SumProblem) -> bool:
        """Return whether the kernel is Gaussian and dimensions are few."""
        return problem.rule.code == GAUSSIAN and problem.rows.shape[1] <= AXES

    @staticmethod
    def worth_building(
        problem: SumProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return whether points and queries are many."""
        return problem.n >= costs.TREE_POINTS and len(problem.rows) >= costs.GRID_QUERIES

    @cached_property
    def fit(self) -> Fit | None:
        """Return the cheapest plan; None, if every lattice has too many cells."""
        problem, sums = self.problem, self.problem.sums
        n, m = problem.n, len(problem.rows)
        box, most = self._box(), max(_CELLS, _CELLS_PER_ROW * (n + m))
        found = []
        for plan in _plans(problem):
            cells = math.prod(shape_of(plan, box, sums.bandwidth))
            if cells <= most and 1 / (plan.spacing * sums.bandwidth) < math.inf:
                found.append(Fit(plan, _tolerance(problem), box, cells))
        return min(found, key=self._price, default=None)

    def _box(self) -> Box:
        """Return the box of the points, with room for queries around it."""
        sums, query = self.problem.sums, self.problem.query
        points = sums.box
        if query is None:
            return points
        asked, beside = box_of(self.problem.rows, self.n_jobs), _BESIDE * sums.bandwidth
        return Box(
            np.minimum(points.lower, np.maximum(asked.lower, points.lower - beside)),
            np.maximum(points.upper, np.minimum(asked.upper, points.upper + beside)),
        )

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds."""
        return math.inf if self.fit is None else self._price(self.fit)

    def _price(self, fit: Fit) -> float:
        """Return what a lattice takes, in nanoseconds: by counts."""
        (m, d), table, plan = self.problem.rows.shape, costs.GRID, fit.plan
        each = table.place * d + table.row * plan.width ** (d - 1) * -(-plan.width // LANES)
        cell = table.cell + table.cell_tap * d * (plan.reach + 1)
        return (self.problem.n + m) * each + fit.cells * cell

    def log_sums(self, label: str | None = None, rule: Rule | None = None) -> np.ndarray:
        """Return the logs of the sums and of their bounds (3, m), up to rounding."""
        rule = self.problem.rule if rule is None else rule
        out = np.empty((3, len(self.problem.rows)))
        if self.fit is None:
            left, least = np.arange(out.shape[1]), None
        else:
            ends = self._intervals(self.fit, label)
            left = self._write_logs(ends, rule, out)
            least = ends[0, left]
        self.walked = len(left)
        if left.size:
            out[:, left] = self._walk(left, least, label)
        return out

    def _walk(self, left: np.ndarray, least: np.ndarray | None, label: str | None) -> np.ndarray:
        """Return the logs (3, k) of the sums at some queries, by their numbers, without a lattice.

        Over the points that matter to them, if a bound of what the others add is within a part of
        the tolerance. `least` (k,) are lower bounds of the sums.
        """
        problem, out = self.problem.some(left), np.empty((3, len(left)))
        again = np.arange(len(left))
        few = None if self.fit is None else self._nearby(self.fit, problem, least)
        if few is not None:
            part = problem.among(few.numbers, 1 - _LEFT_OUT)
            out[:] = choose(part, WALKS, n_jobs=self.n_jobs).log_sums(label)
            unit, total = problem.sums.log_unit, math.log(problem.sums.total)
            log_left_out = few.log_left_out + total + unit
            with np.errstate(divide="ignore"):
                rtol, atol = np.log([problem.rule.rtol, problem.rule.atol])
            allowed = np.logaddexp(rtol + out[1], atol + unit)
            again = np.flatnonzero(~(log_left_out <= math.log(_LEFT_OUT) + allowed))
            out[2] = np.logaddexp(out[2], log_left_out)
        if again.size > _FEW:
            out[:, again] = choose(problem.some(again), WALKS, n_jobs=self.n_jobs).log_sums(label)
        elif again.size:
            few_queries = problem.some(again, flat=True)
            out[:, again] = ExactWalk(few_queries, self.n_jobs).log_sums(label)
        return out

    def _nearby(
        self, fit: Fit, problem: SumProblem, least_sums: np.ndarray | None
    ) -> NearbyPoints | None:
        """Return the points that matter to some queries; None, if that is most of them."""
        sums, rule = problem.sums, problem.rule
        least = math.log(float(sums.any_weights.min())) - math.log(sums.total)
        share = max(rule.rtol, rule.atol / sums.total, _FINEST) * _LEFT_OUT / 2
        lattice, own = self._lattice(fit), problem.own is not None
        of_sums = None
        if least_sums is not None:
            with np.errstate(divide="ignore"):
                of_sums = np.log(least_sums) - math.log(sums.total) + math.log(share)
        negligible = Negligible(least + math.log(share), of_sums)
        found = nearby_points(lattice, sums.points, problem.rows, negligible, own)
        return None if found is None or 2 * len(found.numbers) > problem.n else found

    def _write_logs(self, ends: np.ndarray, rule: Rule, out: np.ndarray) -> np.ndarray:
        """Write the logs of the sums, from bounds (2, m), to `out` (3, m), as `log_sums`.

        Return the queries that are not within the tolerance.
        """
        shift, bounds = self.problem.sums.log_unit, self.problem.options.bounds

        def task(part: slice) -> np.ndarray:
            (lower, upper), logs = ends[:, part], out[:, part]
            accepted = upper - lower <= 2 * (rule.rtol * lower + rule.atol)
            with np.errstate(divide="ignore", invalid="ignore"):
                np.log((lower + upper) / 2, out=logs[0])
                if bounds:
                    np.log(ends[:, part], out=logs[1:])
                logs[: 3 if bounds else 1] += shift
            return part.start + np.flatnonzero(~accepted)

        parts = engine.ranges(out.shape[1], _QUERIES)
        return np.concatenate(list(engine.run(task, parts, n_jobs=self.n_jobs)))

    def _lattice(self, fit: Fit) -> PointLattice:
        """Return a lattice for the plan, without points."""
        return PointLattice(fit.plan, fit.rtol, fit.box, self.problem.sums.bandwidth, self.n_jobs)

    def smoothed(
        self, fit: Fit, label: str | None
    ) -> tuple[PointLattice, np.ndarray, Sorting | None]:
        """Return the lattice with all points, smoothed; and how they were sorted, if just made."""
        sums, sorting = self.problem.sums, None
        key = fit.plan, fit.rtol, *fit.box.lower, *fit.box.upper
        kept = sums.lattice
        if kept is None or kept[0] != key:
            lattice = self._lattice(fit)
            sorting = lattice.sorting(sums.points)
            values = lattice.spread(sums.points, sums.any_weights, sorting, label)
            kept = sums.lattice = key, lattice, values
        _, lattice, values = kept  # another thread may have replaced that of `sums` since
        return lattice, values, sorting

    def _own_weights(self) -> np.ndarray:
        """Return the weights (m,) of the points that the queries are, or (1,) of all; or none."""
        problem, sums = self.problem, self.problem.sums
        if problem.query is None and len(sums.points) == len(sums.X):
            return sums.any_weights
        own = problem.own
        if own is None:
            return NO_WEIGHTS
        by_point = np.zeros(len(sums.X) + 1)  # the last one: no point
        by_point[sums.kept] = sums.weights
        return by_point[own]

    def _intervals(self, fit: Fit, label: str | None) -> np.ndarray:
        """Return certified bounds (2, m) of the sums, lower and upper."""
        problem, sums = self.problem, self.problem.sums
        points, rows, own_weights = sums.points, problem.rows, self._own_weights()
        lattice, values, sorting = self.smoothed(fit, label)
        if sorting is None or rows is not points:
            sorting = lattice.sorting(rows)
        margins = lattice.margins(len(points), sums.total, own_weights.size > 0)
        return lattice.read(values, rows, sorting, own_weights, margins, label)


def _tolerance(problem: SumProblem) -> float:
    """Return the relative tolerance of the sums; that of the largest one, if it is absolute."""
    rtol = max(problem.rule.rtol, problem.rule.atol / problem.sums.total)
    return min(rtol, _COARSEST)


def _plans(problem: SumProblem) -> tuple[Plan, ...]:
    """Return the plans for a sum somewhat below the largest weight, which is 1 in its unit.

    There are none for a tolerance near rounding, among them that of sums without a tolerance.
    """
    if _tolerance(problem) < _FINEST:
        return ()
    log_mass = 2 * math.ceil((max(0.0, math.log(problem.sums.total)) + _LIGHTER) / 2)
    return plans(problem.rows.shape[1], _tolerance(problem), float(log_mass))
