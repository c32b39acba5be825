"""What is summed over pairs (`PairProblem`), and what every method of summing offers (`PairSums`).

Points lie in segments: classes, or one segment of all. A query has sums of weighted kernels k(s),
s the squared distance, over its own segment and over the others; the Gaussian is exp(-s).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from fastmetric.learn import costs
from fastmetric.learn.chooser import Way


class Segments(NamedTuple):
    """Where the segments lie among points that are sorted by them."""

    offsets: np.ndarray  # (C + 1,): segment c is offsets[c]:offsets[c + 1]

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of points of each segment (C,)."""
        return np.diff(self.offsets)

    def numbers(self, points: np.ndarray) -> np.ndarray:
        """Return the segments of some points, given by their numbers."""
        return np.searchsorted(self.offsets, points, side="right") - 1


class Queries(NamedTuple):
    """Queries that are rows of their own, beside the points."""

    rows: np.ndarray  # (m, d)
    self_index: np.ndarray  # (m,): the point that is the query, left out of its sums; -1: none
    segments: np.ndarray  # (m,): the own segment; not read by `PairSums.by_segment`


class PairProblem(NamedTuple):
    """What is to be summed: queries against points."""

    points: np.ndarray  # (n, d), sorted by segment
    segments: Segments
    weights: np.ndarray  # (n,), of the points' kernels
    code: int  # of the kernel
    # An array: points, by their distinct numbers, rising; None: all points.
    queries: Queries | np.ndarray | None = None
    distance_dims: int | None = None  # distances in so many first coordinates, gradients in all
    rtol: float = 0.0  # of sums of a kernel with tails
    per_segment: bool = False  # `by_segment` is asked for; else `log_sums` and `gradient`
    # (C,): sums count only through f own / (f own + other), with the factor f of the own segment
    # (by segment: through their shares of all); None: each by itself.
    factors: np.ndarray | None = None
    bounds: bool = True  # else the bounds of `ClassSums` may be anything

    @property
    def n(self) -> int:
        """Return the number of points."""
        return len(self.points)

    @property
    def m(self) -> int:
        """Return the number of queries."""
        if self.queries is None:
            return self.n
        return len(self.queries.rows if isinstance(self.queries, Queries) else self.queries)

    @property
    def dims(self) -> int:
        """Return the number of coordinates that distances are taken in."""
        return self.points.shape[1] if self.distance_dims is None else self.distance_dims

    def asked(self) -> Queries:
        """Return the queries with their rows, whatever they are given by."""
        if isinstance(self.queries, Queries):
            return self.queries
        chosen = np.arange(self.n) if self.queries is None else self.queries
        rows = self.points if self.queries is None else self.points[chosen]
        return Queries(rows, chosen, self.segments.numbers(chosen))

    def dense_cost(self, table: costs.Costs, *, by_rows: bool) -> float:
        """Return what all pairs cost by a table, in nanoseconds.

        Row blocks visit a pair of points twice, symmetric blocks once.
        """
        pair = table.dense_pair + table.per_dimension * self.dims
        return self.n * self.m * pair * (2 if by_rows and not self.per_segment else 1)


class ClassSums(NamedTuple):
    """Logs of the sums (m,) over the own segment and over the others, and certified bounds."""

    own: np.ndarray
    other: np.ndarray
    own_ends: np.ndarray | None = None  # (2, m), lower and upper; None: exact up to rounding
    other_ends: np.ndarray | None = None


class RowWeights(NamedTuple):
    """The weights of a gradient, (m,) each: the adjoint of the log sums.

    A pair of query i and point j has the weight w_j k(s_ij) / exp(log_totals[i]), times own[i]
    within a segment and other[i] between segments (-k' in the place of k, if they differ).
    """

    log_totals: np.ndarray
    own: np.ndarray
    other: np.ndarray


class Gradient(NamedTuple):
    """Sums of weighted differences u [CCK-6], at the points and at queries of their own."""

    points: np.ndarray  # (n, d); with what comes to the queries that are points
    queries: np.ndarray | None = None  # (m, d) for `Queries`


class PairSums(Way, Protocol):
    """A method of summing over the pairs of one `PairProblem`."""

    @property
    def problem(self) -> PairProblem:
        """Return what is summed."""

    @property
    def pair_share(self) -> float:
        """Return the share of the pairs that were visited in the last `log_sums`."""

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the log sums of the queries."""

    def gradient(self, weights: RowWeights, label: str | None = None) -> Gradient:
        """Return the gradient; after `log_sums`."""

    def by_segment(self, label: str | None = None) -> np.ndarray:
        """Return the log sums over every segment (m, C); nothing is left out."""

    def with_queries(self, queries: Queries) -> PairSums:
        """Return the sums of other queries against the same points."""
