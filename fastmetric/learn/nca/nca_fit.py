"""A fit of NCA: the rows to learn from, a start, a run of a solver, and its best map."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmetric.learn.chooser import cheaper
from fastmetric.learn.nca import starts, training
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.early_stopping import Validation
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.training import LearntMap, Settings, Trainer
from fastmetric.learn.optim.holdout import hold_out
from fastmetric.learn.optim.outcome import Iterate, Outcome
from fastmetric.learn.rows import Rows

_WHOLE_TO = 20_000  # up to so many rows, the final objective of a fit in batches is over all rows
_SOME = 1000  # rows that estimate it beyond that, unless all rows cost little more
_LITTLE = 4.0  # times the cost of an estimate


class Fitted(NamedTuple):
    """The map that a fit found, and the figures of its run."""

    best: LearntMap
    objective: float
    error_bound: float
    history: dict[str, np.ndarray]
    outcome: Outcome[LearntMap]


OnIterate = Callable[[Iterate[LearntMap]], None]


def fit(
    X: Rows,
    y: np.ndarray,
    mixture: Mixture,
    settings: Settings,
    rng: np.random.RandomState,
    on_begin: Callable[[Objective, Settings, int], None],
    on_iterate: OnIterate,
) -> Fitted:
    """Learn a map from rows X (n, D) of class numbers y (n,).

    `mixture` is that of all classes. `on_begin` is called with the problem, the settings and the
    dimension, `on_iterate` with every iterate.
    """
    learnt, held_out = _learning_rows(y, settings, rng)
    n_classes = int(y.max()) + 1
    solver = training.choose_solver(settings.solver, len(learnt), n_classes)
    size = training.choose_batch_size(settings.batch_size, solver, len(learnt))
    settings = settings._replace(solver=solver, batch_size=size)
    d, init = starts.resolved_start(settings, X.shape[1], len(learnt), n_classes)
    everything = len(learnt) == len(X)
    rows, labels = (X, y) if everything else (X.subset(learnt), y[learnt])
    problem = make_objective(rows, labels, mixture, settings)
    in_batches = solver != "lbfgs"
    start = starts.starting_map(init, d, problem, settings, rng, in_batches=in_batches)
    validation = None
    if settings.early_stopping:
        numbers = np.searchsorted(np.unique(y[learnt]), y[held_out])
        validation = Validation(problem, X.subset(held_out), numbers)

    def recorded(iterate: Iterate[LearntMap]) -> None:
        over = validation is not None and validation.is_over(iterate)
        if iterate.number:
            on_iterate(iterate)
        if over:
            raise StopIteration

    on_begin(problem, settings, settings.n_components or len(start))
    trainer = Trainer(problem, settings, rng, recorded)
    if settings.annealing and settings.n_components is not None:
        start = trainer.annealed(start, settings.n_components)
    outcome = trainer.train(start)
    best, history = outcome.last.model, outcome.history()
    if validation is not None:
        best = best if validation.best is None else validation.best.model
        history["validation"] = validation.history(outcome)
    objective, error_bound = _objective(best, problem, rng, in_batches)
    return Fitted(best, objective, error_bound, history, outcome)


def make_objective(X: Rows, y: np.ndarray, mixture: Mixture, settings: Settings) -> Objective:
    """Return the objective on rows, with the classes that they have."""
    present, y = np.unique(y, return_inverse=True)
    return Objective(
        X,
        y,
        mixture=mixture.of_classes(present),
        method=settings.method,
        rtol=training.choose_tolerance(settings.rtol, len(X), settings.method),
    )


def _learning_rows(
    y: np.ndarray, settings: Settings, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to learn the map from, and those held out."""
    rows = np.arange(len(y))
    if settings.subsample is not None:
        rows = np.sort(rng.permutation(len(y))[: settings.subsample])
    held_out = rows[:0]
    if settings.early_stopping:
        rows, held_out = hold_out(rows, y, settings.validation_fraction, rng)
        if not len(held_out):
            raise ValueError(
                "early_stopping holds out rows, but every class has one row only. Set it to "
                "False, or give more rows."
            )
    if len(np.unique(y[rows])) < 2:
        raise ValueError(
            f"The {len(rows)} rows to learn from are of one class only; at least two classes "
            "are needed. Raise subsample, or lower validation_fraction."
        )
    return rows, held_out


def _objective(
    best: LearntMap, problem: Objective, rng: np.random.RandomState, in_batches: bool
) -> tuple[float, float]:
    """Return the objective of a map, and its error bound.

    After learning in batches of many rows it is an estimate from a sample, without a certificate:
    the bound is 1. Not where the sum over all rows costs little more, as by a lattice.
    """
    n, rows = len(problem.X), None
    if in_batches and n > _WHOLE_TO:
        rows = rng.permutation(n)[:_SOME]
        whole, some = problem.costs(best.A, rows, beta=best.beta)
        rows = None if cheaper(whole, _LITTLE * some) else rows
    found = problem.value(best.A, rows, beta=best.beta)
    if rows is None:
        return found.value / n, found.error_bound / n
    return found.value / _SOME, 1.0
