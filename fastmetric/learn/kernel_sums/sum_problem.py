"""What is summed at queries (`SumProblem`), and what every way to sum offers (`SumWay`)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fastmetric.core.walk.interaction_lists import Walk
from fastmetric.core.walk.query_groups import Queries, Rule
from fastmetric.learn.chooser import Way

if TYPE_CHECKING:
    from fastmetric.learn.kernel_sums.log_sums import KernelSums

ROOT = np.array([0])


class Shifted(NamedTuple):
    """Log sums (m,), in units of the weights, and steps of mean shift (m, d)."""

    logs: np.ndarray
    steps: np.ndarray


class Options(NamedTuple):
    """How the sums of a problem may be taken."""

    in_float32: bool = True  # leaves of a tree, where the tolerance allows it
    flat: bool = False  # there is no tree: queries or points are few
    bounds: bool = True  # else the logs of bounds may be anything


class SumProblem:
    """The sums over all points at some queries, to a tolerance.

    Trees of points and of queries are built when a way asks for them.
    """

    def __init__(
        self,
        sums: KernelSums,
        query: np.ndarray | None,
        rule: Rule,
        own: np.ndarray | None = None,
        options: Options = Options(),  # noqa: B008 (immutable)
    ) -> None:
        """Take queries (m, d), or None: all points, each left out of its own sum.

        `own` (m,): the point that a query is, to be left out, or -1; None: no query is one.
        """
        self.sums, self.query, self.rule, self._own = sums, query, rule, own
        self.options = options
        # What sums over all pairs cost by products and by differences, once it has been counted.
        self.dense_costs: tuple[float, float] | None = None

    @property
    def n(self) -> int:
        """Return the number of points of positive weight."""
        return len(self.sums.points)

    @property
    def rows(self) -> np.ndarray:
        """Return the queries (m, d), in the units and the precision of the points."""
        X = self.sums.X
        return X if self.query is None else self.query.astype(X.dtype, copy=False)

    @property
    def own(self) -> np.ndarray | None:
        """Return the points (m,) that the queries are, left out of their sums; -1: none."""
        return np.arange(len(self.sums.X)) if self.query is None else self._own

    @cached_property
    def grouped(self) -> tuple[np.ndarray, Queries]:
        """Return the caller's row of each query, and the queries, grouped by a tree."""
        return self.sums.grouped(self.rows, self.own, self.options.flat)

    def walk(self) -> Walk:
        """Return the walk over all points."""
        reference = self.sums.flat_reference if self.options.flat else self.sums.reference
        return Walk(reference, self.rule, ROOT)

    def flat(self) -> SumProblem:
        """Return the same without a tree of points or queries."""
        options = self.options._replace(flat=True)
        return SumProblem(self.sums, self.query, self.rule, self._own, options)

    def over_leaves(self) -> Walk:
        """Return the walk, leaves in float32 if the tolerance allows it [SUM-8]."""
        return self.sums.walk_over_leaves(self.rule) if self.options.in_float32 else self.walk()

    def some(self, numbers: np.ndarray, *, flat: bool = False) -> SumProblem:
        """Return the same for some of the queries, by their numbers."""
        own = None if self.own is None else self.own[numbers]
        options = self.options._replace(flat=flat)
        return SumProblem(self.sums, self.rows[numbers], self.rule, own, options)

    def at(self, query: np.ndarray, *, flat: bool = False) -> SumProblem:
        """Return the same at other queries (m, d), none of which is a point to be left out."""
        return SumProblem(self.sums, query, self.rule, options=self.options._replace(flat=flat))

    def within(self, rtol: float) -> SumProblem:
        """Return the same to another relative tolerance."""
        rule = self.rule._replace(rtol=rtol)
        return SumProblem(self.sums, self.query, rule, self._own, self.options)

    def among(self, numbers: np.ndarray, share: float) -> SumProblem:
        """Return the sums over some of the points, within a share of the tolerance.

        `numbers` (k,) are those of the points of positive weight.
        """
        own, sums = self.own, self.sums.among(numbers)
        if own is not None:
            place = np.full(len(self.sums.X) + 1, -1)  # the last one: no point
            place[self.sums.kept[numbers]] = np.arange(len(numbers))
            own = place[own]
        unit = float(np.ldexp(1.0, self.sums.unit - sums.unit))
        rule = self.rule._replace(rtol=share * self.rule.rtol, atol=share * self.rule.atol * unit)
        return SumProblem(sums, self.rows, rule, own)


class SumWay(Way, Protocol):
    """A way to sum kernels over all points at many queries."""

    def log_sums(self, label: str | None = None, rule: Rule | None = None) -> np.ndarray:
        """Return the logs of the sums and of their bounds (3, m), up to rounding.

        By another `rule` than the problem's, if given.
        """


class SteppingWay(Way, Protocol):
    """A way to take steps of mean shift."""

    @property
    def rtol(self) -> float:
        """Return the relative tolerance of the sums."""

    def at(self, query: np.ndarray) -> SteppingWay:
        """Return a way for other queries of the same problem."""

    def mean_shift(self, label: str | None = None) -> Shifted:
        """Return log sums and steps of mean shift [SHI-1], gradients of these sums."""
