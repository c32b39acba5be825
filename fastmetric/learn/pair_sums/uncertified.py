"""Queries of a lattice that it cannot certify, summed by the other ways.

If sums count only through their shares of a total, points far from all of these queries are left
out, and what they add at most is in the bounds [GRD-6].
"""

from __future__ import annotations

import math

import numpy as np

from fastmetric.learn.chooser import choose
from fastmetric.learn.lattices.nearby_points import NearbyPoints, Negligible, nearby_points
from fastmetric.learn.lattices.point_lattice import PointLattice
from fastmetric.learn.pair_sums.all_pairs import RowPairs
from fastmetric.learn.pair_sums.certificate import certified_ends
from fastmetric.learn.pair_sums.class_trees import ClassTrees
from fastmetric.learn.pair_sums.problem import (
    ClassSums,
    PairProblem,
    PairSums,
    Queries,
    RowWeights,
    Segments,
)

_WAYS: tuple[type[PairSums], ...] = (ClassTrees, RowPairs)
_LEFT_OUT = 0.05  # of the tolerance, by points that are left out


class Uncertified:
    """Some queries of a problem."""

    def __init__(
        self,
        problem: PairProblem,
        numbers: np.ndarray,
        frame: PointLattice | None,
        n_jobs: int | None,
    ) -> None:
        """Take the queries by their numbers (k,), and a lattice over all points, if any."""
        self.numbers, asked = numbers, problem.asked()
        if isinstance(problem.queries, Queries):
            self._problem = problem._replace(queries=Queries(*(part[numbers] for part in asked)))
        else:
            self._problem = problem._replace(queries=asked.self_index[numbers])
        self._near = self._nearby(frame)
        if self._near is None:
            self.way = choose(self._problem, _WAYS, n_jobs=n_jobs)
        else:
            self.way = RowPairs(self._among(self._near.numbers), n_jobs)

    @property
    def pair_share(self) -> float:
        """Return the share of the pairs that were visited in the last `log_sums`."""
        return self.way.pair_share * self.way.problem.n / self._problem.n

    def _nearby(self, frame: PointLattice | None) -> NearbyPoints | None:
        """Return the points that matter; None, if all are to be taken."""
        problem = self._problem
        if frame is None or problem.factors is None or problem.per_segment:
            return None
        weights = problem.weights
        least = math.log(float(weights.min())) - math.log(float(weights.sum()))
        log_share = least + math.log(_LEFT_OUT * problem.rtol)
        rows = problem.asked().rows
        found = nearby_points(frame, problem.points, rows, Negligible(log_share), leave_out=True)
        return None if found is None or 2 * len(found.numbers) > problem.n else found

    def _among(self, points: np.ndarray) -> PairProblem:
        """Return the sums over some of the points, by their numbers, rising."""
        problem = self._problem
        rows, itself, segments = problem.asked()
        place = np.minimum(np.searchsorted(points, itself), len(points) - 1)
        return problem._replace(
            points=problem.points[points],
            segments=Segments(np.searchsorted(points, problem.segments.offsets)),
            weights=problem.weights[points],
            queries=Queries(rows, np.where(points[place] == itself, place, -1), segments),
        )

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the log sums of the queries; their bounds contain rounding."""
        found = self.way.log_sums(label)
        if not self._problem.bounds:
            return found
        own, other = certified_ends(self._problem, found, np.zeros(len(self.numbers)))
        if self._near is not None:
            left_out = self._near.log_left_out + math.log(float(self._problem.weights.sum()))
            own[1], other[1] = np.logaddexp(own[1], left_out), np.logaddexp(other[1], left_out)
        return ClassSums(found.own, found.other, own, other)

    def add_gradient(self, weights: RowWeights, U: np.ndarray, label: str | None = None) -> None:
        """Add the gradient at the points to U (n, d), by the weights (k,) of the queries."""
        found = self.way.gradient(weights, label)
        if self._near is None:
            U += found.points
        else:
            U[self._near.numbers] += found.points
            U[self._problem.queries] += found.queries

    def by_segment(self, label: str | None = None) -> np.ndarray:
        """Return the log sums over every segment (k, C); nothing is left out."""
        return self.way.by_segment(label)
