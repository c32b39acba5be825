"""EM for Local Component Analysis by batches of rows against a sample of neighbours [LOC-6].

A batch has its own estimate of the local covariance, which is mixed into the one so far. The
memory is that of the rows, the work of a sweep over all of them linear in their number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.utils.random import sample_without_replacement

from fastmetric.learn.local_component.covariance_model import LocalModel, SingularError
from fastmetric.learn.local_component.e_step import of_rows
from fastmetric.learn.local_component.em import Outcome, Problem, Step

_JUDGED_PAIRS = 2e8  # by which the likelihood is estimated in the end
_PATIENCE = 2  # sweeps without a gain, as the gain of one is known up to noise only


class Batches(NamedTuple):
    """How rows are looked at."""

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
    on_step: Callable[[int, Step], None] | None = None,
) -> Outcome:
    """Sweep over the rows until sweeps gain less than `tol`, or `max_iter` times.

    The figures of a step are means over a sweep, of the models on the way. The likelihood of
    the last one is estimated anew.
    """
    began, model, local = time.perf_counter(), start, problem.cov
    steps: list[Step] = []
    best, idle, ended = -math.inf, 0, {"converged": False}
    noisy = min(batches.size, batches.neighbours) < len(problem.X)
    try:
        for n_iter in range(1, max_iter + 1):
            value, objective, model, local = _sweep(problem, model, local, batches, rng)
            steps.append(Step(model.q, value, objective, time.perf_counter() - began))
            if on_step is not None:
                on_step(n_iter, steps[-1])
            idle = 0 if objective > best + tol else idle + 1
            best = max(best, objective)
            if idle >= (_PATIENCE if noisy else 1) or model.q == 0:
                ended = {"converged": True}
                break
    except (SingularError, KeyboardInterrupt) as stop:
        if not steps:
            raise
        ended |= {"interrupted" if isinstance(stop, KeyboardInterrupt) else "collapsed": True}
    return Outcome(model, steps, **ended)


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
        ref = X if len(others) == n else X[others]
        logs, new = expect_rows(problem, model, X[rows], ref, place[rows])
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
    if n * n > _JUDGED_PAIRS:
        rows = sample_without_replacement(n, max(2, int(_JUDGED_PAIRS / n)), random_state=rng)
    return float(expect_rows(problem, model, problem.X[rows], problem.X, rows)[0].mean())
