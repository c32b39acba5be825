"""Sums over segments and their gradient by k-d trees, one per segment.

Queries of one segment are neighbours in a tree, and are summed in groups over the tree of their
segment (each point left out of its own sum) and over all the other trees. The error of a group's
sums is bounded, which certifies an objective [SUM-5]; sums of a compact kernel are exact, and
points beyond its cutoff are omitted.
"""

from __future__ import annotations

import math
from copy import copy
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.error_bounds import log_rounding
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.pairs.pair_tiles import ALIGN
from fastmetric.core.tree.balanced_tree import Tree
from fastmetric.core.vector.panel_scan import UNIT
from fastmetric.core.walk.gradient_replay import Sources, Targets, replay_gradient, share_out
from fastmetric.core.walk.interaction_lists import PAIRS, Walk
from fastmetric.core.walk.query_groups import Queries as GroupedQueries
from fastmetric.core.walk.query_groups import Rule
from fastmetric.learn import costs
from fastmetric.learn.kernel_sums.certified_walks import (
    Interactions,
    Probe,
    WalkSums,
    Work,
    group_starts,
    in_float32,
    predicted_work,
    walk_sums,
)
from fastmetric.learn.kernel_table import EXP_BANDWIDTH
from fastmetric.learn.pair_sums.problem import (
    ClassSums,
    Gradient,
    PairProblem,
    Queries,
    RowWeights,
)
from fastmetric.learn.tree_building import (
    LEAF_SIZE,
    SUMS_LEAF_SIZE,
    build_tree,
    build_trees,
    summarised,
)

_PARTS = 32  # tasks of the gradient at most: each returns an array over all points


class _Groups(NamedTuple):
    """Queries that share their walks, grouped."""

    segment: int  # their own
    rows: np.ndarray  # of the result, in the order of the queries
    queries: GroupedQueries


class ClassTrees:
    """The k-d trees of all segments."""

    all_pairs: ClassVar[bool] = False
    method: ClassVar[str] = "tree"
    name = "trees"

    def __init__(self, problem: PairProblem, n_jobs: int | None = None) -> None:
        """Build the trees; sums of the Gaussian are within problem.rtol, others exact."""
        self.n_jobs, points, code = n_jobs, problem.points, problem.code
        eps = float(np.finfo(points.dtype).eps)
        self._rule = Rule(code, 1.0, max(problem.rtol, eps / 2) if code == GAUSSIAN else 0.0, 0.0)
        offsets, sizes = problem.segments.offsets, problem.segments.sizes
        # Without a gradient, a pair is cheap relative to a node.
        leaf_size = SUMS_LEAF_SIZE if problem.per_segment else LEAF_SIZE
        self._trees = build_trees([points[a:b] for a, b in pairwise(offsets)], leaf_size, n_jobs)
        # Every tree begins with a new panel; the padding between trees is never read.
        bases = np.concatenate([[0], np.cumsum(sizes + -sizes % UNIT)])
        self.roots = np.concatenate([[0], np.cumsum([len(tree.starts) for tree in self._trees])])
        rows = np.zeros((bases[-1] + -bases[-1] % ALIGN, points.shape[1]), points.dtype)
        self.places = np.empty(len(points), np.intp)  # of the points among the trees' rows
        point_weights = np.ones(len(rows))
        for a, base, tree in zip(offsets, bases, self._trees, strict=False):
            rows[base : base + len(tree.rows)] = tree.rows
            self.places[a + tree.order] = base + np.arange(len(tree.rows))
        point_weights[self.places] = problem.weights
        self.reference = summarised(
            _joined(self._trees, rows, bases, self.roots),
            point_weights,
            EXP_BANDWIDTH,
            [[(int(a), int(b)) for a, b in pairwise(self.roots)]],
            expanded=code == GAUSSIAN,
            n_jobs=n_jobs,
        )
        self.cols = np.ascontiguousarray(rows.T)
        self._ask(problem)

    def _ask(self, problem: PairProblem) -> None:
        """Take the queries of a problem whose points are in the trees."""
        self.problem, self._free = problem, isinstance(problem.queries, Queries)
        self._groups: list[_Groups] | None = None  # by their own segment
        self._together: _Groups | None = None  # all of them, for sums by segment
        self._found: list[tuple[_Groups, int, WalkSums]] = []  # own or other, sums

    @staticmethod
    def serves(problem: PairProblem) -> bool:
        """Return whether distances are taken in all coordinates, as a tree's gradient is."""
        return problem.dims == problem.points.shape[1]

    @staticmethod
    def worth_building(
        problem: PairProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return whether dimensions are few and points are many, also in a segment in the mean.

        Sums with a gradient need a quarter as many queries, which pay for the trees of all points.
        Building alone has to cost less than the best structure so far.
        """
        if _table(problem).point * problem.n >= best:
            return False
        n, m = problem.n, problem.m
        sparse = n < costs.TREE_ROWS_PER_SEGMENT * len(problem.segments.sizes)
        if problem.dims > costs.TREE_DIMENSIONS or sparse:
            return False
        if problem.per_segment:
            return n * m >= costs.TREE_PAIRS
        return min(n, 4 * m) >= costs.TREE_ROWS

    def with_queries(self, queries: Queries) -> ClassTrees:
        """Return the sums of other queries over the same trees."""
        other = copy(self)
        other._ask(self.problem._replace(queries=queries))
        return other

    def _by_own_segment(self) -> list[_Groups]:
        """Return the queries of every segment, grouped."""
        if self._groups is None:
            if self.problem.queries is None:
                starts = self.problem.segments.offsets
                self._groups = [
                    _grouped(c, a + tree.order, tree, self.places[a + tree.order])
                    for c, (a, tree) in enumerate(zip(starts, self._trees, strict=False))
                ]
            else:
                asked = self.problem.asked()
                self._groups = [
                    self._some(int(c), asked, np.flatnonzero(asked.segments == c))
                    for c in np.unique(asked.segments)
                ]
        return self._groups

    def _some(self, c: int, asked: Queries, rows: np.ndarray) -> _Groups:
        """Return some of the queries, which are of segment c, grouped."""
        tree = build_tree(asked.rows[rows], n_jobs=self.n_jobs)
        rows = rows[tree.order]
        self_index = asked.self_index[rows]
        return _grouped(c, rows, tree, np.where(self_index >= 0, self.places[self_index], -1))

    def _all_together(self) -> _Groups:
        """Return all queries, grouped; none is a point."""
        if self._together is None:
            tree = build_tree(self.problem.asked().rows, SUMS_LEAF_SIZE, self.n_jobs)
            self._together = _grouped(-1, tree.order, tree, np.full(self.problem.m, -1))
        return self._together

    def _walks(self, c: int) -> tuple[Walk, ...]:
        """Return the walks of a segment over its own tree and over the others, if there are any."""
        roots = self.roots[:-1]
        own = Walk(self.reference, self._rule, roots[c : c + 1], keep=True)
        others = own._replace(roots=np.delete(roots, c))
        return (own, others) if others.roots.size else (own,)

    def _walks_by_segment(self) -> tuple[Walk, ...]:
        """Return a walk over every tree, leaves in float32 if the tolerance allows it [SUM-8]."""
        self.reference, rule = in_float32(self.reference, self._rule, EXP_BANDWIDTH, self.n_jobs)
        return tuple(Walk(self.reference, rule, np.array([root])) for root in self.roots[:-1])

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds: by counts, from a few groups."""
        problem, by_segment = self.problem, self.problem.per_segment
        if by_segment:
            asked = [(self._all_together(), self._walks_by_segment())]
        else:
            asked = [(some, self._walks(some.segment)) for some in self._by_own_segment()]
        groups = [
            Probe(some.queries, g, walks)
            for some, walks in asked
            for g in range(len(some.queries.starts))
        ]
        work = predicted_work(groups, self.n_jobs)
        # A query of a probe was summed in every walk.
        share = problem.m / (work.queries / len(groups[0].walks))
        return share * self._cost_of(work, groups[0].walks[0]) + _table(problem).point * problem.n

    def _cost_of(self, work: Work, walk: Walk) -> float:
        """Return what the work of some walks takes, in nanoseconds."""
        d, table = len(self.cols), _table(self.problem)
        pair, each = table.leaf_pair + table.per_dimension * d, d + 2
        if self.problem.per_segment:
            each = 1
            if walk.rule.in_float32:
                pair += costs.SUMS_IN_FLOAT32.leaf_pair - costs.SUMS.leaf_pair
        at_queries = work.expansions * table.expansion + work.underflowed * table.underflowed
        return work.pairs * pair + work.nodes * table.node + at_queries * each

    @property
    def pair_share(self) -> float:
        """Return the share of the pairs that were visited in the last `log_sums`."""
        tree, visited = self.reference.tree, 0.0
        for _, _, found in self._found:
            for part in found.interactions:
                nodes, codes = part.lists.visits.T
                sizes = np.where(codes == PAIRS, tree.stops[nodes] - tree.starts[nodes], 0)
                visited += float(np.repeat(part.lengths(), part.lists.counts) @ sizes)
        return visited / (self.problem.m * self.problem.n)

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the log sums of the queries."""
        m, d = self.problem.m, len(self.cols)
        both = np.full((2, 3, m), -np.inf)
        walks = [
            (some, k, walk)
            for some in self._by_own_segment()
            for k, walk in enumerate(self._walks(some.segment))
        ]
        found = walk_sums([(some.queries, walk) for some, _, walk in walks], self.n_jobs, label)
        self._found = [(some, k, one) for (some, k, _), one in zip(walks, found, strict=True)]
        for some, k, one in self._found:
            both[k][:, some.rows] = one.logs()
        if self._rule.code != GAUSSIAN:
            return ClassSums(both[0, 0], both[1, 0])
        total = np.log(self.reference.nodes.weights[self.roots[:-1]].sum())
        size = np.maximum(np.abs(both), total - both)
        size = np.where(np.isfinite(both), size, 0).max(axis=1)
        rounding = log_rounding(d, size, float(np.finfo(self.cols.dtype).eps))
        both[:, 1] -= rounding
        both[:, 2] += rounding
        return ClassSums(both[0, 0], both[1, 0], both[0, 1:], both[1, 1:])

    def by_segment(self, label: str | None = None) -> np.ndarray:
        """Return the log sums over every segment (m, C); nothing is left out."""
        asked, walks = self._all_together(), self._walks_by_segment()
        found = walk_sums([(asked.queries, walk) for walk in walks], self.n_jobs, label)
        logs = np.empty((self.problem.m, len(walks)))
        for c, one in enumerate(found):
            logs[asked.rows, c] = one.logs()[0]
        return logs

    def gradient(self, weights: RowWeights, label: str | None = None) -> Gradient:
        """Return the gradient at the points, and at the queries if these are rows of their own.

        Along the interaction lists of the last `log_sums`.
        """
        jobs = []
        for some, k, found in self._found:
            sources = Sources(weights.log_totals[some.rows], weights[1 + k][some.rows])
            jobs += _jobs(some, found, sources)
        step = -(-len(jobs) // _PARTS)
        parts = [jobs[i : i + step] for i in range(0, len(jobs), step)]
        at_points = np.zeros(self.cols.shape)
        adjoints = np.zeros(self.reference.nodes.coefficients.shape)
        # Zeros; fresh memory costs more than clearing.
        spare: list[tuple[np.ndarray, np.ndarray]] = []

        def add_jobs(part: list[_Job]) -> tuple[np.ndarray, np.ndarray]:
            try:
                to_points, to_nodes = spare.pop()
            except IndexError:
                to_points, to_nodes = np.zeros(at_points.shape), np.zeros(adjoints.shape)
            for (queries, lists), sources, mine, _ in part:
                here = Targets(mine, to_points, to_nodes)
                ways = self.reference, self.cols, self._rule
                replay_gradient(queries, *ways, sources, here, lists)
            return to_points, to_nodes

        for gradient_rows in engine.run(add_jobs, parts, n_jobs=self.n_jobs, label=label):
            for whole, one in zip((at_points, adjoints), gradient_rows, strict=True):
                whole += one
                one.fill(0)
            spare.append(gradient_rows)
        at_queries = np.zeros((self.problem.m, len(self.cols)))
        for job in {id(job.mine): job for job in jobs}.values():
            if self._free:
                at_queries[job.rows] += job.mine
            else:
                at_points[:, job.interactions.queries.self_index] += job.mine.T

        def share(part: tuple[int, int]) -> None:
            share_out(self.reference, self._rule, adjoints, at_points, *part)

        for _ in engine.run(share, list(pairwise(self.roots)), n_jobs=self.n_jobs):
            pass
        return Gradient(at_points.T[self.places], at_queries if self._free else None)


def _table(problem: PairProblem) -> costs.Costs:
    """Return the table of costs for the sums requested."""
    return costs.SUMS_BY_SEGMENT if problem.per_segment else costs.SUMS_AND_GRADIENT


class _Job(NamedTuple):
    """Some groups whose gradient follows their interaction list."""

    interactions: Interactions
    sources: Sources
    mine: np.ndarray  # (m, d): the gradient at the queries
    rows: np.ndarray  # (m,): the queries, among all


def _grouped(segment: int, rows: np.ndarray, tree: Tree, self_index: np.ndarray) -> _Groups:
    """Return the points of a tree as groups of queries."""
    starts = group_starts(tree)
    stops = np.append(starts[1:], len(tree.rows))
    queries = GroupedQueries(tree.rows, self_index, starts, stops, np.zeros(len(starts)))
    return _Groups(segment, rows, queries)


def _jobs(some: _Groups, found: WalkSums, sources: Sources) -> list[_Job]:
    """Return the jobs of one segment's queries over some trees; underflowed ones go alone."""
    queries, few = some.queries, found.underflowed
    plain = sources.strengths.copy()
    plain[few] = 0
    together = sources._replace(strengths=plain), np.zeros(queries.rows.shape), some.rows
    mine = np.zeros((len(few), queries.rows.shape[1]))
    alone = Sources(*(part[few] for part in sources)), mine, some.rows[few]
    return [
        _Job(part, *(together if part.queries is queries else alone)) for part in found.interactions
    ]


def _joined(trees: list[Tree], rows: np.ndarray, bases: np.ndarray, roots: np.ndarray) -> Tree:
    """Return trees side by side as one: points from `bases` on, nodes from `roots` on."""
    shifted = list(zip(trees, bases, roots, strict=False))
    return Tree(
        np.arange(len(rows)),
        rows,
        np.concatenate([tree.starts + base for tree, base, _ in shifted]),
        np.concatenate([tree.stops + base for tree, base, _ in shifted]),
        np.concatenate([np.where(t.children < 0, -1, t.children + root) for t, _, root in shifted]),
        np.concatenate([tree.lower for tree in trees]),
        np.concatenate([tree.upper for tree in trees]),
    )
