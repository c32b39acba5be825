"""EM for Local Component Analysis, on all rows at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastmetric.learn.local_component.covariance_model import (
    LocalModel,
    Penalty,
    Shape,
    SingularError,
    model_of,
)
from fastmetric.learn.local_component.e_step import among_all
from fastmetric.learn.rows import column_means, covariance, whitened


class Step(NamedTuple):
    """What a model is worth."""

    n_local: int  # directions
    log_likelihood: float  # mean, each row left out of its own density
    objective: float  # minus the penalty: what EM never lowers
    seconds: float  # since the run began


class Outcome(NamedTuple):
    """How a run ended: its last model, and its steps, the start first."""

    model: LocalModel
    steps: list[Step]
    converged: bool
    interrupted: bool = False  # Ctrl-C, after at least one step
    collapsed: bool = False  # the likelihood has no maximum; these are the last steps with one

    @property
    def last(self) -> Step:
        """Return the last step."""
        return self.steps[-1]


def history(steps: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return the figures of the steps, one array each."""
    return {key: np.array([getattr(one, key) for one in steps]) for key in steps[0]._fields}


class Problem:
    """Rows X (n, D), what their model may be like, and the penalty."""

    def __init__(
        self,
        X: np.ndarray,
        shape: Shape,
        penalty: Penalty,
        n_jobs: int | None = None,
        label: str | None = None,
        moments: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Take the data; `moments` are the mean (D,) and the covariance (D, D), None: of X."""
        self.X, self.shape, self.penalty = X, shape, penalty
        self.n_jobs, self.label = n_jobs, label
        self.mean, self.cov = mean_and_covariance(X, n_jobs) if moments is None else moments
        self.total = self.cov + penalty.total * np.eye(X.shape[1])

    def start(self) -> LocalModel:
        """Return the model whose kernel is as wide as the data, all directions local."""
        penalised = self.cov + self.penalty.local * np.eye(len(self.cov))
        return self.model_from(penalised, len(penalised))

    def model(self, local: np.ndarray) -> LocalModel:
        """Return the model of a local covariance (D, D), to which the penalty is added."""
        penalised = local + self.penalty.local * np.eye(len(local))
        return model_of(penalised, self.total, self.shape)

    def model_from(self, covariance: np.ndarray, q: int) -> LocalModel:
        """Return the model of a local covariance, penalty included, with q local directions."""
        return model_of(covariance, self.total, self.shape, q=q)

    def rows(self, model: LocalModel, X: np.ndarray | None = None) -> np.ndarray:
        """Return rows, None: all, in the coordinates of a model, (m, D)."""
        return whitened(self.X if X is None else X, self.mean, model.B, self.n_jobs)

    def expect(self, model: LocalModel) -> tuple[float, np.ndarray]:
        """Return the mean leave-one-out log-likelihood and the local covariance [LOC-3]."""
        W, n = self.rows(model), len(self.X)
        if model.q == 0:  # a single Gaussian
            return float(model.log_densities(np.zeros(n), W).mean()), model.covariance
        seen = among_all(W, model.q, self.n_jobs, self.label)
        logs = model.log_densities(seen.log_sums - math.log(n - 1), W)
        return float(logs.mean()), model.unwhitened(seen.scatter / n)

    def objective(self, model: LocalModel, log_likelihood: float) -> float:
        """Return the penalised mean log-likelihood, which EM never lowers."""
        return log_likelihood - self.penalty.of(model)


def mean_and_covariance(X: np.ndarray, n_jobs: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (D,) and the covariance (D, D), divisor n, in float64.

    Features that are constant have a variance of exactly 0.
    """
    center = column_means(X, n_jobs)
    rest = np.zeros(len(center))
    for first in range(0, len(X), 4096):
        rest += np.subtract(X[first : first + 4096], center, dtype=np.float64).sum(axis=0)
    rest /= len(X)
    mean = center + rest
    cov = covariance(X, mean, n_jobs)
    if not np.isfinite(cov).all():
        raise ValueError("The variances of X overflow float64. Scale the features down.")
    constant = np.sqrt(np.diag(cov)) <= 8 * np.finfo(X.dtype).eps * np.abs(mean)
    cov[constant] = 0
    cov[:, constant] = 0
    return mean, cov


def maximise(
    problem: Problem,
    start: LocalModel,
    max_iter: int,
    tol: float,
    on_step: Callable[[int, Step], None] | None = None,
) -> Outcome:
    """Run EM on all rows until a step gains less than `tol` in the mean, or `max_iter` steps."""
    began, model, proposed = time.perf_counter(), start, start
    steps: list[Step] = []
    collapsed = False
    try:
        for n_iter in range(max_iter + 1):
            value, local = problem.expect(proposed)
            model, objective = proposed, problem.objective(proposed, value)
            steps.append(Step(model.q, value, objective, time.perf_counter() - began))
            if on_step is not None:
                on_step(n_iter, steps[-1])
            gained = n_iter == 0 or objective - steps[-2].objective > tol
            if not gained or model.q == 0:
                return Outcome(model, steps, converged=True)
            if n_iter < max_iter:
                proposed = problem.model(local)
    except SingularError:
        collapsed = True
    except KeyboardInterrupt:
        if len(steps) < 2:
            raise
        return Outcome(model, steps, converged=False, interrupted=True)
    return Outcome(model, steps, converged=False, collapsed=collapsed)
