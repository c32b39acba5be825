"""Sums over all pairs and their gradient: of any queries, or of all points at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from fastmetric import engine
from fastmetric.core.error_bounds import UNDERFLOWED_PAIRS
from fastmetric.core.kernels import BIWEIGHT, GAUSSIAN
from fastmetric.core.pairs import dense_pairs
from fastmetric.core.pairs.cell_list import COORDINATES
from fastmetric.core.pairs.pair_tiles import (
    Points,
    add_gradient,
    empty_gradient,
    gradient_rows,
    make_points,
    products_are_safe,
)
from fastmetric.core.pairs.partition import row_blocks, symmetric_blocks
from fastmetric.learn import costs
from fastmetric.learn.pair_sums.problem import (
    ClassSums,
    Gradient,
    PairProblem,
    Queries,
    RowWeights,
    Segments,
)

_PROBES = 48  # rows that are summed in a test before the method is chosen
_THINNED = 1000  # points over which they are summed first

Part = tuple[np.ndarray, ...]


class RowPairs:
    """Any queries against all points, each query relative to its nearest point: at any scale."""

    all_pairs: ClassVar[bool] = True
    method: ClassVar[str] = "exact"
    name, pair_share = "all pairs", 1.0

    def __init__(
        self, problem: PairProblem, n_jobs: int | None = None, points: Points | None = None
    ) -> None:
        """Take the points in the layouts of the loops, too, if they are at hand."""
        self.problem, self.n_jobs = problem, n_jobs
        asked, near = problem.asked(), problem.dims
        self._free = isinstance(problem.queries, Queries)
        if points is None:
            safe = products_are_safe(problem.points)
            safe = safe and (not self._free or products_are_safe(asked.rows))
            points = make_points(problem.points, problem.weights, products=safe, near=near)
        self.points = points
        self._query = make_points(asked.rows, products=points.products, near=near)
        offsets, own = problem.segments.offsets, asked.segments
        self._where = dense_pairs.QuerySegments(offsets[own], offsets[own + 1], asked.self_index)
        self._blocks = row_blocks(problem.m, problem.n, near)

    @staticmethod
    def serves(problem: PairProblem) -> bool:
        """Return True: all pairs serve every problem."""
        return True

    @staticmethod
    def worth_building(
        problem: PairProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return True: there is nothing to build."""
        return True

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds."""
        return self.problem.dense_cost(cost_table(self.problem), by_rows=True)

    def with_queries(self, queries: Queries) -> RowPairs:
        """Return the sums of other queries over the same points."""
        return RowPairs(self.problem._replace(queries=queries), self.n_jobs)

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the log sums of the queries."""

        def sums(block: dense_pairs.Block) -> Part:
            return dense_pairs.row_log_sums(
                self._query, self.points, self._where, block, self.problem.code
            )

        return ClassSums(*self._add_logs(sums, np.empty((2, self.problem.m)), label))

    def by_segment(self, label: str | None = None) -> np.ndarray:
        """Return the log sums over every segment (m, C); nothing is left out."""
        offsets, code = self.problem.segments.offsets, self.problem.code

        def sums(block: dense_pairs.Block) -> np.ndarray:
            found = dense_pairs.row_class_log_sums(self._query, self.points, offsets, block, code)
            return found.T

        logs = np.empty((self.problem.m, len(offsets) - 1))
        self._add_logs(sums, logs.T, label)
        return logs

    def _add_logs(
        self, sums: Callable[[dense_pairs.Block], Any], logs: np.ndarray, label: str | None
    ) -> np.ndarray:
        """Write the logs of all blocks' sums, each (k, rows), into `logs` (k, m); return these."""
        logs[:] = -np.inf
        for block, part in _run(sums, self._blocks, self.n_jobs, label):
            rows = slice(block.i0, block.i1)
            logs[:, rows] = np.logaddexp(logs[:, rows], part)
        return logs

    def gradient(self, weights: RowWeights, label: str | None = None) -> Gradient:
        """Return the gradient at the points, and at the queries if these are rows of their own."""
        dtype, query, ref = self.points.rows.dtype, self._query, self.points
        rows = RowWeights(*(array.astype(dtype) for array in weights))

        def gradient(block: dense_pairs.Block) -> Part:
            return dense_pairs.row_gradient(query, ref, self._where, rows, block, self.problem.code)

        at_points = empty_gradient(ref.size, ref)
        at_queries = empty_gradient(query.size, query) if self._free else at_points
        for block, (to_i, to_j) in _run(gradient, self._blocks, self.n_jobs, label):
            own = slice(block.i0, block.i1)
            add_gradient(at_queries, to_i, own if self._free else self._where.self_index[own])
            add_gradient(at_points, to_j, slice(block.j0, block.j1))
        free = gradient_rows(at_queries, query) if self._free else None
        return Gradient(gradient_rows(at_points, ref), free)


class SymmetricPairs:
    """All points against each other, every unordered pair once per pass.

    Queries whose sums underflow are summed again by `RowPairs`.
    """

    all_pairs: ClassVar[bool] = True
    method: ClassVar[str] = "exact"
    name, pair_share = "all pairs", 1.0

    def __init__(
        self, problem: PairProblem, n_jobs: int | None = None, points: Points | None = None
    ) -> None:
        """Take the points in the layouts of the loops, too, if they are at hand."""
        self.problem, self.n_jobs = problem, n_jobs
        if points is None:
            points = make_points(problem.points, problem.weights, near=problem.dims)
        self.points = points
        segments = problem.segments
        own = segments.numbers(np.arange(problem.n))
        self._ends = segments.offsets[own], segments.offsets[own + 1]
        self._blocks = symmetric_blocks(problem.n, problem.dims)
        self._underflowed: RowPairs | None = None

    @staticmethod
    def serves(problem: PairProblem) -> bool:
        """Return whether all points are queries, and sums are over own and other segments."""
        return problem.queries is None and not problem.per_segment

    @staticmethod
    def worth_building(
        problem: PairProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return whether most sums can be represented: each that underflows is summed again."""
        return problem.code != GAUSSIAN or not mostly_underflowed(problem, n_jobs)

    def cost(self) -> float:
        """Return what both passes will take, in nanoseconds."""
        return self.problem.dense_cost(cost_table(self.problem), by_rows=False)

    def with_queries(self, queries: Queries) -> RowPairs:
        """Return the sums of other queries over the same points."""
        return RowPairs(self.problem._replace(queries=queries), self.n_jobs)

    def by_segment(self, label: str | None = None) -> np.ndarray:
        """Return the log sums over every segment (n, C); nothing is left out."""
        return RowPairs(self.problem, self.n_jobs, self.points).by_segment(label)

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the log sums of all points."""
        own, other = self._plain_sums(label)
        with np.errstate(divide="ignore"):
            sums = ClassSums(np.log(own), np.log(other))
        underflowed = np.flatnonzero(own + other < UNDERFLOWED_PAIRS[self.points.rows.dtype])
        if underflowed.size and self.problem.code == GAUSSIAN:
            few = self.problem._replace(queries=underflowed)
            self._underflowed = RowPairs(few, self.n_jobs, self.points)
            sums.own[underflowed], sums.other[underflowed], *_ = self._underflowed.log_sums(label)
        return sums

    def _plain_sums(self, label: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the unshifted sums of all points over their own segment and over the others."""
        code = self.problem.code

        def sums(block: dense_pairs.Block) -> Part:
            return dense_pairs.symmetric_sums(self.points, *self._ends, block, code)

        own, other = np.zeros((2, self.points.size))
        for block, (own_i, other_i, own_j, other_j) in _run(sums, self._blocks, self.n_jobs, label):
            own[block.i0 : block.i1] += own_i
            other[block.i0 : block.i1] += other_i
            own[block.j0 : block.j1] += own_j
            other[block.j0 : block.j1] += other_j
        return own, other

    def gradient(self, weights: RowWeights, label: str | None = None) -> Gradient:
        """Return the gradient at the points. After `log_sums`."""
        representable, few = np.ones(self.points.size, bool), self._underflowed
        if few is not None:
            representable[few.problem.queries] = False
        with np.errstate(over="ignore"):
            strength = np.exp(
                -weights.log_totals, where=representable, out=np.zeros(len(representable))
            )
        dtype, code = self.points.rows.dtype, self.problem.code
        own, other = ((part * strength).astype(dtype) for part in (weights.own, weights.other))

        def gradient(block: dense_pairs.Block) -> Part:
            return dense_pairs.symmetric_gradient(self.points, *self._ends, own, other, block, code)

        total = empty_gradient(self.points.size, self.points)
        for block, (to_i, to_j) in _run(gradient, self._blocks, self.n_jobs, label):
            add_gradient(total, to_i, slice(block.i0, block.i1))
            add_gradient(total, to_j, slice(block.j0, block.j1))
        U = gradient_rows(total, self.points)
        if few is not None:
            part = RowWeights(*(array[few.problem.queries] for array in weights))
            U += few.gradient(part, label).points
        return Gradient(U)


def cost_table(problem: PairProblem) -> costs.Costs:
    """Return the table that has the cost of a dense pair of a problem."""
    compact = problem.code == BIWEIGHT and problem.dims <= len(COORDINATES)
    if problem.per_segment:
        return costs.CUTOFF_BY_SEGMENT if compact else costs.SUMS_BY_SEGMENT
    return costs.CUTOFF if compact else costs.SUMS_AND_GRADIENT


def mostly_underflowed(problem: PairProblem, n_jobs: int | None = None) -> bool:
    """Return whether the sums of most points underflow: then symmetric blocks are wasted work.

    A few points are summed over a part of the points first, which gives a lower bound.
    """
    log_least = np.log(UNDERFLOWED_PAIRS[problem.points.dtype])
    step = max(1, problem.n // _THINNED)
    if step > 1 and _median_log_sum(problem, step, n_jobs) >= log_least:
        return False
    return _median_log_sum(problem, 1, n_jobs) < log_least


def _median_log_sum(problem: PairProblem, step: int, n_jobs: int | None) -> float:
    """Return the median of a few points' log sums over every `step`-th point."""
    n, near = problem.n, problem.points[:, : problem.dims]
    chosen = np.arange(0, n, max(1, n // _PROBES))
    self_index = np.where(chosen % step == 0, chosen // step, -1)
    part = near[::step]
    thinned = PairProblem(
        part,
        Segments(np.array([0, len(part)])),  # one holds them all
        problem.weights[::step],
        GAUSSIAN,
        Queries(near[chosen], self_index, np.zeros(len(chosen), np.intp)),
    )
    return float(np.median(RowPairs(thinned, n_jobs).log_sums().own))


def _run(
    task: Callable[[dense_pairs.Block], Any],
    blocks: Sequence[dense_pairs.Block],
    n_jobs: int | None,
    label: str | None,
) -> Iterator[tuple[dense_pairs.Block, Any]]:
    """Yield every block with its partial result, in order."""
    return zip(blocks, engine.run(task, blocks, n_jobs=n_jobs, label=label), strict=True)
