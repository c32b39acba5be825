"""A fit of Local Component Analysis: the penalty, a run of EM, and the density that is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastmetric.learn.local_component.batch_em import (
    Batches,
    estimated_likelihood,
    maximise_by_batches,
)
from fastmetric.learn.local_component.covariance_model import (
    LocalDensity,
    LocalModel,
    Penalty,
    Shape,
)
from fastmetric.learn.local_component.em import Problem, maximise, search_directions
from fastmetric.learn.local_component.penalty_choice import choose_nu
from fastmetric.learn.local_component.per_row import Kernels, maximise_each
from fastmetric.learn.optim.outcome import Ending, Iterate, Outcome, Recorder
from fastmetric.learn.rows import Rows

_TRIAL_TOL = 3e-3  # of EM, while nu is still being chosen


class Settings(NamedTuple):
    """How to learn: the checked parameters of the estimator."""

    shape: Shape
    penalty: Penalty | None  # None: chosen on rows held out
    batches: Batches | None  # None: all rows at once
    search: bool  # for the number of local directions
    per_row: bool  # one covariance for each row
    smoothing: float  # of these
    validation_fraction: float
    max_iter: int
    tol: float
    label: str | None = None  # of a progress bar


class Fitted(NamedTuple):
    """What a fit found: one covariance for all rows, those of each row, and the run."""

    problem: Problem
    model: LocalModel
    roots: np.ndarray | None  # (n, D, D), of the rows' own covariances
    log_likelihood: float
    outcome: Outcome[Any]  # of EM for one covariance, or for those of each row


OnIterate = Callable[[Iterate], None]


def fit(X: Rows, settings: Settings, rng: np.random.RandomState, on_iterate: OnIterate) -> Fitted:
    """Learn the covariance of the kernel from rows X (n, D)."""
    penalty = settings.penalty or _choose_penalty(X, settings, rng)
    problem = Problem(X, settings.shape, penalty, settings.label)
    outcome: Outcome[Any] = _maximise(problem, settings, rng, on_iterate)
    model, roots = outcome.last.model, None
    if settings.per_row and not outcome.interrupted:
        outcome, roots = _maximise_each(problem, outcome, settings, on_iterate)
    value = outcome.last.figures["log_likelihood"]
    if settings.batches is not None:
        value = estimated_likelihood(problem, model, rng)
    return Fitted(problem, model, roots, value, outcome)


def _choose_penalty(X: Rows, settings: Settings, rng: np.random.RandomState) -> Penalty:
    """Return the penalty of largest likelihood on rows held out."""
    n = len(X)
    n_out = max(1, round(settings.validation_fraction * n))
    if n - n_out < 2:
        raise ValueError(
            f"nu='auto' holds out {n_out} of {n} rows, and at least 2 should be left. Give "
            "more rows or a number."
        )
    order = rng.permutation(n)
    rows, held_out = X.subset(np.sort(order[n_out:])), X.subset(np.sort(order[:n_out]))
    seed = rng.randint(2**31)  # the same batches for every nu
    trial = settings._replace(tol=max(settings.tol, _TRIAL_TOL))
    if settings.batches is not None:
        size, neighbours, discount = settings.batches
        few = min(size, len(rows)), min(neighbours, len(rows)), discount
        trial = trial._replace(batches=Batches(*few))

    def learn(problem: Problem) -> LocalModel:
        outcome = _maximise(problem, trial, np.random.RandomState(seed), None)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome.last.model

    return choose_nu(rows, held_out, settings.shape, learn)


def _maximise(
    problem: Problem,
    settings: Settings,
    rng: np.random.RandomState,
    on_iterate: OnIterate | None,
) -> Outcome[LocalModel]:
    """Return the outcome of EM: with a search for directions, by batches, or on all rows."""
    ends = settings.max_iter, settings.tol
    if settings.search:
        return search_directions(problem, *ends, on_iterate)
    if settings.batches is None:
        return maximise(problem, problem.start(), *ends, on_iterate)
    start, batches = problem.start(), settings.batches
    return maximise_by_batches(problem, start, batches, *ends, rng, on_iterate)


def _maximise_each(
    problem: Problem, before: Outcome[LocalModel], settings: Settings, on_iterate: OnIterate
) -> tuple[Outcome[Any], np.ndarray | None]:
    """Return the outcome of EM for the covariances of all rows, from one for all, and their roots.

    Figures are those of the rows' own units, and of both runs' clock.
    """
    model = before.last.model
    W = problem.rows(model).astype(np.float64)
    recorder: Recorder[Outcome[Any]] = Recorder(first=1)
    recorder.keep(before)

    def iterations() -> tuple[Ending, str]:
        ends = settings.max_iter, settings.tol
        each = maximise_each(
            W, settings.smoothing, *ends, problem.n_jobs, on_iterate, settings.label
        )
        recorder.keep(each)
        return each.ending, each.message

    run = recorder.run(iterations)
    outcome = run.last.model
    if outcome is before:  # interrupted: one covariance for all is what there is
        return before._replace(ending=run.ending, message=run.message), None
    figures = [
        one | {name: one[name] + model.log_det for name in ("log_likelihood", "objective")}
        for one in outcome.delayed(before.last.figures["seconds"]).figures
    ]
    roots = outcome.last.model.roots
    outcome = outcome._replace(last=outcome.last._replace(figures=figures[-1]), figures=figures)
    if outcome.converged and not before.converged:
        outcome = outcome._replace(ending=before.ending, message=before.message)
    return outcome, roots


def log_densities_per_row(
    kernels: Kernels, W: np.ndarray, log_det: float, n_jobs: int | None, label: str | None
) -> np.ndarray:
    """Return the log densities (m,) at rows of coordinates W (m, D), float64."""
    log_sums = kernels.log_sums(W, False, n_jobs, label)
    return log_sums - math.log(len(kernels.centers)) + log_det


def draw(
    density: LocalDensity, roots: np.ndarray | None, n: int, rng: np.random.RandomState
) -> np.ndarray:
    """Return n rows (n, D) drawn from the density, float64; `roots` are those of the rows."""
    if roots is None:
        return density.sample(n, rng)
    model, rows = density.model, density.rows
    chosen = rng.randint(len(rows), size=n)
    steps = np.einsum("ijk,ik->ij", roots[chosen], rng.standard_normal((n, len(model.B))))
    return density.mean + (rows[chosen] + steps) @ model.inverse.T
