"""The ways to sum kernels over all points at many queries, for `learn.chooser.choose`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

from fastmetric.core.walk.interaction_lists import Walk
from fastmetric.core.walk.query_groups import Queries
from fastmetric.learn import costs
from fastmetric.learn.chooser import Way
from fastmetric.learn.kernel_sums.certified_walks import Probe, predicted_work


class WalkProblem(NamedTuple):
    """What is summed: all points of one tree, at grouped queries."""

    queries: Queries
    walk: Walk  # which points, and to which tolerance
    over_leaves: Callable[[], Walk]  # the same; leaves may be in float32, written on demand

    @property
    def n(self) -> int:
        """Return the number of points."""
        return int(self.walk.ref.tree.stops[0])


class WalkWay(Way, Protocol):
    """A way to sum that is a walk."""

    @property
    def walk(self) -> Walk:
        """Return the walk that the queries take."""


class TreeWalk:
    """Nodes of the tree that are far away, or of no weight, are not opened."""

    all_pairs: ClassVar[bool] = False
    name = "tree"

    def __init__(self, problem: WalkProblem, n_jobs: int | None = None) -> None:
        """Take a walk over leaves."""
        self.problem, self.n_jobs, self.walk = problem, n_jobs, problem.over_leaves()

    @staticmethod
    def serves(problem: WalkProblem) -> bool:
        """Return True: a tree serves every problem."""
        return True

    @staticmethod
    def worth_building(problem: WalkProblem, n_jobs: int | None = None) -> bool:
        """Return whether points are many; the tree itself is there in any case."""
        return problem.n >= costs.TREE_POINTS

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds: by counts, from a few groups."""
        queries, table = self.problem.queries, costs.SUMS
        if self.walk.rule.in_float32:
            table = costs.SUMS_IN_FLOAT32
        groups = [Probe(queries, g, (self.walk,)) for g in range(len(queries.starts))]
        work = predicted_work(groups, self.n_jobs)
        pair = table.leaf_pair + table.per_dimension * queries.rows.shape[1]
        counted = work.pairs * pair + work.expansions * table.expansion + work.nodes * table.node
        return counted * len(queries.rows) / work.queries


class ExactWalk:
    """All points, in large tiles."""

    all_pairs: ClassVar[bool] = True
    name = "all pairs"

    def __init__(self, problem: WalkProblem, n_jobs: int | None = None) -> None:
        """Take a walk that leaves nothing out."""
        self.problem, self.walk = problem, problem.walk._replace(exact=True)

    @staticmethod
    def serves(problem: WalkProblem) -> bool:
        """Return True: all pairs serve every problem."""
        return True

    @staticmethod
    def worth_building(problem: WalkProblem, n_jobs: int | None = None) -> bool:
        """Return True: there is nothing to build."""
        return True

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds."""
        (m, d), table = self.problem.queries.rows.shape, costs.SUMS
        return self.problem.n * m * (table.dense_pair + table.per_dimension * d)


WAYS: tuple[type[WalkWay], ...] = (TreeWalk, ExactWalk)
