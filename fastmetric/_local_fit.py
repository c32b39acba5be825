"""The parts of a fit of Local Component Analysis: checks, the way to learn, what is kept."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fastmetric import _validate
from fastmetric.learn.local_component import em
from fastmetric.learn.local_component.batch_em import (
    Batches,
    estimated_likelihood,
    maximise_by_batches,
)
from fastmetric.learn.local_component.covariance_density import LocalDensity
from fastmetric.learn.local_component.covariance_model import LocalModel, Penalty, Shape
from fastmetric.learn.local_component.direction_search import search
from fastmetric.learn.local_component.em import Outcome, Problem, Step, maximise
from fastmetric.learn.local_component.penalty_choice import choose_nu
from fastmetric.learn.local_component.per_row import Kernels, maximise_each
from fastmetric.learn.local_component.streaming_rows import Seen

COVARIANCES = ("full", "diag", "spherical", "low_rank", "local")
NEIGHBOURS = 3000  # rows that partial_fit keeps, unless told otherwise
ONLINE_BATCH = 1000

_TRIAL_TOL = 3e-3  # of EM, while nu is still being chosen
_MOST_BYTES = 4e9  # of the covariances of "local"


def learns_online(estimator: LocalFit) -> bool:
    """Return whether an estimator can learn from a few rows at a time; raise why it cannot."""
    for name, value in (("covariance", "local"), ("gaussian", "search"), ("nu", "auto")):
        given = getattr(estimator, name)
        if isinstance(given, str) and given == value:
            raise AttributeError(
                f"{name}={value!r} needs all rows at once, and partial_fit sees a few at a time. "
                "Choose another, or call fit."
            )
    return True


class LocalFit:
    """What LocalComponentAnalysis does behind its public methods."""

    # Parameters, see the estimator.
    covariance: str
    rank: Any
    gaussian: Any
    nu: Any
    smoothing: float
    batch_size: Any
    n_neighbors: Any
    discount: float
    validation_fraction: float
    max_iter: int
    tol: float
    verbose: int
    n_jobs: int | None

    # Fitted, besides what the estimator tells of.
    _roots: np.ndarray | None  # (n, D, D), of the rows' own covariances
    _seen: tuple  # what partial_fit goes on from

    def _check_parameters(self, n: int | None = None, D: int | None = None) -> None:
        """Raise on a parameter out of range; also for n rows of D features, if these are known."""
        _validate.choice("covariance", self.covariance, COVARIANCES)
        if not isinstance(self.gaussian, bool | np.bool_):
            _validate.choice("gaussian", self.gaussian, ("search",))
        if self.gaussian and self.covariance != "full":
            raise ValueError(
                f"gaussian={self.gaussian!r} goes with covariance='full', the only one that can "
                f"be split; got covariance={self.covariance!r}."
            )
        if self.covariance == "low_rank":
            _validate.integer("rank", self.rank, 1, None if D is None else max(D - 1, 1))
        elif self.rank is not None:
            raise ValueError(f"rank={self.rank!r} goes with covariance='low_rank' only.")
        if not isinstance(self.nu, str):
            self._given_penalty()
        else:
            _validate.choice("nu", self.nu, ("auto",))
        if not _validate.number("smoothing", self.smoothing) > 0:
            raise ValueError(f"smoothing should be more than 0; got {self.smoothing!r}.")
        for name, least in (("batch_size", 1), ("n_neighbors", 2)):
            if getattr(self, name) is not None:
                _validate.integer(name, getattr(self, name), least)
        if _validate.number("discount", self.discount) >= 1:
            raise ValueError(f"discount should be less than 1; got {self.discount!r}.")
        in_batches = self.batch_size is not None or self.n_neighbors is not None
        if in_batches and (self.gaussian == "search" or self.covariance == "local"):
            given = "gaussian='search'" if self.gaussian == "search" else "covariance='local'"
            raise ValueError(f"{given} learns from all rows: batch_size and n_neighbors are None.")
        _validate.share("validation_fraction", self.validation_fraction)
        _validate.integer("max_iter", self.max_iter, 1)
        _validate.number("tol", self.tol)
        _validate.jobs(self.n_jobs)
        size = 8.0 * (n or 0) * (D or 0) ** 2
        if self.covariance == "local" and size > _MOST_BYTES:
            raise ValueError(
                f"covariance='local' keeps a matrix per row: {n:,} rows of {D} features would take "
                f"{size / 1e9:.1f} GB, of {_MOST_BYTES / 1e9:.0f} GB at most. Give fewer rows or "
                "features, or another covariance."
            )

    def _given_penalty(self) -> Penalty:
        """Return nu, a number or a pair, as two numbers."""
        pair = self.nu if isinstance(self.nu, tuple | list) else (self.nu, self.nu)
        if len(pair) != 2:
            raise ValueError(f"nu should be a number, a pair of them or 'auto'; got {self.nu!r}.")
        return Penalty(*(_validate.number("nu", value) for value in pair))

    @property
    def _shape(self) -> Shape:
        """Return what the model may be like; the start of "local" is full."""
        form = "full" if self.covariance == "local" else self.covariance
        return Shape(form, self.rank or 0, bool(self.gaussian))

    @property
    def _label(self) -> str | None:
        """Return the name of a progress bar; None: there is none."""
        return "pairs" if self.verbose else None

    def _batches(self, n: int) -> Batches | None:
        """Return how n rows are looked at; None: all at once."""
        if self.batch_size is None and self.n_neighbors is None:
            return None
        size, neighbours = (
            n if given is None else min(given, n) for given in (self.batch_size, self.n_neighbors)
        )
        return Batches(size, neighbours, self.discount)

    def _choose_penalty(self, X: np.ndarray, rng: np.random.RandomState) -> Penalty:
        """Return nu as given, or as rows held out like it best."""
        if not isinstance(self.nu, str):
            return self._given_penalty()
        n = len(X)
        n_out = max(1, round(self.validation_fraction * n))
        if n - n_out < 2:
            raise ValueError(
                f"nu='auto' holds out {n_out} of {n} rows, and at least 2 should be left. Give "
                "more rows or a number."
            )
        order = rng.permutation(n)
        rows, held_out = X[np.sort(order[n_out:])], X[np.sort(order[:n_out])]
        seed = rng.randint(2**31)  # every nu sees the same batches

        def learn(problem: Problem) -> LocalModel:
            outcome = self._learn(problem, np.random.RandomState(seed), trial=True)
            if outcome.interrupted:
                raise KeyboardInterrupt
            return outcome.model

        return choose_nu(rows, held_out, self._shape, learn, self.n_jobs)

    def _learn(self, problem: Problem, rng: np.random.RandomState, trial: bool = False) -> Outcome:
        """Return the outcome of EM, in the way that the parameters ask for.

        A `trial` ends early, and tells nothing.
        """
        tol = max(self.tol, _TRIAL_TOL) if trial else self.tol
        ends = self.max_iter, tol
        on_step = None if trial else self._on_step
        batches = self._batches(len(problem.X))
        if self.gaussian == "search":
            return search(problem, *ends, on_step)
        if batches is None:
            return maximise(problem, problem.start(), *ends, on_step)
        return maximise_by_batches(problem, problem.start(), batches, *ends, rng, on_step)

    def _learn_each(self, problem: Problem, outcome: Outcome) -> Outcome:
        """Set the covariances of all rows, from one for all; return the outcome of both."""
        model = outcome.model
        W = problem.rows(model).astype(np.float64)
        ends = self.max_iter, self.tol
        try:
            kernels, steps, converged, interrupted = maximise_each(
                W, self.smoothing, *ends, self.n_jobs, self._on_step, self._label
            )
        except KeyboardInterrupt:  # before an iteration was done: one for all is what there is
            return outcome._replace(interrupted=True)
        self._roots = kernels.roots
        spread = model.inverse @ kernels.roots
        self.covariance_ = spread @ spread.transpose(0, 2, 1)
        moved = [
            step._replace(
                log_likelihood=step.log_likelihood + model.log_det,
                objective=step.objective + model.log_det,
                seconds=step.seconds + outcome.last.seconds,
            )
            for step in steps
        ]
        converged &= outcome.converged
        return Outcome(model, moved, converged, interrupted, outcome.collapsed)

    def _set_model(self, model: LocalModel, mean: np.ndarray, rows: np.ndarray) -> None:
        """Set what describes the density, with kernels around rows in its coordinates (n, D)."""
        self._B, self._inverse, self._log_det = model.B, model.inverse, model.log_det
        self._rows = np.ascontiguousarray(rows[:, : model.q])
        self._density: LocalDensity | None = None
        self._roots = None
        self.mean_, self.covariance_, self.n_local_ = mean, model.covariance, model.q
        self.components_, self.gaussian_components_ = model.B[: model.q], model.B[model.q :]

    def _set_outcome(self, problem: Problem, outcome: Outcome, rng: np.random.RandomState) -> None:
        """Set what tells of the fit."""
        self.nu_ = np.array(problem.penalty)
        self.history_ = em.history(outcome.steps)
        in_batches = self._batches(len(problem.X)) is not None
        # The start is a step of its own, but for batches.
        self.n_iter_ = len(outcome.steps) - (0 if in_batches else 1)
        self.log_likelihood_ = outcome.last.log_likelihood
        if in_batches:
            self.log_likelihood_ = estimated_likelihood(problem, outcome.model, rng)

    def _fitted_model(self) -> LocalModel:
        """Return the model of the fit."""
        return LocalModel(self._B, self._inverse, self.n_local_, self._log_det, self.covariance_)

    def _log_densities(self, X: np.ndarray) -> np.ndarray:
        """Return the log densities (m,) of rows X (m, D), float64."""
        if self._density is None:
            self._density = LocalDensity(
                self._fitted_model(),
                self.mean_,
                _validate.squarable(self._rows, "X") if self.n_local_ else self._rows,
                self.n_jobs,
            )
        if self._roots is None:
            W = self._density.coordinates(X)
            if self.n_local_:
                _validate.squarable(W[:, : self.n_local_], "X")
            return self._density.log_densities(W, self._label)
        W = np.subtract(X, self.mean_, dtype=np.float64) @ self._B.T
        kernels = Kernels(self._rows.astype(np.float64), self._roots)
        log_sums = kernels.log_sums(W, False, self.n_jobs, self._label)
        return log_sums - math.log(len(self._rows)) + self._log_det

    def _draw(self, n: int, rng: np.random.RandomState) -> np.ndarray:
        """Return n rows (n, D) drawn from the density, float64."""
        density = LocalDensity(self._fitted_model(), self.mean_, self._rows)
        if self._roots is None:
            return density.sample(n, rng)
        chosen = rng.randint(len(self._rows), size=n)
        steps = np.einsum("ijk,ik->ij", self._roots[chosen], rng.standard_normal((n, len(self._B))))
        return self.mean_ + (self._rows[chosen] + steps) @ self._inverse.T

    def _on_step(self, n_iter: int, step: Step) -> None:
        """Tell of a step, if asked to."""
        if self.verbose:
            print(
                f"iteration {n_iter}: log-likelihood {step.log_likelihood:.6f}, "
                f"{step.n_local} local directions, {step.seconds:.1f} s",
                flush=True,
            )

    def _report(self, outcome: Outcome) -> None:
        """Tell how the fit ended, if not well."""
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.collapsed:
            warnings.warn(
                f"LocalComponentAnalysis stopped after {self.n_iter_} iterations: the likelihood "
                "has no maximum. It grows without bound as the kernel narrows in a direction in "
                "which rows have equal values. Give nu > 0.",
                ConvergenceWarning,
                stacklevel=3,
            )
        elif not outcome.converged:
            warnings.warn(
                f"LocalComponentAnalysis has not converged after {self.max_iter} iterations. "
                "Raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        if outcome.model.q == 0:
            warnings.warn(
                "No local direction is left: the density is a single Gaussian, and transform "
                "returns no columns.",
                stacklevel=3,
            )

    def _remembered(self) -> Seen:
        """Return what is kept of the rows seen, for partial_fit."""
        return Seen(*self._seen)
