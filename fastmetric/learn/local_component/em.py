"""EM for Local Component Analysis, on all rows at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from fastmetric.learn.local_component.covariance_model import (
    LocalModel,
    Penalty,
    Shape,
    SingularError,
    model_of,
)
from fastmetric.learn.local_component.e_step import among_all
from fastmetric.learn.optim.outcome import Ending, Iterate, Outcome, Recorder
from fastmetric.learn.rows import ArrayRows, Rows, mean_and_covariance

_TRIAL = 40  # iterations of every trial

OnIterate = Callable[[Iterate[LocalModel]], None]


class Problem:
    """Rows X (n, D), what their model may be like, and the penalty."""

    def __init__(
        self,
        X: Rows,
        shape: Shape,
        penalty: Penalty,
        label: str | None = None,
        moments: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Take the data; `moments` are the mean (D,) and the covariance (D, D), None: of X."""
        self.X, self.shape, self.penalty = X, shape, penalty
        self.n_jobs, self.label = X.n_jobs, label
        self.mean, self.cov = mean_and_covariance(X) if moments is None else moments
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

    def rows(self, model: LocalModel, some: np.ndarray | None = None) -> np.ndarray:
        """Return rows (m, D), None: all, in the coordinates of a model."""
        X = self.X if some is None else ArrayRows(some, self.n_jobs)
        return X.project(self.mean, model.B, precise=True)

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


def figures(n_local: int, log_likelihood: float, objective: float) -> dict[str, float]:
    """Return the figures of a model: its local directions, and means over the rows.

    The log-likelihood leaves each row out of its own density; the objective is penalised, and EM
    never lowers it.
    """
    return {"n_local": n_local, "log_likelihood": log_likelihood, "objective": objective}


def maximise(
    problem: Problem,
    start: LocalModel,
    max_iter: int,
    tol: float,
    on_iterate: OnIterate | None = None,
) -> Outcome[LocalModel]:
    """Run EM on all rows until a step gains less than `tol` in the mean, or `max_iter` steps."""
    recorder: Recorder[LocalModel] = Recorder(on_iterate)

    def iterations() -> tuple[Ending, str]:
        model, before = start, -math.inf
        for number in range(max_iter + 1):
            value, local = problem.expect(model)
            objective = problem.objective(model, value)
            recorder.keep(model, **figures(model.q, value, objective))
            if (number and not objective - before > tol) or model.q == 0:
                return Ending.CONVERGED, "the gain fell below tol"
            before = objective
            if number < max_iter:
                try:
                    model = problem.model(local)
                except SingularError:
                    return Ending.COLLAPSED, "the likelihood has no maximum"
        return Ending.NOT_CONVERGED, "max_iter reached"

    return recorder.run(iterations)


def search_directions(
    problem: Problem, max_iter: int, tol: float, on_iterate: OnIterate | None = None
) -> Outcome[LocalModel]:
    """Run EM, try other numbers of local directions, and run EM from the best to convergence.

    From as many as EM leaves the number goes down, and up again, by steps that are halved: half
    of them, a quarter, and so on. The directions kept are those of largest variance in total
    for their local variance. The figures are those of the best trial and of the run from there.
    """
    began, trial = time.perf_counter(), min(_TRIAL, max_iter)
    first = maximise(problem, problem.start(), trial, tol, on_iterate)
    if first.interrupted:
        return first
    recorder: Recorder[Outcome[LocalModel]] = Recorder(first=1)
    recorder.keep(first)

    def iterations() -> tuple[Ending, str]:
        best = most = first.last.model.q
        trials = {most: first}
        step = (most + 1) // 2
        while step:
            for q in (best - step, best + step):
                if 0 <= q < most and q not in trials:
                    begun = problem.model_from(first.last.model.covariance, q)
                    late = time.perf_counter() - began
                    found = maximise(problem, begun, trial, tol).delayed(late)
                    trials[q] = _uninterrupted(found)
            before, best = best, max(trials, key=lambda q: trials[q].figures[-1]["objective"])
            step = step // 2 if best == before else step
            recorder.keep(trials[best])
        kept = trials[best]
        left = max_iter - kept.last.number
        if kept.ending is Ending.NOT_CONVERGED and left:
            late = time.perf_counter() - began
            final = maximise(problem, kept.last.model, left, tol, on_iterate)
            kept = final.delayed(late).after(kept)
            recorder.keep(kept)
        return kept.ending, kept.message

    run = recorder.run(iterations)
    return run.last.model._replace(ending=run.ending, message=run.message)


def _uninterrupted(outcome: Outcome[LocalModel]) -> Outcome[LocalModel]:
    """Return the outcome of a trial; one that Ctrl-C ended is no trial."""
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome
