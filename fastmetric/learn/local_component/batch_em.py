"""EM for Local Component Analysis by batches of rows against a sample of neighbours [LOC-6].

A batch has its own estimate of the local covariance, which is mixed into the one so far. The
memory is that of the rows, the work of a sweep over all of them linear in their number.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from sklearn.utils.random import sample_without_replacement

from fastmetric.learn.local_component.covariance_model import LocalModel, SingularError
from fastmetric.learn.local_component.e_step import of_rows
from fastmetric.learn.local_component.em import OnIterate, Problem, figures
from fastmetric.learn.optim.outcome import Ending, Outcome, Recorder

_LIKELIHOOD_PAIRS = 2e8  # by which the likelihood is estimated in the end
_PATIENCE = 2  # sweeps without a gain, as the gain of one is known up to noise only


class Batches(NamedTuple):
    """How rows are split into batches."""

    size: int  # rows in a batch
    neighbours: int  # rows that they are compared with
    discount: float  # what a sweep leaves of the covariance before it


def mixed(before: np.ndarray, new: np.ndarray, discount: float, share: float) -> np.ndarray:
    """Return the covariance after a batch that is such a share of a sweep."""
    kept = discount**share
    return kept * before + (1 - kept) * new


def expect_rows(
    problem: Problem, model: LocalModel, rows: np.ndarray, ref: np.ndarray, self_index: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-likelihoods (m,) of `rows` (m, D) and their local covariance (D, D).

    Row i is compared with all rows `ref` (n, D) but ref[selves[i]]; -1: with all of them.
    """
    W = problem.rows(model, rows)
    if model.q == 0:  # a single Gaussian
        return model.log_densities(np.zeros(len(W)), W), model.covariance
    to = problem.rows(model, ref)
    seen = of_rows(W, to, self_index, model.q, problem.n_jobs)
    log_counts = np.log(len(ref) - (self_index >= 0))
    logs = model.log_densities(seen.log_sums - log_counts, W)
    return logs, model.unwhitened(seen.scatter / len(rows))


def maximise_by_batches(
    problem: Problem,
    start: LocalModel,
    batches: Batches,
    max_iter: int,
    tol: float,
    rng: np.random.RandomState,
    on_iterate: OnIterate | None = None,
) -> Outcome[LocalModel]:
    """Sweep over the rows until sweeps gain less than `tol`, or `max_iter` times.

    The figures of an iterate are means over a sweep, of the models on the way. The likelihood of
    the last one is estimated anew.
    """
    recorder: Recorder[LocalModel] = Recorder(on_iterate, first=1)  # the start has no figures
    noisy = min(batches.size, batches.neighbours) < len(problem.X)

    def iterations() -> tuple[Ending, str]:
        model, local, best, idle = start, problem.cov, -math.inf, 0
        for _ in range(max_iter):
            try:
                value, objective, model, local = _sweep(problem, model, local, batches, rng)
            except SingularError:
                if recorder.last is None:
                    raise
                return Ending.COLLAPSED, "the likelihood has no maximum"
            recorder.keep(model, **figures(model.q, value, objective))
            idle = 0 if objective > best + tol else idle + 1
            best = max(best, objective)
            if idle >= (_PATIENCE if noisy else 1) or model.q == 0:
                return Ending.CONVERGED, "the gain fell below tol"
        return Ending.NOT_CONVERGED, "max_iter reached"

    return recorder.run(iterations)


def _sweep(
    problem: Problem,
    model: LocalModel,
    local: np.ndarray,
    batches: Batches,
    rng: np.random.RandomState,
) -> tuple[float, float, LocalModel, np.ndarray]:
    """Return a sweep's mean log-likelihood and objective, the model after it, its covariance."""
    X, n, total, penalties = problem.X, len(problem.X), 0.0, 0.0
    order, place = rng.permutation(n), np.full(n, -1)
    for first in range(0, n, batches.size):
        rows = order[first : first + batches.size]
        others = np.arange(n)
        if batches.neighbours < n:
            others = np.sort(sample_without_replacement(n, batches.neighbours, random_state=rng))
        place[others] = np.arange(len(others))
        ref = X.resident() if len(others) == n else X.take(others)
        logs, new = expect_rows(problem, model, X.take(rows), ref, place[rows])
        place[others] = -1
        total += float(logs.sum())
        penalties += len(rows) * problem.penalty.of(model)
        local = mixed(local, new, batches.discount, len(rows) / n)
        model = problem.model(local)
    return total / n, (total - penalties) / n, model, local


def estimated_likelihood(problem: Problem, model: LocalModel, rng: np.random.RandomState) -> float:
    """Return the mean log-likelihood, each row left out of its own, from as many rows as pay."""
    n = len(problem.X)
    rows = np.arange(n)
    if n * n > _LIKELIHOOD_PAIRS:
        rows = sample_without_replacement(n, max(2, int(_LIKELIHOOD_PAIRS / n)), random_state=rng)
    found = expect_rows(problem, model, problem.X.take(rows), problem.X.resident(), rows)
    return float(found[0].mean())
