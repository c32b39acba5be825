"""Sums of the biweight kernel and their gradient over the pairs within its cutoff."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from itertools import pairwise
from typing import ClassVar

import numpy as np

from fastmetric import engine
from fastmetric.core.kernels import BIWEIGHT
from fastmetric.core.pairs.cell_list import (
    CELL,
    COORDINATES,
    GROUP,
    LABEL,
    OTHER,
    OWN,
    ROWS,
    WEIGHT,
    CellList,
    cell_list_gradient,
    cell_list_sums,
    pairs_in_reach,
)
from fastmetric.learn import costs
from fastmetric.learn.pair_sums.all_pairs import cost_table
from fastmetric.learn.pair_sums.problem import (
    ClassSums,
    Gradient,
    PairProblem,
    Queries,
    RowWeights,
)

_PROBED = 8  # one group of so many is counted to predict the work
_TASK = 1e8, (96, 3072)  # pairs in a task at most, and its rows at least and at most


class CutoffGrid:
    """Points of up to three dimensions in a cell list, for the biweight kernel."""

    all_pairs: ClassVar[bool] = False
    method: ClassVar[str] = "tree"
    name = "pairs within the cutoff"

    def __init__(self, problem: PairProblem, n_jobs: int | None = None) -> None:
        """Build the cell lists of the points and of the queries."""
        self.n_jobs, points = n_jobs, problem.points
        # Columns go along where the points spread most.
        self._axes = np.argsort(-np.einsum("ij,ij->j", points, points), kind="stable")
        labels = problem.segments.numbers(np.arange(problem.n))
        self._order, self._ref = _make_cell_list(points[:, self._axes], problem.weights, labels)
        self._ask(problem)

    def _ask(self, problem: PairProblem) -> None:
        """Take the queries of a problem whose points are in the cell list."""
        self.problem = problem
        self._rows, self._query, self._selves = self._order, self._ref, np.arange(problem.n)
        if problem.queries is not None:
            asked, places = problem.asked(), np.empty(problem.n, np.intp)
            places[self._order] = np.arange(problem.n)
            itself = asked.self_index
            # The weight of a query would be read if points had weights in the gradient.
            weights = np.ones(problem.m) if self._free else problem.weights[itself]
            self._rows, self._query = _make_cell_list(
                asked.rows[:, self._axes], weights, asked.segments
            )
            self._selves = np.where(itself >= 0, places[itself], -1)[self._rows]
        self.pair_share = 0.0  # of the pairs that were visited in the last sums

    @property
    def _free(self) -> bool:
        """Return whether the queries are rows of their own."""
        return isinstance(self.problem.queries, Queries)

    @staticmethod
    def serves(problem: PairProblem) -> bool:
        """Return whether the kernel is the biweight, in up to three dimensions."""
        d = problem.points.shape[1]
        return problem.code == BIWEIGHT and problem.dims == d <= len(COORDINATES)

    @staticmethod
    def worth_building(
        problem: PairProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return whether there are many queries."""
        return problem.m >= costs.CUTOFF_QUERIES

    def with_queries(self, queries: Queries) -> CutoffGrid:
        """Return the sums of other queries over the same points."""
        other = copy(self)
        other._ask(self.problem._replace(queries=queries))
        return other

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds: by the pairs of a few groups."""
        query, table = self._query, cost_table(self.problem)
        some = np.arange(0, len(query.column_of), _PROBED)
        seen = pairs_in_reach(query, self._ref, some).sum() / np.diff(query.groups)[some].sum()
        return float(seen * len(self._rows) * table.leaf_pair + len(self._order) * table.point)

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the log sums of the queries."""
        sums, pairs = self._sums(self._ref, self._selves, label)
        self.pair_share = pairs / (self.problem.m * self.problem.n)
        logs = np.empty(sums.shape)
        with np.errstate(divide="ignore"):
            logs[:, self._rows] = np.log(sums)
        return ClassSums(*logs)

    def by_segment(self, label: str | None = None) -> np.ndarray:
        """Return the log sums over every segment (m, C); nothing is left out."""
        problem, none = self.problem, np.full(self.problem.m, -1)
        logs = np.empty((problem.m, len(problem.segments.sizes)))
        pairs = 0
        for c, (a, b) in enumerate(pairwise(problem.segments.offsets)):
            # Sums over the own segment and over the others: over one segment, these are all.
            points = problem.points[a:b, self._axes]
            _, ref = _make_cell_list(points, problem.weights[a:b], np.zeros(b - a))
            sums, seen = self._sums(ref, none, label)
            with np.errstate(divide="ignore"):
                logs[self._rows, c] = np.log(sums[0] + sums[1])
            pairs += seen
        self.pair_share = pairs / (problem.m * problem.n)
        return logs

    def _sums(
        self, ref: CellList, self_index: np.ndarray, label: str | None
    ) -> tuple[np.ndarray, int]:
        """Return the sums (2, m) in the order of the cell list, and the number of pairs visited."""
        sums = np.zeros((2, self.problem.m))

        def task(part: tuple[int, int]) -> int:
            return cell_list_sums(self._query, ref, self_index, *part, sums)

        return sums, self._run(task, self._query, ref, label)

    def gradient(self, weights: RowWeights, label: str | None = None) -> Gradient:
        """Return the gradient at the points, and at the queries if these are rows of their own."""
        strength = np.exp(-weights.log_totals)
        for row, part in ((OWN, weights.own), (OTHER, weights.other)):
            self._query.table[row] = (part * strength)[self._rows]
        back = np.argsort(self._axes)
        U = np.empty((len(self._order), len(self._axes)))
        U[self._order] = self._gradient(self._ref, self._query, label)
        if self._query is self._ref:
            return Gradient(U[:, back])
        found = self._gradient(self._query, self._ref, label)
        if not self._free:
            U[self._order[self._selves]] += found
            return Gradient(U[:, back])
        at_queries = np.empty((self.problem.m, len(self._axes)))
        at_queries[self._rows] = found
        return Gradient(U[:, back], at_queries[:, back])

    def _gradient(self, query: CellList, ref: CellList, label: str | None) -> np.ndarray:
        """Return what comes to the rows of `query` (m, d)."""
        out = np.zeros((3, query.table.shape[1]))

        def task(part: tuple[int, int]) -> int:
            cell_list_gradient(query, ref, *part, out)
            return 0

        self._run(task, query, ref, label)
        return out[: len(self._axes)].T

    def _run(
        self,
        task: Callable[[tuple[int, int]], int],
        query: CellList,
        ref: CellList,
        label: str | None,
    ) -> int:
        """Run a task on all groups of `query`, a range at a time; return the sum."""
        most, (low, high) = _TASK
        rows, step = query.groups[-1], int(min(max(most / ref.table.shape[1], low), high))
        # By rows, since groups in thin columns have few.
        cuts = np.searchsorted(query.groups, np.append(np.arange(0, rows, step), rows))
        parts = [(int(a), int(b)) for a, b in pairwise(cuts) if a < b]
        return sum(engine.run(task, parts, n_jobs=self.n_jobs, label=label))


def _make_cell_list(
    Z: np.ndarray, weights: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, CellList]:
    """Return the order of the points Z (n, d) in the cell list (n,), and the list."""
    n, d = Z.shape
    order, cells = np.argsort(Z[:, 0]), np.zeros((2, n))
    cells[: d - 1] = np.floor(Z[:, 1:].T / CELL)
    for k in range(d - 2, -1, -1):
        order = order[np.argsort(cells[k, order], kind="stable")]
    cells = cells[:, order]
    starts = _runs(cells)
    cells = cells[:, starts]
    slabs = _runs(cells[:1])
    table = np.zeros((len(ROWS), n), Z.dtype)
    for row, values in zip((*COORDINATES[:d], WEIGHT, LABEL), (*Z.T, weights, labels), strict=True):
        table[row] = values[order]
    across = table[COORDINATES[1:], :].astype(np.float64)
    # Groups begin anew with every column.
    counts = -(-np.diff(starts, append=n) // GROUP)
    column_of = np.repeat(np.arange(len(starts)), counts)
    number = np.arange(len(column_of)) - (np.cumsum(counts) - counts)[column_of]
    cell_list = CellList(
        table,
        True if d == 3 else None,
        np.append(starts, n),
        np.minimum.reduceat(across, starts, axis=1).T.copy(),
        np.maximum.reduceat(across, starts, axis=1).T.copy(),
        cells[1].copy(),
        np.append(slabs, len(starts)),
        cells[0, slabs],
        np.append(starts[column_of] + GROUP * number, n),
        column_of,
    )
    return order, cell_list


def _runs(keys: np.ndarray) -> np.ndarray:
    """Return where runs of equal keys (k, n) begin."""
    return np.append(0, 1 + np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)))
