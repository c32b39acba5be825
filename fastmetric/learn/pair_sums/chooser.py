"""Which method sums over the pairs of a problem."""

from __future__ import annotations

from fastmetric.core.kernels import GAUSSIAN
from fastmetric.learn import costs
from fastmetric.learn.pair_sums.all_pairs import (
    RowPairs,
    SymmetricPairs,
    cost_table,
    mostly_underflowed,
)
from fastmetric.learn.pair_sums.class_trees import ClassTrees
from fastmetric.learn.pair_sums.cutoff_grid import CutoffGrid
from fastmetric.learn.pair_sums.problem import PairProblem, PairSums

WAYS: tuple[type, ...] = (CutoffGrid, ClassTrees, SymmetricPairs, RowPairs)


def choose(problem: PairProblem, method: str = "auto", n_jobs: int | None = None) -> PairSums:
    """Return what sums over the pairs of a problem; the only place where "auto" is decided.

    There is one structure for every problem: the cutoff grid for the biweight in up to three
    dimensions, else the class trees, if distances are taken in all coordinates.

    * "tree": the structure.
    * "auto": the structure, if the problem is large enough to look at it, and if its cost,
      counted on a few groups of queries, is below the cost of all pairs. It is large enough

      - for the cutoff grid: from `costs.CUTOFF_QUERIES` queries on;
      - for class trees in up to `costs.TREE_DIMENSIONS` dimensions, with at least
        `costs.TREE_ROWS_PER_SEGMENT` points per segment in the mean: for sums by segment from
        `costs.TREE_PAIRS` pairs on; for sums with a gradient from `costs.TREE_ROWS` points on, if
        at least a quarter as many queries pay for the trees.
    * "exact", and "auto" otherwise: all pairs. If all points are queries, each unordered pair
      once, unless the sums of most points underflow; else query by query.
    """
    structure = CutoffGrid if CutoffGrid.serves(problem) else ClassTrees
    wanted = method == "tree" or (method == "auto" and _large_enough(problem, structure))
    if wanted and structure.serves(problem):
        way = structure(problem, n_jobs)
        dense = problem.dense_cost(cost_table(problem), by_rows=problem.queries is not None)
        if method == "tree" or costs.cheaper(way.cost(), dense):
            return way
    by_rows = problem.per_segment or not SymmetricPairs.serves(problem)
    if by_rows or (problem.code == GAUSSIAN and mostly_underflowed(problem, n_jobs)):
        return RowPairs(problem, n_jobs)
    return SymmetricPairs(problem, n_jobs)


def _large_enough(problem: PairProblem, structure: type) -> bool:
    """Return whether a structure may save more than building it and counting take."""
    n, m = problem.n, problem.m
    if structure is CutoffGrid:
        return m >= costs.CUTOFF_QUERIES
    per_segment = n >= costs.TREE_ROWS_PER_SEGMENT * len(problem.segments.sizes)
    if problem.dims > costs.TREE_DIMENSIONS or not per_segment:
        return False
    return n * m >= costs.TREE_PAIRS if problem.per_segment else min(n, 4 * m) >= costs.TREE_ROWS
