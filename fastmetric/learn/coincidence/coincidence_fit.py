"""A fit of Latent Coincidence Analysis: a start, trials on rows held out, and a recorded run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmetric.learn.coincidence import likelihood_solvers as solvers
from fastmetric.learn.coincidence import trials as held_out_trials
from fastmetric.learn.coincidence.impostor_rounds import ImpostorRounds, Settings, State
from fastmetric.learn.coincidence.likelihood import START_NOISE, Coincidence, make_pairs
from fastmetric.learn.coincidence.likelihood_solvers import Model
from fastmetric.learn.coincidence.trials import Start, Trial, VoteErrors
from fastmetric.learn.linear_starts import pca, rca
from fastmetric.learn.optim.holdout import FEW, splits
from fastmetric.learn.optim.outcome import Ending, Iterate, Outcome, Recorder
from fastmetric.learn.rows import Rows, column_deviations, column_means

_PASSES_OF_FEW = 20  # with few rows, whose neighbours in the input space are least informative

OnIterate = Callable[[Iterate[Model]], None]


class Given(NamedTuple):
    """The checked parameters of a fit that are not those of the rounds."""

    p: int  # components
    init: str | np.ndarray
    early_stopping: bool = False
    validation_fraction: float = 0.1


class Fitted(NamedTuple):
    """The state that a fit from labelled rows found, and its run."""

    state: State
    outcome: Outcome[Model]


def starts(X: Rows, given: Given, *, labelled: bool = True) -> list[Start]:
    """Return the start, or two starts for trials to choose from, the preferred one first."""
    (n, n_features), (p, init, *_) = X.shape, given
    if not isinstance(init, str):
        W = init
        return [lambda X, y: W]
    most = min(n, n_features)
    if init in ("pca", "rca") and p > most:
        raise ValueError(
            f"init={init!r} gives at most min(n_samples, n_features) = {most} directions; "
            f"n_components is {p}. Choose init='identity' or fewer components."
        )
    if init == "rca" and not labelled:
        raise ValueError("init='rca' needs classes, which pairs do not have. Choose 'pca'.")

    def by_classes(X: Rows, y: np.ndarray) -> np.ndarray:
        return rca(X, y, p)

    if init == "rca":
        return [by_classes]
    by_rows = init == "pca" or (init == "auto" and p < most)
    W = pca(X, p) if by_rows else np.eye(p, n_features)
    few = labelled and given.early_stopping and p <= most and n < FEW
    return [by_classes, lambda X, y: W] if init == "auto" and few else [lambda X, y: W]


def schedules(settings: Settings, n_passes: int | str, n: int) -> list[Settings]:
    """Return how to learn from n rows: the numbers of passes that are to be tried."""
    passes = [n_passes]
    if n_passes == "auto":
        passes = [_PASSES_OF_FEW, 1] if n < FEW else [1]
    return [settings._replace(n_passes=int(k)) for k in passes]


def problem_of_pairs(
    X: Rows, pairs: tuple[np.ndarray, ...], given: Given
) -> tuple[Coincidence, np.ndarray, float]:
    """Return the likelihood of pairs of rows, and the map and sigma^2 to start from.

    `pairs` are the first and the second row of each, and whether they coincide.
    """
    (start,) = starts(X, given, labelled=False)
    W = start(X, pairs[-1])
    problem = Coincidence(X, make_pairs(len(X), *pairs), np.ones(len(X)))
    noise = START_NOISE / len(W)
    return problem, problem.scaled(W, noise) if isinstance(given.init, str) else W, noise


def fit_pairs(
    problem: Coincidence, W: np.ndarray, noise: float, settings: Settings, on_iterate: OnIterate
) -> Outcome[Model]:
    """Maximise the likelihood of pairs from the map W (p, D) and sigma^2."""
    recorder: Recorder[Model] = Recorder(on_iterate)

    def iterations() -> tuple[Ending, str]:
        end = solvers.SOLVERS[settings.solver](
            problem, W, noise, max_iter=settings.max_iter, tol=settings.tol, recorder=recorder
        )
        return end.ending, end.message

    return recorder.run(iterations)


def fit(
    X: Rows,
    y: np.ndarray,
    ways: list[Settings],
    given: Given,
    rng: np.random.RandomState,
    on_iterate: OnIterate,
    on_errors: Callable[[float], None],
) -> Fitted:
    """Learn a metric for nearest neighbours from rows X (n, D) of class numbers y (n,).

    With early stopping, errors on rows held out choose the start, the settings among `ways` and
    the number of rounds; `on_errors` is called with them.
    """
    _refuse_equal_rows(X)
    candidates = starts(X, given)
    recorder: Recorder[Model] = Recorder(on_iterate)
    last: list[State] = []

    def iterations() -> tuple[Ending, str]:
        start, settings = candidates[-1], ways[0]
        errors: list[float] = []
        trials = _trials(X, y, settings, given, rng) if given.early_stopping else []
        if trials:
            start = held_out_trials.best_start(trials, candidates)
            settings, errors = held_out_trials.best_schedule(trials, start, ways, on_errors)

        def keep(state: State, number: int) -> None:
            figures: dict[str, float] = {
                "pairs": state.n_pairs,
                "active": int(state.scaled.sum()),
            }
            if errors:
                figures["validation"] = errors[number]
            last[:] = [state]
            solvers.keep(recorder, state.model, **figures)

        length = len(errors) - 1 if errors else settings.most_rounds
        return ImpostorRounds(X, y, settings).run(start(X, y), length, keep)

    outcome = recorder.run(iterations)
    return Fitted(last[0], outcome)


def _refuse_equal_rows(X: Rows) -> None:
    """Raise if all rows are equal, up to rounding: the likelihood is the same for all maps."""
    if not column_deviations(X, column_means(X)).any():
        raise ValueError(
            "All rows of X are equal, so that no map is better than another: rows that differ are "
            "needed. Give more rows, or features that vary."
        )


def _trials(
    X: Rows,
    y: np.ndarray,
    settings: Settings,
    given: Given,
    rng: np.random.RandomState,
) -> list[Trial]:
    """Return the trials; none with classes of one row each, where nothing can be learnt."""
    trials = []
    for learnt, held_out in splits(y, given.validation_fraction, rng):
        rows, labels = X.subset(learnt), y[learnt]
        others = X.subset(held_out)
        wrong = VoteErrors(rows, labels, others, y[held_out], settings.n_neighbors)
        trials.append(Trial(ImpostorRounds(rows, labels, settings), wrong, held_out))
    return trials
