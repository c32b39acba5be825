"""The objective of every NCA variant: the expected number of rows classified correctly.

A row's probability P_i of its own class comes from two sums of weighted kernels, over its own
class and over the others, and from the background if there is one [CCK-2], [CCK-7]; f(A) =
sum P_i [CCK-3] and its gradient 2 UᵀX [CCK-6]. The sums go over all pairs, over trees, or over the
pairs within the cutoff of a compact kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from fastmetric import engine
from fastmetric.core.error_bounds import projection_rounding
from fastmetric.learn.chooser import choose
from fastmetric.learn.nca.background import Background
from fastmetric.learn.nca.class_weights import ClassWeights, Mixture
from fastmetric.learn.pair_sums.certificate import certified_ends
from fastmetric.learn.pair_sums.problem import (
    ClassSums,
    PairProblem,
    PairSums,
    RowWeights,
    Segments,
)
from fastmetric.learn.pair_sums.ways import WAYS
from fastmetric.learn.rows import Rows, column_means

_ROWS = 1 << 15  # of a task that computes row by row
_LIGHTEST = 1e-20  # with smaller weights, the weights of the gradient overflow in float32


class Evaluation(NamedTuple):
    """Value and gradient of the sum of P_i over the chosen rows."""

    value: float
    gradient: np.ndarray  # (d, D), float64
    error_bound: float = np.inf  # certified distance of the value from the exact one
    way: str = "all pairs"  # or "trees", "pairs within the cutoff"
    pair_share: float = 1.0  # of the pairs that were visited
    beta_slope: float = 0.0  # the derivative in the background's share, if it is common to all


class CertifiedValue(NamedTuple):
    """The sum of P_i over the chosen rows, without a gradient."""

    value: float
    error_bound: float  # as in `Evaluation`


class _RowTerms(NamedTuple):
    """The log densities of the chosen rows (m,) under their own class and under the others."""

    own: np.ndarray  # the kernels of the own class
    other: np.ndarray  # those of the others
    own_background: np.ndarray | None = None
    other_background: np.ndarray | None = None

    def probabilities(self, n_jobs: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return P, 1 - P and the log of the total; 0, 0 and 0 for a row of zero density."""
        p_own, p_other, log_total = (np.empty(len(self.own)) for _ in range(3))

        def task(rows: slice) -> None:
            some = self._replace(
                **{name: part[rows] for name, part in self._asdict().items() if part is not None}
            )
            p_own[rows], p_other[rows], log_total[rows] = some._of_rows()

        engine.for_each(task, engine.ranges(len(self.own), _ROWS), n_jobs=n_jobs)
        return p_own, p_other, log_total

    def _of_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what `probabilities` does."""
        own, other = self.own, self.other
        if self.own_background is not None and self.other_background is not None:
            own = np.logaddexp(own, self.own_background)
            other = np.logaddexp(other, self.other_background)
        log_total = np.logaddexp(own, other)
        empty = np.isneginf(log_total)
        log_total[empty] = 0
        # From the difference of the logs: a rounded total of logs of 1e6 would cost six digits.
        with np.errstate(invalid="ignore"):
            gap = own - other
        p_own, p_other = expit(gap), expit(-gap)
        p_own[empty] = p_other[empty] = 0
        return p_own, p_other, log_total


class _Probabilities(NamedTuple):
    """The chosen rows' probabilities, with all terms they are computed from."""

    chosen: np.ndarray  # (m,), among the sorted rows
    counts: np.ndarray  # (m,): how often each was chosen
    y: np.ndarray  # (m,), their classes
    class_weights: ClassWeights
    way: PairSums
    sums: ClassSums
    background: Background | None
    densities: np.ndarray  # (m, C) of the background; (m, 0) without
    terms: _RowTerms
    p_own: np.ndarray  # (m,)
    p_other: np.ndarray
    log_total: np.ndarray

    def error_bound(self, moved: np.ndarray, n_jobs: int | None) -> float:
        """Return the certified error of sum P_i, a background aside.

        `moved` (n,) is how far rounding moves the projected rows.
        """
        # P is largest with the own class at its upper and the others at their lower bound.
        by = moved[self.chosen] + moved.max()
        own, other = certified_ends(self.way.problem, self.sums, by, n_jobs)
        (own_lower, own_upper), (other_lower, other_upper) = own, other
        lowest, highest = (
            _row_terms(own, other, self.densities, self.y, self.class_weights).probabilities(
                n_jobs
            )[0]
            for own, other in ((own_lower, other_upper), (own_upper, other_lower))
        )
        errors = np.maximum(self.p_own - lowest, highest - self.p_own)
        # Of a probability, 8 units, unless it underflows; of their sum, one for every term.
        eps, tiny = float(np.finfo(float).eps), float(np.finfo(float).tiny)
        adding = (len(errors) + 8) * eps * float(self.counts @ self.p_own)
        adding += float(self.counts.sum()) * tiny
        return float(self.counts @ errors) + adding


class Objective:
    """An objective on one data set: rows sorted by class once, evaluated at many A."""

    def __init__(
        self,
        X: Rows,
        y: np.ndarray,
        *,
        mixture: Mixture = Mixture(),  # noqa: B008 (immutable)
        method: str = "exact",
        rtol: float = 0.0,
    ) -> None:
        """Take the data X (n, D) and class numbers y (n,), 0-based, none missing.

        `method` is "exact"; "tree", with class sums within `rtol`; "grid", with every P_i within
        rtol / 2; or "auto", the fastest one.
        """
        self.X, self.n_jobs, self.method, self.rtol = X, X.n_jobs, method, rtol
        self.mixture, self.labels = mixture, y
        self.center = column_means(X)
        self.order = np.argsort(y, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(y))])
        self.y = y[self.order]
        self.classes = Segments(offsets)
        self._norms: np.ndarray | None = None  # of the sorted, centred rows

    def project(self, A: np.ndarray) -> np.ndarray:
        """Return the centred, projected rows (n, d), sorted by class."""
        unsorted = self.X.project(self.center, A.astype(self.X.dtype))
        Z, limit = np.empty_like(unsorted), np.sqrt(np.finfo(unsorted.dtype).max / (8 * len(A)))

        def sort(rows: slice) -> bool:
            Z[rows] = unsorted[self.order[rows]]
            return bool(np.abs(Z[rows]).max() < limit)

        parts = engine.ranges(len(Z), _ROWS)
        if not all(list(engine.run(sort, parts, n_jobs=self.n_jobs))):
            raise ValueError(
                f"The rows of X under the map reach beyond {limit:.1e}, where squared distances "
                f"overflow in {Z.dtype}. Scale X or the map (init, A) down."
            )
        return Z

    def unsorted_projection(self, A: np.ndarray) -> np.ndarray:
        """Return the centred, projected rows (n, d), in the order of X."""
        Z = np.empty((len(self.X), len(A)), self.X.dtype)
        Z[self.order] = self.project(A)
        return Z

    def restricted(self, rows: np.ndarray) -> Objective:
        """Return the objective of some rows among themselves."""
        kept, y = np.unique(self.labels[rows], return_inverse=True)
        return Objective(
            self.X.subset(rows),
            y,
            mixture=self.mixture.of_classes(kept),
            method=self.method,
            rtol=self.rtol,
        )

    def evaluate(
        self,
        A: np.ndarray,
        rows: np.ndarray | None = None,
        label: str | None = None,
        *,
        beta: float | None = None,
        certified: bool = True,
    ) -> Evaluation:
        """Return sum P_i over `rows` (all if None, repeats count) and its gradient at A (d, D).

        `beta`, if given, replaces the mixture's share of the background. The error bound is
        infinite if not `certified`.
        """
        with engine.one_thread_blas():
            found = self._probabilities(A, rows, label, beta, certified)
            y, counts, densities = found.y, found.counts, found.densities
            p_own, p_other, log_total = found.p_own, found.p_other, found.log_total
            own_weights = -counts * found.class_weights.own[y] * p_other
            weights = RowWeights(log_total, own_weights, counts * p_own)
            U = found.way.gradient(weights, label).points
            if found.background is not None:
                strengths = np.exp(densities - log_total[:, None])
                strengths *= -(counts * p_own)[:, None]
                at = np.arange(len(y)), y
                strengths[at] = counts * p_other * np.exp(densities[at] - log_total)
                U += found.background.gradient(found.chosen, strengths)
            gradient = self._gradient(U)
            value = float(counts @ p_own)
            error_bound = found.error_bound(self._moved(A), self.n_jobs) if certified else np.inf
            beta_slope = 0.0
            if found.background is not None:
                mixture = self.mixture.sharing(beta, len(self.classes.sizes))
                shares = mixture.shares(self.classes.sizes)
                beta_slope = _beta_slope(found, shares[0])
            way = found.way
        return Evaluation(value, gradient, error_bound, way.name, way.pair_share, beta_slope)

    def value(
        self, A: np.ndarray, rows: np.ndarray | None = None, *, beta: float | None = None
    ) -> CertifiedValue:
        """Return sum P_i alone, with the bits of `evaluate` but without its gradient pass."""
        with engine.one_thread_blas():
            found = self._probabilities(A, rows, None, beta, certified=True)
            return CertifiedValue(
                float(found.counts @ found.p_own), found.error_bound(self._moved(A), self.n_jobs)
            )

    def costs(
        self, A: np.ndarray, rows: np.ndarray, *, beta: float | None = None
    ) -> tuple[float, float]:
        """Return the costs of the sums over all rows and over some, in nanoseconds."""
        Z, mixture = self.project(A), self.mixture.sharing(beta, len(self.classes.sizes))
        class_weights = mixture.class_weights(self.classes.sizes, Z.shape[1])
        ways = (
            choose(self._pairs(Z, class_weights, chosen), WAYS, self.method, self.n_jobs)
            for chosen in (None, self._chosen(rows)[0])
        )
        whole, some = (way.cost() for way in ways)
        return whole, some

    def _probabilities(
        self,
        A: np.ndarray,
        rows: np.ndarray | None,
        label: str | None,
        beta: float | None,
        certified: bool,
    ) -> _Probabilities:
        """Return the rows' probabilities of their classes, with the terms behind them."""
        mixture = self.mixture.sharing(beta, len(self.classes.sizes))
        Z = self.project(A)
        chosen, counts = self._chosen(rows)
        class_weights = mixture.class_weights(self.classes.sizes, Z.shape[1])
        pairs = self._pairs(Z, class_weights, None if rows is None else chosen)
        pairs = pairs._replace(bounds=certified)
        way = choose(pairs, WAYS, self.method, self.n_jobs)
        sums = way.log_sums(label)
        background = None
        densities = np.empty((len(chosen), 0))
        if class_weights.log_background is not None:
            background = Background(Z, self.classes.offsets, self.n_jobs)
            densities = background.log_densities(Z[chosen]) + class_weights.log_background
        y = self.y[chosen]
        terms = _row_terms(sums.own, sums.other, densities, y, class_weights)
        where = chosen, counts, y, class_weights
        return _Probabilities(
            *where, way, sums, background, densities, terms, *terms.probabilities(self.n_jobs)
        )

    def _moved(self, A: np.ndarray) -> np.ndarray:
        """Return how far rounding moves the sorted, projected rows (n,)."""
        if self._norms is None:
            self._norms = self.X.norms(self.center)[self.order]
        eps = float(np.finfo(self.X.dtype).eps)
        rounding = projection_rounding(self.X.shape[1], eps)
        return rounding * float(np.linalg.norm(A)) * self._norms

    def _chosen(self, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct rows among the sorted ones, and how often each was chosen."""
        if rows is None:
            return np.arange(len(self.order)), np.ones(len(self.order))
        place = np.empty_like(self.order)
        place[self.order] = np.arange(len(place))
        chosen, counts = np.unique(place[rows], return_counts=True)
        return chosen, counts.astype(np.float64)

    def _gradient(self, U: np.ndarray) -> np.ndarray:
        """Return 2 UᵀX (d, D) for U (n, d) of the sorted rows."""
        unsorted = np.empty_like(U, dtype=self.X.dtype)

        def unsort(rows: slice) -> None:
            unsorted[self.order[rows]] = 2 * U[rows]

        engine.for_each(unsort, engine.ranges(len(U), _ROWS), n_jobs=self.n_jobs)
        return self.X.cross(unsorted, self.center)

    def _pairs(
        self, Z: np.ndarray, class_weights: ClassWeights, chosen: np.ndarray | None
    ) -> PairProblem:
        """Return the pairs to sum: the chosen rows (None: all) against all projected rows."""
        weights = class_weights.weights[self.y]
        if weights.min() < _LIGHTEST:
            Z = Z.astype(np.float64)
        # With a background, P is not that of the two sums alone.
        factors = class_weights.own if class_weights.log_background is None else None
        return PairProblem(
            Z, self.classes, weights, self.mixture.code, chosen, rtol=self.rtol, factors=factors
        )


def _row_terms(
    own: np.ndarray,
    other: np.ndarray,
    densities: np.ndarray,
    y: np.ndarray,
    class_weights: ClassWeights,
) -> _RowTerms:
    """Return the terms of rows of classes y (m,) from their sums and densities (m, C or 0)."""
    own = own + np.log(class_weights.own)[y]
    if not densities.size:
        return _RowTerms(own, other)
    at = np.arange(len(y)), y
    others = densities.copy()
    others[at] = -np.inf
    return _RowTerms(own, other, densities[at], logsumexp(others, axis=1))


def _beta_slope(found: _Probabilities, beta: float) -> float:
    """Return the derivative in a share of the background that all classes have [CCK-9]."""
    p_own, p_other, log_total = found.p_own, found.p_other, found.log_total
    own, other, own_background, other_background = (
        np.exp(logs - log_total) for logs in found.terms
    )
    by_background = p_other * own_background - p_own * other_background
    by_kernels = p_other * own - p_own * other
    return float(found.counts @ (by_background / beta - by_kernels / (1 - beta)))
