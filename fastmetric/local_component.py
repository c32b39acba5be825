"""Local Component Analysis: the estimator."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    DensityMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric.learn.linear import whitened
from fastmetric.learn.local_em import Outcome, Problem, Step, maximise
from fastmetric.learn.local_model import LocalModel, Penalty, Shape
from fastmetric.learn.sums import KernelSums

COVARIANCES = ("full", "diag", "spherical", "low_rank")


class LocalComponentAnalysis(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator
):
    """Local Component Analysis.

    Parameters
    ----------
    covariance : {"full", "diag", "spherical", "low_rank"}, default="full"
        The form of the kernel's covariance.
    rank : int, default=None
        Leading directions of "low_rank".
    gaussian : bool or "search", default=False
        Whether directions in which rows have no local structure get a Gaussian density.
    nu : float or pair of floats, default=0.0
        Added to the kernel's variances and to those of the Gaussian part; a pair: to either.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float, default=1e-5
        The fit ends when a step gains less in the mean log-likelihood, penalised.
    verbose : int, default=0
        1: one line per iteration, and progress bars in a terminal.
    n_jobs : int or None, default=None
        Number of threads; None: all cores (one inside a worker process), -1: all cores.
    random_state : int, RandomState or None, default=None
        Draws batches and neighbours.
    """

    _parameter_constraints: dict = {}

    def __init__(
        self,
        *,
        covariance: str = "full",
        rank: int | None = None,
        gaussian: Any = False,
        nu: Any = 0.0,
        max_iter: int = 200,
        tol: float = 1e-5,
        verbose: int = 0,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.covariance = covariance
        self.rank = rank
        self.gaussian = gaussian
        self.nu = nu
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> LocalComponentAnalysis:
        """Learn the metric from rows."""
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            X = _validate.unlabelled_data(self, X, least_rows=2)
            problem = self._problem(X)
            outcome = maximise(problem, problem.start(), self.max_iter, self.tol, self._on_step)
            self._set_model(problem, outcome)
        self._report(outcome)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return rows in the local coordinates."""
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        return whitened(X, self.mean_, self.components_, self.n_jobs)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density at each row, with no training row left out."""
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        model = self._model
        W = whitened(_validate.in_precision_of(X, self._rows), self.mean_, model.B, self.n_jobs)
        sums = np.zeros(len(X))
        if model.q:
            self._sums = getattr(self, "_sums", None) or self._prepare()
            query = _validate.squarable(np.ascontiguousarray(W[:, : model.q]), "X")
            label = "density" if self.verbose else None
            logs = self._sums.log_sums(query, bounds=False, label=label)
            sums = logs.estimate - math.log(len(self._rows))
        return model.log_densities(sums, W).astype(X.dtype, copy=False)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log density of the rows."""
        return float(self.score_samples(X).mean(dtype=np.float64))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw rows from the density."""
        check_is_fitted(self)
        n_samples = _validate.integer("n_samples", n_samples, 1)
        rng = check_random_state(random_state)
        chosen = rng.randint(len(self._rows), size=n_samples)
        W = rng.standard_normal((n_samples, len(self.mean_)))
        W[:, : self._model.q] += self._rows[chosen]
        return (self.mean_ + W @ self._model.inverse.T).astype(self._rows.dtype)

    @property
    def _n_features_out(self) -> int:
        """Return the number of columns of `transform`."""
        return len(self.components_)

    def _problem(self, X: np.ndarray) -> Problem:
        """Return what is to be learnt from rows X (n, D)."""
        shape = Shape(self.covariance, self.rank or 0, bool(self.gaussian))
        label = "iteration" if self.verbose else None
        return Problem(X, shape, self._penalty(), self.n_jobs, label)

    def _set_model(self, problem: Problem, outcome: Outcome) -> None:
        """Set the fitted attributes."""
        model = outcome.last.model
        self._model: LocalModel = model
        self._rows = problem.rows(model)[:, : model.q].copy()
        self._sums = None
        self.mean_ = problem.mean
        self.covariance_ = model.covariance
        self.components_, self.gaussian_components_ = model.B[: model.q], model.B[model.q :]
        self.n_local_ = model.q
        self.nu_ = problem.penalty.local, problem.penalty.total
        self.log_likelihood_ = outcome.last.log_likelihood
        self.history_ = outcome.history()
        self.n_iter_ = len(outcome.steps) - 1

    def _report(self, outcome: Outcome) -> None:
        """Tell how the fit ended, if not well."""
        if outcome.interrupted:
            raise KeyboardInterrupt
        if not outcome.converged:
            warnings.warn(
                f"LocalComponentAnalysis has not converged after {self.n_iter_} iterations. "
                "Raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _on_step(self, n_iter: int, step: Step) -> None:
        """Tell of a step, if asked to."""
        if self.verbose:
            print(
                f"iteration {n_iter}: log-likelihood {step.log_likelihood:.6f}, "
                f"{step.model.q} local directions, {step.seconds:.1f} s",
                flush=True,
            )

    def _prepare(self) -> KernelSums:
        """Return the sums of kernels over the training rows."""
        return KernelSums(_validate.squarable(self._rows, "X"), n_jobs=self.n_jobs)

    def _penalty(self) -> Penalty:
        """Return nu as two numbers."""
        pair = self.nu if isinstance(self.nu, tuple | list) else (self.nu, self.nu)
        if len(pair) != 2:
            raise ValueError(f"nu should be a number or a pair of numbers; got {self.nu!r}.")
        return Penalty(*(_validate.number("nu", value) for value in pair))

    def _check_parameters(self) -> None:
        """Raise on a parameter out of range."""
        _validate.choice("covariance", self.covariance, COVARIANCES)
        self._penalty()
        _validate.integer("max_iter", self.max_iter, 1)
        _validate.number("tol", self.tol)
        _validate.jobs(self.n_jobs)

    def __getstate__(self) -> dict[str, Any]:
        # The sums and their tree are made again from the arrays.
        return {name: value for name, value in super().__getstate__().items() if name != "_sums"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
