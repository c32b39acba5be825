"""Sums of Gaussians over all pairs, in many dimensions, by products of matrices."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.error_bounds import product_rounding
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.pairs.dense_pairs import Block
from fastmetric.core.pairs.partition import cuts
from fastmetric.core.pairs.product_tiles import (
    DOUBLINGS,
    EMPTY,
    LISTED,
    STEP,
    STEP_REST,
    Accuracy,
    Differences,
    Side,
    add_listed,
    add_tile,
    centred_rows,
    exponents_of,
    some_count,
    transposed,
)
from fastmetric.core.walk.query_groups import Rule
from fastmetric.learn import costs
from fastmetric.learn.kernel_sums.sum_problem import SumProblem
from fastmetric.learn.kernel_sums.walk_ways import ExactWalk

_TILE = 256, 512  # rows and columns whose products are computed at once
_SLAB = 256  # coordinates of a product; those of several slabs are added
_LARGER = 4  # blocks than those by differences
_CENTRE = 1024  # points whose mean is the centre
_VALUES = 1 << 20  # numbers of the rows that are centred at once
_UNEVEN = 4.0  # halves of squares are sorted if the largest is so many times their median
_COARSEST = 1.0  # errors of exponents, in the median, with which products are of use
# Units of rounding that products may add without a tolerance: `log_rounding` has 15 for every
# dimension, and sums by differences need none of them beside these for exp, sum and logarithm.
_ROUNDING, _OTHER_ROUNDING = 15.0, 64.0
_FLOAT32_ROUNDING = 40.0  # units of float32: exp, sums, weights
_FLOAT32_FROM = 1e-4  # the least tolerance with which products are in float32
_SHARE, _DROPPED = 0.4, 0.05  # of the tolerance: by products, and by negligible terms
_DROPPED_LOG = 38.0  # without a tolerance, beside the log of the number of terms
_PROBES = 32  # queries that show what the others will take


class _Centred(NamedTuple):
    """Rows as products take them."""

    rows: np.ndarray  # (m, d), centred and scaled, in the precision of the products
    halves: np.ndarray  # (m,): half the squares of the rows, float64
    order: np.ndarray  # (m,): their numbers among the rows given


class _Sums(NamedTuple):
    """Sums (totals + carries) exp(-STEP shifts), and what the least exponents are at most."""

    nearest: np.ndarray
    shifts: np.ndarray
    totals: np.ndarray
    carries: np.ndarray
    given_up: np.ndarray  # (m,), bool: sums that products cannot certify

    def add(self, part: Side, rows: slice) -> None:
        """Add the sums of a block."""
        shifts = np.minimum(self.shifts[rows], part.shifts)
        for sums, own in ((self, self.shifts[rows].copy()), (part, part.shifts)):
            where = rows if sums is self else slice(None)
            by = np.maximum(DOUBLINGS * (shifts - own), -2000)
            for array in (sums.totals, sums.carries):
                array[where] = np.ldexp(array[where], by)
        before, more = self.totals[rows], part.totals
        total = before + more
        added = total - before
        self.carries[rows] += part.carries + ((before - (total - added)) + (more - added))
        self.totals[rows], self.shifts[rows] = total, shifts
        self.given_up[rows] |= part.counts < 0


class ProductSums:
    """All points, at distances out of products of matrices where their bound allows it [SUM-12].

    Queries that it does not allow are summed by differences.
    """

    all_pairs: ClassVar[bool] = True
    method: ClassVar[str] = "exact"
    name = "products"

    def __init__(self, problem: SumProblem, n_jobs: int | None = None) -> None:
        """Take the points and the queries."""
        self.problem, self.n_jobs = problem, n_jobs
        self.given_up = 0  # queries of the last sums that products could not certify

    @staticmethod
    def serves(problem: SumProblem) -> bool:
        """Return whether the kernel is Gaussian, and dimensions are many."""
        return (
            problem.rule.code == GAUSSIAN
            and problem.rows.shape[1] >= costs.PRODUCT_DIMENSIONS
            and not problem.options.flat
        )

    @staticmethod
    def worth_building(
        problem: SumProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return whether products take less than differences, as a few queries show."""
        if min(problem.n, len(problem.rows)) < costs.PRODUCT_ROWS:
            return False
        return ProductSums(problem, n_jobs)._counted() < ExactWalk(problem, n_jobs).cost()

    def cost(self) -> float:
        """Return what sums over all pairs will take, in nanoseconds: by products, if that is less."""
        least = ExactWalk(self.problem, self.n_jobs).cost()
        few = min(self.problem.n, len(self.problem.rows)) < costs.PRODUCT_ROWS
        return least if few else min(least, self._counted())

    def _counted(self) -> float:
        """Return what sums by products will take, in nanoseconds; counted once for a problem."""
        if self.problem.cost_by_products is None:
            self.problem.cost_by_products = self._cost()
        return self.problem.cost_by_products

    # What products need to know

    @cached_property
    def _symmetric(self) -> bool:
        """Return whether the queries are the points, of equal weights: every pair is seen once."""
        sums, rows = self.problem.sums, self.problem.rows
        if self._log_weights.size > 1 or len(sums.points) != len(sums.X):
            return False
        same = rows is sums.X or np.array_equal(rows, sums.X)
        own = self.problem.own
        return same and (own is None or np.array_equal(own, np.arange(len(rows))))

    @cached_property
    def _scale(self) -> tuple[np.ndarray, float, float]:
        """Return the centre (d,), and the scale and the unit of the rows that it is in."""
        points = self.problem.sums.points
        unit = self.problem.sums.row_unit
        step = -(-len(points) // _CENTRE)
        center = np.mean(points[::step] * points.dtype.type(unit), axis=0, dtype=np.float64)
        return center, math.sqrt(2 * self.problem.rule.factor), unit

    def _centred(self, rows: np.ndarray, dtype: np.dtype) -> _Centred:
        """Return rows as products take them, near ones first if they are of many sizes."""
        center, scale, unit = self._scale
        out, halves = np.empty(rows.shape, dtype), np.empty(len(rows))

        def task(part: slice) -> None:
            halves[part] = centred_rows(rows[part], center, scale, unit, out[part])

        parts = engine.ranges(len(rows), max(1, _VALUES // rows.shape[1]))
        engine.for_each(task, parts, n_jobs=self.n_jobs)
        if halves.max() <= _UNEVEN * np.median(halves):
            return _Centred(out, halves, np.arange(len(rows)))
        order = np.argsort(halves, kind="stable")
        return _Centred(out[order], halves[order], order)

    @cached_property
    def _log_weights(self) -> np.ndarray:
        """Return the logs (n,) of the weights relative to the largest, at most 0; (1,) if equal."""
        weights = self.problem.sums.any_weights
        logs = np.log(weights / weights.max())
        return logs if logs.any() else logs[:1]

    @cached_property
    def _dtype(self) -> np.dtype:
        """Return the precision of the products."""
        given, typical = self.problem.rows.dtype, 2 * self._typical
        coarse = self.problem.rule.rtol >= _FLOAT32_FROM
        if coarse and self._unit(np.dtype(np.float32)) * typical < _COARSEST:
            return np.dtype(np.float32)
        return given

    @cached_property
    def _typical(self) -> float:
        """Return the median of half the squares of some points and some queries."""
        center, scale, unit = self._scale
        found = []
        for rows in (self.problem.sums.points, self.problem.rows):
            some = rows[:: -(-len(rows) // _CENTRE)]
            found.append(centred_rows(some, center, scale, unit, np.empty(some.shape)))
        return float(np.median(np.concatenate(found)))

    def _slabs(self) -> list[slice]:
        """Return the ranges of coordinates whose products are computed at once."""
        d = self.problem.rows.shape[1]
        ends = np.linspace(0, d, -(-d // _SLAB) + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(ends)]

    def _unit(self, dtype: np.dtype) -> float:
        """Return the error of an exponent, relative to half the squares of both rows."""
        slabs = self._slabs()
        longest = max(part.stop - part.start for part in slabs)
        return product_rounding(longest, len(slabs), float(np.finfo(dtype).eps))

    def _accuracy(self, dtype: np.dtype) -> Accuracy:
        """Return how far exponents are off, and what a sum may lose by that."""
        d, rule, given = self.problem.rows.shape[1], self.problem.rule, self.problem.rows.dtype
        allowed = (_ROUNDING * d - _OTHER_ROUNDING) * float(np.finfo(given).eps) / 2
        log_number, reach = math.log(self.problem.n), _DROPPED_LOG
        if rule.rtol >= _FLOAT32_FROM:
            allowed, reach = _SHARE * rule.rtol, -math.log(_DROPPED * rule.rtol)
        constant = 2 * float(np.finfo(dtype).eps) * -float(self._log_weights.min())
        return Accuracy(
            self._unit(dtype), constant + 1e-30, allowed, log_number, log_number + reach
        )

    def _charged(self, dtype: np.dtype) -> float:
        """Return the relative error of the sums beyond that of sums by differences."""
        rule = self.problem.rule
        if rule.rtol < _FLOAT32_FROM:
            return 0.0
        lost = (_SHARE + _DROPPED) * rule.rtol
        if dtype != self.problem.rows.dtype:
            lost += _FLOAT32_ROUNDING * float(np.finfo(dtype).eps) / 2
        return lost

    # Sums

    def log_sums(self, label: str | None = None, rule: Rule | None = None) -> np.ndarray:
        """Return the logs of the sums and of their bounds (3, m), up to rounding."""
        assert rule is None, "the Gaussian has one rule"
        problem, dtype = self.problem, self._dtype
        sums = self._sums(dtype, label)
        logs = np.empty((3, len(sums.totals)))
        with np.errstate(divide="ignore"):
            total = np.log(sums.totals + sums.carries)
        shifts = np.where(sums.shifts < EMPTY, sums.shifts, 0)
        logs[:] = total - (shifts * STEP + shifts * STEP_REST)
        logs += math.log(float(problem.sums.any_weights.max())) + problem.sums.log_unit
        charged = self._charged(dtype)
        logs[1] += math.log1p(-charged)
        logs[2] -= math.log1p(-charged)
        left = np.flatnonzero(sums.given_up)
        self.given_up = len(left)
        if len(left):
            whole = problem if len(left) == len(problem.rows) else problem.some(left)
            logs[:, left] = ExactWalk(whole, self.n_jobs).log_sums(label)
        return logs

    def _sums(self, dtype: np.dtype, label: str | None) -> _Sums:
        """Return the sums at all queries."""
        problem, slabs, accuracy = self.problem, self._slabs(), self._accuracy(dtype)
        points = self._centred(problem.sums.points, dtype)
        query = points if self._symmetric else self._centred(problem.rows, dtype)
        log_weights, weights = self._log_weights, np.exp(self._log_weights)
        keys = points.halves
        if weights.size > 1:
            log_weights, weights = log_weights[points.order], weights
            keys = keys - log_weights
        col_halves, row_halves = keys.astype(dtype), query.halves.astype(dtype)
        selves, found = self._selves(points, query)
        (m, d), n = query.rows.shape, len(points.rows)
        ones, tile_size = np.ones(max(_TILE), dtype), _TILE[0] * _TILE[1]
        given = Differences(
            problem.rows,
            query.order,
            problem.sums.points,
            points.order,
            weights,
            self._scale[2],
            problem.rule.factor,
        )

        def task(block: Block) -> tuple[Side, Side | None]:
            i0, i1, j0, j1 = block
            rows = _side(row_halves, selves, found.nearest, slice(i0, i1), slice(j0, j1))
            cols = None
            if self._symmetric and i0 != j0:
                cols = _side(row_halves, selves, found.nearest, slice(j0, j1), slice(i0, i1))
            mirrored = rows if self._symmetric and i0 == j0 else cols
            buffers = [np.empty(tile_size, dtype) for _ in range(2)]
            least, col_least = (np.empty(size, dtype) for size in _TILE)
            for a, b in _tiles(block, mirrored is rows):
                twice = mirrored is not None and a != b
                shape = a.stop - a.start, b.stop - b.start
                tile, other = (one[: shape[0] * shape[1]] for one in buffers)
                tile = tile.reshape(shape)
                _products(query.rows[a], points.rows[b], slabs, tile, other.reshape(shape))
                down, across = least[: shape[0]], col_least[: shape[1] if twice else 0]
                exponents_of(tile, row_halves[a], col_halves[b], down, across)
                corner = a.start - i0, b.start - j0
                if mirrored is not None and twice:
                    largest = float(query.halves[a].max())
                    if some_count(across, mirrored, corner[1], accuracy, largest):
                        turned = other.reshape(shape[::-1])
                        transposed(tile, turned)
                        add_tile(turned, across, mirrored, corner[::-1], accuracy, largest, ones)
                add_tile(tile, down, rows, corner, accuracy, float(keys[b].max()), ones)
            part = given._replace(
                numbers=query.order[i0:i1], other_numbers=points.order[j0:j1]
            )
            add_listed(rows, part, accuracy, float(keys[j0:j1].max()))
            if cols is not None:
                part = part._replace(numbers=part.other_numbers, other_numbers=part.numbers)
                add_listed(cols, part, accuracy, float(keys[i0:i1].max()))
            return rows, cols

        blocks = self._blocks(m, n, d)
        results = engine.run(task, blocks, n_jobs=self.n_jobs, label=label)
        for block, (rows, cols) in zip(blocks, results, strict=True):
            found.add(rows, slice(block.i0, block.i1))
            if cols is not None:
                found.add(cols, slice(block.j0, block.j1))
        back = np.empty(m, np.intp)
        back[query.order] = np.arange(m)
        return _Sums(*(array[back] for array in found))

    def _blocks(self, m: int, n: int, d: int) -> list[Block]:
        """Return the blocks of all pairs; on and above the diagonal, if queries are the points."""
        d = max(1, d // _LARGER)
        rows, cols = list(pairwise(cuts(m, d))), list(pairwise(cuts(n, d)))
        if self._symmetric:
            return [Block(*rows[k], *other) for k in range(len(rows)) for other in rows[k:]]
        return [Block(*row, *col) for row in rows for col in cols]

    def _selves(self, points: _Centred, query: _Centred) -> tuple[np.ndarray, _Sums]:
        """Return the point (m,) that is left out of each query's products, or -1, and the sums.

        The sums contain a point that is the query itself and counts.
        """
        problem, m = self.problem, len(query.rows)
        found = _Sums(
            np.full(m, np.inf),
            np.full(m, EMPTY),
            np.zeros(m),
            np.zeros(m),
            np.zeros(m, bool),
        )
        if self._symmetric:
            if problem.own is None:
                found.nearest[:], found.totals[:], found.shifts[:] = 0.0, 1.0, 0
            return np.arange(m), found
        own = problem.own
        if own is None:
            return np.full(m, -1), found
        place = np.full(len(problem.sums.X) + 1, -1)  # the last one: no point
        place[problem.sums.kept[points.order]] = np.arange(len(points.order))
        return place[own[query.order]], found

    # What the sums take

    def _cost(self) -> float:
        """Return what the sums by products take, from products of a few queries with all points."""
        (m, d), n, table = self.problem.rows.shape, self.problem.n, costs.PRODUCTS
        dtype = self._dtype
        if self._unit(dtype) * 2 * self._typical > _COARSEST:
            return math.inf
        center, scale, unit = self._scale
        accuracy = self._accuracy(dtype)
        rows = self.problem.rows[np.unique(np.linspace(0, m - 1, _PROBES).astype(int))]
        query = np.empty(rows.shape)
        halves = centred_rows(rows, center, scale, unit, query)
        listed, counted, worst = np.zeros(len(rows)), 0.0, np.full(len(rows), np.inf)
        exponents = []
        with engine.one_thread_blas():
            for part in engine.ranges(n, max(1, _VALUES // d)):
                points = np.empty((part.stop - part.start, d))
                others = centred_rows(self.problem.sums.points[part], center, scale, unit, points)
                exponents.append(np.maximum(halves[:, None] + others - query @ points.T, 0))
        t = np.concatenate(exponents, axis=1)
        if self._log_weights.size > 1:
            t -= self._log_weights
        own = t <= 1e-9  # the query itself, mostly
        error = accuracy.unit * (halves + 2 * self._typical) + accuracy.constant
        loss = np.expm1(error)
        with np.errstate(divide="ignore"):
            within = np.where(
                loss <= accuracy.allowed,
                -np.inf,
                accuracy.log_number + np.log(loss / accuracy.allowed),
            )
        included = self._symmetric and self.problem.own is None
        t_others = np.where(own, np.inf, t)
        worst = np.where(included, 0.0, t_others.min(axis=1))
        listed = np.count_nonzero(t_others < (worst + within)[:, None], axis=1)
        counted = np.count_nonzero(t_others <= (worst + accuracy.reach)[:, None]) / t.size
        product = table.product if dtype == np.float64 else table.product32
        pair = table.pair + counted * table.kernel
        blocks = len(cuts(n, max(1, d // _LARGER))) - 1
        seen = (product * d) * (0.5 if self._symmetric else 1.0) + pair
        again = min(float(np.mean(listed)), LISTED) * blocks * (table.listed + table.listed_product * d)
        given_up = float(np.mean(listed > LISTED))
        exact = ExactWalk(self.problem, self.n_jobs).cost()
        return m * n * seen + m * again + given_up * exact


def _side(
    halves: np.ndarray, selves: np.ndarray, nearest: np.ndarray, rows: slice, others: slice
) -> Side:
    """Return the empty sums of some rows over some others."""
    k = rows.stop - rows.start
    own = selves[rows]
    own = np.where((own >= others.start) & (own < others.stop), own - others.start, -1)
    return Side(
        halves[rows],
        own,
        nearest[rows].copy(),
        np.full(k, EMPTY),
        np.zeros(k),
        np.zeros(k),
        np.empty((k, LISTED), np.int32),
        np.empty((k, LISTED)),
        np.zeros(k, np.int32),
    )


def _tiles(block: Block, above: bool) -> list[tuple[slice, slice]]:
    """Return the tiles of a block; only those on and `above` the diagonal, which are then square."""
    i0, i1, j0, j1 = block
    return [
        (slice(a, min(a + _TILE[0], i1)), slice(b, min(b + step, j1)))
        for step in [_TILE[0] if above else _TILE[1]]
        for b in range(j0, j1, step)
        for a in range(i0, i1, _TILE[0])
        if b >= a or not above
    ]


def _products(
    rows: np.ndarray, cols: np.ndarray, slabs: list[slice], out: np.ndarray, more: np.ndarray
) -> None:
    """Write the products (m, n) of rows (m, d) and columns (n, d), slab by slab, into `out`."""
    np.dot(rows[:, slabs[0]], cols[:, slabs[0]].T, out=out)
    for slab in slabs[1:]:
        np.dot(rows[:, slab], cols[:, slab].T, out=more)
        out += more
