"""Where to start, how to go on and for how long, by the errors on rows held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fastmetric.learn.coincidence.impostor_rounds import ImpostorRounds, Settings
from fastmetric.learn.nca.early_stopping import hold_out

FEW = 1_000  # rows; of fewer, a single part held out is too small to tell maps apart
_FOLDS, _REPEATS = 5, 3
_PATIENCE = 10  # rounds without fewer errors


class Trial(NamedTuple):
    """A part of the rows to learn from, and what judges a map by the others."""

    rounds: ImpostorRounds
    judge: Callable[[np.ndarray], np.ndarray]  # which of them are wrong, (m,) bool
    held_out: np.ndarray  # their row numbers (m,)


# rows (n, D), classes (n,) -> a map (p, D)
Start = Callable[[np.ndarray, np.ndarray], np.ndarray]


def parts(
    y: np.ndarray, fraction: float, rng: np.random.RandomState
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to learn from and those held out, by their classes y (n,).

    Of many rows, a fraction is held out once. Of few, every row is held out three times, a fifth of
    each class at a time.
    """
    n = len(y)
    if n >= FEW:
        learnt, held_out = hold_out(np.arange(n), y, fraction, rng)
        if len(held_out):
            yield learnt, held_out
        return
    for _ in range(_REPEATS):
        shuffled = rng.permutation(n)
        fold = np.empty(n, np.intp)
        fold[shuffled[np.argsort(y[shuffled], kind="stable")]] = np.arange(n) % _FOLDS
        for number in range(min(_FOLDS, n)):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def best_start(trials: Sequence[Trial], starts: Sequence[Start]) -> Start:
    """Return the first start, or another one with clearly fewer errors."""
    best, *others = starts
    for other in others:
        wrong = (
            [trial.judge(start(trial.rounds.X, trial.rounds.y)) for trial in trials]
            for start in (best, other)
        )
        if _clearly_fewer(trials, *wrong):
            best = other
    return best


def best_schedule(
    trials: Sequence[Trial],
    start: Start,
    schedules: Sequence[Settings],
    on_round: Callable[[float], None],
) -> tuple[Settings, list[float]]:
    """Return the schedule that ends with the fewest errors, the first of equals, and its errors."""
    tried = []
    for settings in schedules:
        some = [trial._replace(rounds=trial.rounds.following(settings)) for trial in trials]
        tried.append((settings, errors_by_round(some, start, on_round)))
    return min(tried, key=lambda one: one[1][-1])


def errors_by_round(
    trials: Sequence[Trial], start: Start, on_round: Callable[[float], None]
) -> list[float]:
    """Return the share of errors at the start and after each round, up to the fewest.

    Of the start alone, if these are not clearly fewer. All trials go along together.
    """
    n_kept = sum(len(trial.held_out) for trial in trials)
    runs = [trial.rounds.states(start(trial.rounds.X, trial.rounds.y)) for trial in trials]
    wrong: list[np.ndarray] = [np.empty(0)] * len(trials)
    errors: list[float] = []
    best, first, fewest = 0, wrong, wrong
    while len(errors) - best <= _PATIENCE:
        states = [next(run, None) for run in runs]
        if not any(states):
            break
        # A trial that has ended stays where it is.
        wrong = [
            trial.judge(state.model.W) if state else last
            for trial, state, last in zip(trials, states, wrong, strict=True)
        ]
        errors.append(sum(int(part.sum()) for part in wrong) / n_kept)
        on_round(errors[-1])
        if len(errors) == 1:
            first = fewest = wrong
        elif errors[-1] < errors[best]:
            best, fewest = len(errors) - 1, wrong
    return errors[: best + 1 if _clearly_fewer(trials, first, fewest) else 1]


def _clearly_fewer(
    trials: Sequence[Trial], before: Sequence[np.ndarray], after: Sequence[np.ndarray]
) -> bool:
    """Return whether errors became fewer by more than one standard error of the difference.

    A row that is held out several times counts as one.
    """
    gains = np.zeros(1 + max(int(trial.held_out.max()) for trial in trials))
    for trial, was, now in zip(trials, before, after, strict=True):
        gains[trial.held_out] += was.astype(int) - now
    return bool(gains.sum() > np.linalg.norm(gains))
