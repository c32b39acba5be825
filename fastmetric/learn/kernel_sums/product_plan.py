"""How sums of Gaussians by products of matrices are taken, and what they may lose [SUM-12]."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.error_bounds import product_rounding
from fastmetric.core.pairs.product_tiles import UNLISTED, Accuracy, centred_rows
from fastmetric.learn.kernel_sums.sum_problem import SumProblem

_SLABS = 256, 128, 64, 32  # coordinates of a product at most; those of several slabs are added
_SAMPLE = 1024  # points whose mean is the centre, and rows that show how large rows are
_VALUES = 1 << 20  # numbers of the rows that are centred at once
UNEVEN = 4.0  # rows are sorted by half their squares if the largest is so many times the median
_COARSEST = 1.0  # errors of exponents, in the median, with which products are of use
# Units of rounding that products may add without a tolerance: `log_rounding` has 15 for every
# dimension, and sums by differences need none of them beside these for exp, sum and logarithm.
_ROUNDING, _OTHER_ROUNDING = 15.0, 64.0
_FLOAT32_ROUNDING = 40.0  # units of float32: exp, sums, weights
_TOLERANCE_FROM = 1e-4  # the least tolerance that is made use of
_SHARE, _DROPPED = 0.4, 0.05  # of the tolerance: by products, and by negligible terms
_DROPPED_LOG = 38.0  # without a tolerance, beside the log of the number of terms
_PROBES = 32, 1 << 15  # queries, and points at most, that show what the others will take


class Scaling(NamedTuple):
    """The rows of products are (x unit - center) scale."""

    center: np.ndarray  # (d,)
    scale: float
    unit: float  # a power of two near the inverse of the bandwidth


class Centred(NamedTuple):
    """Rows as products take them."""

    rows: np.ndarray  # (m, d), centred and scaled, in the precision of the products
    halves: np.ndarray  # (m,): half the squares of the rows, float64
    order: np.ndarray  # (m,): their numbers among the rows given


class ProductPlan:
    """The precision, the slabs and the errors of products for the sums of a problem."""

    def __init__(self, problem: SumProblem, n_jobs: int | None = None) -> None:
        """Take the points and the queries."""
        self.problem, self.n_jobs = problem, n_jobs
        self.given, self.d = problem.rows.dtype, problem.rows.shape[1]
        rtol = problem.rule.rtol
        self._rtol = rtol if rtol >= _TOLERANCE_FROM else 0.0

    @cached_property
    def symmetric(self) -> bool:
        """Return whether the queries are the points, of equal weights: every pair is seen once."""
        sums, rows, own = self.problem.sums, self.problem.rows, self.problem.own
        if self.log_weights.size > 1 or len(sums.points) != len(sums.X):
            return False
        same = rows is sums.X or np.array_equal(rows, sums.X)
        return same and (own is None or np.array_equal(own, np.arange(len(rows))))

    @property
    def includes_selves(self) -> bool:
        """Return whether every query is a point, which counts in its sum."""
        return self.symmetric and self.problem.own is None

    @cached_property
    def log_weights(self) -> np.ndarray:
        """Return the logs (n,) of the weights relative to the largest, at most 0; (1,) if equal."""
        weights = self.problem.sums.any_weights
        logs = np.log(weights / weights.max())
        return logs if logs.any() else logs[:1]

    @cached_property
    def scaling(self) -> Scaling:
        """Return how rows are centred, on a mean of points, and scaled."""
        points, unit = self.problem.sums.points, self.problem.sums.row_unit
        some = points[:: -(-len(points) // _SAMPLE)] * points.dtype.type(unit)
        center = np.asarray(some.mean(axis=0, dtype=np.float64))
        return Scaling(center, math.sqrt(2 * self.problem.rule.factor), unit)

    def centred(self, rows: np.ndarray) -> Centred:
        """Return rows as products take them; sorted by their squares if these are uneven."""
        out, halves = np.empty(rows.shape, self.dtype), np.empty(len(rows))

        def task(part: slice) -> None:
            halves[part] = centred_rows(rows[part], *self.scaling, out[part])

        parts = engine.ranges(len(rows), max(1, _VALUES // self.d))
        engine.for_each(task, parts, n_jobs=self.n_jobs)
        if halves.max() <= UNEVEN * np.median(halves):
            return Centred(out, halves, np.arange(len(rows)))
        order = np.argsort(halves, kind="stable")
        return Centred(out[order], halves[order], order)

    @cached_property
    def _sample(self) -> np.ndarray:
        """Return half the squares of some points and some queries."""
        found = []
        for rows in (self.problem.sums.points, self.problem.rows):
            some = rows[:: -(-len(rows) // _SAMPLE)]
            found.append(centred_rows(some, *self.scaling, np.empty(some.shape)))
        return np.concatenate(found)

    # Errors

    def _unit(self, slab: int, dtype: np.dtype) -> float:
        """Return the error of an exponent, relative to half the squares of both rows."""
        slabs = -(-self.d // slab)
        return product_rounding(-(-self.d // slabs), slabs, float(np.finfo(dtype).eps))

    def _median_error(self, dtype: np.dtype) -> float:
        """Return the error of the exponent of typical rows."""
        return self._unit(_SLABS[0], dtype) * 2 * float(np.median(self._sample))

    @cached_property
    def dtype(self) -> np.dtype:
        """Return the precision of the products: float32, if the tolerance is wide enough."""
        float32 = np.dtype(np.float32)
        coarse = self._rtol > 0 and self._median_error(float32) < _COARSEST
        return float32 if coarse else self.given

    @property
    def of_use(self) -> bool:
        """Return whether products have digits left."""
        return self._median_error(self.dtype) < _COARSEST

    @cached_property
    def slabs(self) -> list[slice]:
        """Return the ranges of coordinates whose products are computed at once.

        The longest with which no term has to be computed again, for most queries; else the longest.
        """
        largest = 2 * float(np.quantile(self._sample, 0.99))
        fine = [
            slab
            for slab in _SLABS
            if self._unit(slab, self.dtype) * largest <= UNLISTED * self._allowed
        ]
        ends = np.linspace(0, self.d, -(-self.d // (fine or _SLABS)[0]) + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(ends)]

    @property
    def _allowed(self) -> float:
        """Return what a sum may lose by products, relative to it."""
        rounding = (_ROUNDING * self.d - _OTHER_ROUNDING) * float(np.finfo(self.given).eps) / 2
        return _SHARE * self._rtol or rounding

    @cached_property
    def accuracy(self) -> Accuracy:
        """Return how far exponents are off, and what a sum may lose by that."""
        log_number = math.log(self.problem.n)
        beyond = -math.log(_DROPPED * self._rtol) if self._rtol else _DROPPED_LOG
        eps = float(np.finfo(self.dtype).eps)
        longest = max(slab.stop - slab.start for slab in self.slabs)
        unit = product_rounding(longest, len(self.slabs), eps)
        constant = 4 * eps * -float(self.log_weights.min()) + 1e-30
        return Accuracy(unit, constant, self._allowed, log_number, log_number + beyond)

    @property
    def charged(self) -> float:
        """Return the relative error of the sums beyond that of sums by differences."""
        lost = (_SHARE + _DROPPED) * self._rtol
        if self.dtype != self.given:
            lost += _FLOAT32_ROUNDING * float(np.finfo(self.dtype).eps) / 2
        return lost

    # A few queries

    def probe(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the errors (k,) of the exponents of a few queries, and these, (k, p), over points.

        Of many points some. The exponents of a query with itself or its duplicates are infinite.
        """
        many, some = (
            self.problem.sums.points,
            np.linspace(0, len(self.problem.rows) - 1, _PROBES[0]),
        )
        step = -(-len(many) // _PROBES[1])
        rows = self.problem.rows[np.unique(some.astype(int))]
        query, exponents = np.empty(rows.shape), []
        halves = centred_rows(rows, *self.scaling, query)
        with engine.one_thread_blas():
            for part in engine.ranges(len(many), step * max(1, _VALUES // self.d)):
                points = np.empty((len(many[part][::step]), self.d))
                others = centred_rows(many[part][::step], *self.scaling, points)
                exponents.append(halves[:, None] + others - query @ points.T)
        t = np.concatenate(exponents, axis=1)
        if self.log_weights.size > 1:
            t -= self.log_weights[::step]
        t[t <= 1e-9 * (1 + halves[:, None])] = np.inf
        errors = self.accuracy.unit * (halves + np.median(self._sample)) + self.accuracy.constant
        return errors, t
