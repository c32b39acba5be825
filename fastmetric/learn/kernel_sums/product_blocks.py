"""Sums of Gaussians by products of matrices, block by block [SUM-12]."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.pairs.dense_pairs import Block
from fastmetric.core.pairs.partition import cuts
from fastmetric.core.pairs.product_tiles import (
    DOUBLINGS,
    EMPTY,
    FARTHEST,
    LISTED,
    STEP,
    STEP_REST,
    Differences,
    Side,
    add_listed,
    add_tile,
    exponents_of,
    some_count,
    transposed,
)
from fastmetric.learn.kernel_sums.product_plan import UNEVEN, Centred, ProductPlan

_TILE = 256, 512  # rows and columns whose products are computed at once
_LARGER = 4  # blocks than those by differences
_COLUMNS, _FEWEST = 8192, 16  # of a block, about, and blocks at least, where no pair is seen twice
# Where rows are sorted, no tile has some on both sides of UNEVEN times the median of half their
# squares, or of a power of _APART times the largest.
_APART, _DECADES = 16.0, 1e-40
_LARGEST = {np.dtype(np.float64): 1e280, np.dtype(np.float32): 1e30}  # half of a square
_LOWEST = -2000  # exponents of two: such a factor is 0


class ProductSum(NamedTuple):
    """Sums (totals + carries) exp(-STEP shifts) at the queries (m,)."""

    shifts: np.ndarray
    totals: np.ndarray
    carries: np.ndarray
    given_up: np.ndarray  # (m,), bool: sums that products cannot certify

    def add(self, part: Side, rows: slice) -> None:
        """Add the sums of a block; the block's own are overwritten."""
        shifts, all_rows = np.minimum(self.shifts[rows], part.shifts), slice(None)
        for sums, where in ((self, rows), (part, all_rows)):
            by = np.maximum(DOUBLINGS * (shifts - sums.shifts[where]), _LOWEST)
            for array in (sums.totals, sums.carries):
                array[where] = np.ldexp(array[where], by)
        before, more = self.totals[rows], part.totals
        total = before + more
        added = total - before
        self.carries[rows] += part.carries + ((before - (total - added)) + (more - added))
        self.totals[rows], self.shifts[rows] = total, shifts
        self.given_up[rows] |= part.counts < 0

    def logs(self) -> np.ndarray:
        """Return the logs (m,) of the sums; -inf if they are given up."""
        totals = np.where(self.given_up, 0.0, self.totals + self.carries)
        with np.errstate(divide="ignore"):
            return np.log(totals) - (self.shifts * STEP + self.shifts * STEP_REST)


def sums_by_products(plan: ProductPlan, label: str | None = None) -> ProductSum:
    """Return the sums at all queries, in units of the largest weight."""
    blocks = _Blocks(plan)
    found = blocks.before()
    if not blocks.in_range():
        found.given_up[:] = True
        return found
    results = engine.run(blocks.sums, blocks.list(), n_jobs=plan.n_jobs, label=label)
    for block, (rows, cols) in zip(blocks.list(), results, strict=True):
        found.add(rows, slice(block.i0, block.i1))
        if cols is not None:
            found.add(cols, slice(block.j0, block.j1))
    # No terms, or terms so far away that others may have been left out.
    found.given_up[found.shifts * STEP > FARTHEST / 2] = True
    back = np.empty(len(blocks.query.order), np.intp)
    back[blocks.query.order] = np.arange(len(back))
    return ProductSum(*(array[back] for array in found))


class _Blocks:
    """The blocks of all pairs; on and above the diagonal, if the queries are the points."""

    def __init__(self, plan: ProductPlan) -> None:
        """Centre the rows of both sides."""
        self.plan, problem = plan, plan.problem
        self.points = plan.centred(problem.sums.points)
        self.query = self.points if plan.symmetric else plan.centred(problem.rows)
        # A weight counts in the exponent, as if its point were farther away.
        self._keys, weights = self.points.halves, np.ones(1)
        if plan.log_weights.size > 1:
            self._keys = self._keys - plan.log_weights[self.points.order]
            weights = problem.sums.any_weights / problem.sums.any_weights.max()
        breaks = _breaks(self.points.halves)
        self._breaks = breaks if plan.symmetric else [], breaks
        self._row_halves = self.query.halves.astype(plan.dtype)
        self._col_halves = self._keys.astype(plan.dtype)
        self._selves = self._own_places(self.query, self.points)
        self._ones = np.ones(max(_TILE), plan.dtype)
        orders = self.query.order, problem.sums.points, self.points.order
        self._given = Differences(
            problem.rows, *orders, weights, plan.scaling.unit, problem.rule.factor
        )

    def list(self) -> list[Block]:
        """Return the blocks, larger ones than by differences: of fewer nanoseconds a pair."""
        (m, d), n = self.query.rows.shape, len(self.points.rows)
        rows, cols = (list(pairwise(cuts(size, max(1, d // _LARGER)))) for size in (m, n))
        if self.plan.symmetric:
            return [Block(*rows[k], *other) for k in range(len(rows)) for other in rows[k:]]
        # A block finds the nearest points of its rows anew, and lists terms until then: few blocks.
        pieces = max(math.ceil(n / _COLUMNS), math.ceil(_FEWEST / len(rows)))
        ends = np.linspace(0, len(cols), min(pieces, len(cols)) + 1).astype(int)
        wide = [(cols[a][0], cols[b - 1][1]) for a, b in pairwise(ends)]
        return [Block(*row, *col) for row in rows for col in wide]

    def in_range(self) -> bool:
        """Return whether no product overflows."""
        largest = max(float(self._keys.max()), float(self.query.halves.max()))
        return largest < _LARGEST[self.plan.dtype]

    def before(self) -> ProductSum:
        """Return the sums before any block: the query itself, if it is a point and counts."""
        m, own = len(self.query.order), self.plan.includes_selves
        return ProductSum(
            np.full(m, 0 if own else EMPTY),
            np.full(m, 1.0 if own else 0.0),
            np.zeros(m),
            np.zeros(m, bool),
        )

    def _own_places(self, query: Centred, points: Centred) -> np.ndarray:
        """Return the point (m,) that is left out of the products of each query, or -1."""
        problem = self.plan.problem
        if self.plan.symmetric:
            return np.arange(len(query.order))
        if problem.own is None:
            return np.full(len(query.order), -1)
        place = np.full(len(problem.sums.X) + 1, -1)  # the last one: no point
        place[problem.sums.kept[points.order]] = np.arange(len(points.order))
        return place[problem.own[query.order]]

    def _side(self, rows: slice, others: slice) -> Side:
        """Return the empty sums of some rows over some others."""
        k, own = rows.stop - rows.start, self._selves[rows]
        return Side(
            self._row_halves[rows],
            np.where((own >= others.start) & (own < others.stop), own - others.start, -1),
            np.full(k, 0.0 if self.plan.includes_selves else np.inf),
            np.full(k, EMPTY),
            np.zeros(k),
            np.zeros(k),
            np.empty((k, LISTED), np.int32),
            np.empty((k, LISTED)),
            np.zeros(k, np.int32),
        )

    def sums(self, block: Block) -> tuple[Side, Side | None]:
        """Return the sums of a block at its rows, and at its columns if these are queries, too.

        Columns of a block on the diagonal are its rows.
        """
        across, down = slice(block.i0, block.i1), slice(block.j0, block.j1)
        rows, cols = self._side(across, down), None
        diagonal = self.plan.symmetric and across == down
        if self.plan.symmetric and not diagonal:
            cols = self._side(down, across)
        self._add_tiles(block, rows, rows if diagonal else cols)
        accuracy = self.plan.accuracy
        given = self._given._replace(
            numbers=self.query.order[across], other_numbers=self.points.order[down]
        )
        add_listed(rows, given, accuracy, float(self._keys[down].max()))
        if cols is not None:
            given = given._replace(numbers=given.other_numbers, other_numbers=given.numbers)
            add_listed(cols, given, accuracy, float(self._keys[across].max()))
        return rows, cols

    def _add_tiles(self, block: Block, rows: Side, cols: Side | None) -> None:
        """Add the tiles of a block to the sums of its rows, and to those of columns, if any."""
        plan, dtype = self.plan, self.plan.dtype
        buffers = [np.empty(_TILE[0] * _TILE[1], dtype) for _ in range(2)]
        least, col_least = (np.empty(size, dtype) for size in _TILE)
        for a, b in _tiles(block, self._breaks, cols is rows):
            shape, twice = (a.stop - a.start, b.stop - b.start), cols is not None and a != b
            tile, other = (one[: shape[0] * shape[1]].reshape(shape) for one in buffers)
            _products(self.query.rows[a], self.points.rows[b], plan.slabs, tile, other)
            down, across = least[: shape[0]], col_least[: shape[1] if twice else 0]
            exponents_of(tile, self._row_halves[a], self._col_halves[b], down, across)
            corner = a.start - block.i0, b.start - block.j0
            most = float(self._keys[a].max()) if twice else 0.0
            if cols is not None and some_count(across, cols, corner[1], plan.accuracy, most):
                turned = other.reshape(shape[::-1])
                transposed(tile, turned)
                add_tile(turned, across, cols, corner[::-1], plan.accuracy, most, self._ones)
            most = float(self._keys[b].max())
            add_tile(tile, down, rows, corner, plan.accuracy, most, self._ones)


def _breaks(halves: np.ndarray) -> list[int]:
    """Return where half squares (n,), if they are sorted, exceed one of the limits of a tile."""
    typical, largest = float(np.median(halves)), float(halves[-1])
    if not UNEVEN * typical < largest < math.inf or (np.diff(halves) < 0).any():
        return []
    count = math.ceil(-math.log(max(typical / largest, _DECADES), _APART))
    limits = [UNEVEN * typical, *(largest / _APART ** np.arange(count))]
    return [int(k) for k in np.searchsorted(halves, limits)]


def _tiles(
    block: Block, breaks: tuple[list[int], list[int]], above: bool
) -> list[tuple[slice, slice]]:
    """Return the tiles of a block; if `above`, square ones on and above the diagonal."""
    sides = []
    for ends, step, inner in (
        ((block.i0, block.i1), _TILE[0], breaks[0]),
        ((block.j0, block.j1), _TILE[0] if above else _TILE[1], breaks[1]),
    ):
        cut = {*range(*ends, step), ends[1], *(k for k in inner if ends[0] < k < ends[1])}
        sides.append([slice(*part) for part in pairwise(sorted(cut))])
    return [(a, b) for b in sides[1] for a in sides[0] if b.start >= a.start or not above]


def _products(
    rows: np.ndarray, cols: np.ndarray, slabs: list[slice], out: np.ndarray, more: np.ndarray
) -> None:
    """Write the products (m, n) of rows (m, d) and columns (n, d), slab by slab, into `out`."""
    np.dot(rows[:, slabs[0]], cols[:, slabs[0]].T, out=out)
    for slab in slabs[1:]:
        np.dot(rows[:, slab], cols[:, slab].T, out=more)
        out += more
