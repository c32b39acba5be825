"""Sums of kernels over all points by walks: over a tree, or over all pairs."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np

from fastmetric import engine
from fastmetric.core.walk.exact_sums import exact_mean_shift
from fastmetric.core.walk.interaction_lists import Walk
from fastmetric.core.walk.mean_shift_replay import replay_mean_shift
from fastmetric.core.walk.query_groups import Rule
from fastmetric.learn import costs
from fastmetric.learn.chooser import choose
from fastmetric.learn.kernel_sums.certified_walks import (
    Interactions,
    Probe,
    predicted_work,
    walk_sums,
)
from fastmetric.learn.kernel_sums.sum_problem import Shifted, SteppingWay, SumProblem

# Of a sample of queries and points: squared distances below a quarter of the median are those of
# near points; a tree is of use if these are not too few, or if exponents are alike.
_FEW, _MANY, _NEARER, _NEAR_SHARE, _ALIKE = 16, 512, 0.25, 0.01, 1.0
_LARGEST = -np.log(np.finfo(float).tiny)


class _WalkSums:
    """Sums by a walk."""

    problem: SumProblem
    n_jobs: int | None

    @cached_property
    def walk(self) -> Walk:
        """Return the walk that the queries take."""
        raise NotImplementedError

    def log_sums(self, label: str | None = None, rule: Rule | None = None) -> np.ndarray:
        """Return the logs of the sums and of their bounds (3, m), up to rounding."""
        order, queries = self.problem.grouped
        walk = self.walk if rule is None else self.walk._replace(rule=rule)
        [found] = walk_sums([(queries, walk)], self.n_jobs, label)
        unit = self.problem.sums.unit
        whole = found._replace(total=np.ldexp(found.total, unit), error=np.ldexp(found.error, unit))
        # The unit is multiplied before the log where possible: logs of opposite sign cancel.
        apart, logs = found.logs() + unit * np.log(2), whole.logs()
        out = np.empty(logs.shape)
        with np.errstate(invalid="ignore"):  # a shift beyond float32 is infinite
            out[:, order] = np.where(np.abs(logs + found.shift) < _LARGEST, logs, apart)
        return out

    def mean_shift(self, label: str | None = None) -> Shifted:
        """Return log sums and steps of mean shift [SHI-1], gradients of these sums."""
        order, queries = self.problem.grouped
        walk = self.walk._replace(keep=True)
        [found] = walk_sums([(queries, walk)], self.n_jobs, label)

        def task(part: Interactions) -> np.ndarray:
            queries, lists = part
            if walk.exact:
                return exact_mean_shift(queries, walk, lists.first, lists.first + len(lists.local))
            return replay_mean_shift(queries, walk, lists)

        together = np.empty(queries.rows.shape)
        alone = np.empty((len(found.underflowed), queries.rows.shape[1]))
        results = engine.run(task, found.interactions, n_jobs=self.n_jobs, label=label)
        for part, steps in zip(found.interactions, results, strict=True):
            start = part.queries.starts[part.lists.first]
            target = together if part.queries is queries else alone
            target[start : start + len(steps)] = steps
        together[found.underflowed] = alone
        logs, moves = np.empty(len(together)), np.empty(together.shape)
        logs[order], moves[order] = found.logs()[0], together
        return Shifted(logs, np.ldexp(moves, self.problem.sums.exponent))

    @property
    def rtol(self) -> float:
        """Return the tolerance of the sums."""
        return self.problem.rule.rtol

    def at(self, query: np.ndarray) -> SteppingWay:
        """Return the way by a walk that is chosen for other queries."""
        return choose(self.problem.at(query), WALKS, n_jobs=self.n_jobs)


class TreeWalk(_WalkSums):
    """Nodes of the tree that are far away, or of no weight, are not opened."""

    all_pairs: ClassVar[bool] = False
    method: ClassVar[str] = "tree"
    name = "tree"

    def __init__(self, problem: SumProblem, n_jobs: int | None = None) -> None:
        """Take the points and the queries."""
        self.problem, self.n_jobs = problem, n_jobs

    @cached_property
    def walk(self) -> Walk:
        """Return the walk; its leaves may be in float32."""
        return self.problem.over_leaves()

    @staticmethod
    def serves(problem: SumProblem) -> bool:
        """Return whether there is a tree."""
        return not problem.options.flat

    @staticmethod
    def worth_building(
        problem: SumProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return whether points are many, and building trees takes a small part of the best way.

        They are built to count their work, and mostly in vain where there is another way. Whether
        a tree is there already must not matter: the choice would depend on former calls.
        """
        least = problem.n * costs.TREE_POINT + len(problem.rows) * costs.TREE_QUERY
        allowed = costs.TREE_TRIAL + costs.TREE_TRIAL_SHARE * best
        return problem.n >= costs.TREE_POINTS and least < allowed and not _all_far(problem)

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds: by counts, from a few groups."""
        queries, table = self.problem.grouped[1], costs.SUMS
        if self.walk.rule.in_float32:
            table = costs.SUMS_IN_FLOAT32
        groups = [Probe(queries, g, (self.walk,)) for g in range(len(queries.starts))]
        work = predicted_work(groups, self.n_jobs)
        pair = table.leaf_pair + table.per_dimension * queries.rows.shape[1]
        counted = work.pairs * pair + work.expansions * table.expansion + work.nodes * table.node
        return counted * len(queries.rows) / work.queries


class ExactWalk(_WalkSums):
    """All points, in large tiles."""

    all_pairs: ClassVar[bool] = True
    method: ClassVar[str] = "exact"
    name = "all pairs"

    def __init__(self, problem: SumProblem, n_jobs: int | None = None) -> None:
        """Take a walk that leaves nothing out; few points need no tree."""
        self.problem = problem.flat() if problem.n < costs.TREE_POINTS else problem
        self.n_jobs = n_jobs

    @cached_property
    def walk(self) -> Walk:
        """Return the walk."""
        return self.problem.walk()._replace(exact=True)

    @staticmethod
    def serves(problem: SumProblem) -> bool:
        """Return True: all pairs serve every problem."""
        return True

    @staticmethod
    def worth_building(
        problem: SumProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return True: there is nothing to build."""
        return True

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds."""
        (m, d), table = self.problem.rows.shape, costs.SUMS
        return self.problem.n * m * (table.dense_pair + table.per_dimension * d)


def _all_far(problem: SumProblem) -> bool:
    """Return whether hardly any point is much nearer to a query than most points are.

    Then a tree leaves out nothing, unless the kernel is so wide that all its values are alike.
    A few queries show it, in so many dimensions that to build a tree and to walk it as a test would
    take a good part of the time of products.
    """
    if problem.rows.shape[1] < costs.PRODUCT_DIMENSIONS:
        return False
    few, many = (
        rows[:: -(-len(rows) // most)] * rows.dtype.type(problem.sums.row_unit)
        for rows, most in ((problem.rows, _FEW), (problem.sums.points, _MANY))
    )
    s = problem.rule.factor * np.array([((many - q) ** 2).sum(axis=1) for q in few])
    middle = np.median(s, axis=1, keepdims=True)
    near = np.count_nonzero(s < _NEARER * middle) / s.size
    spread = np.median(np.diff(np.quantile(s, (0.1, 0.9), axis=1), axis=0))
    return bool(near < _NEAR_SHARE and spread > _ALIKE)


WALKS: tuple[type[TreeWalk] | type[ExactWalk], ...] = (TreeWalk, ExactWalk)
