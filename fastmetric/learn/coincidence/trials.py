"""The start, the schedule and the number of rounds of fewest errors on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fastmetric.learn.coincidence.impostor_rounds import ImpostorRounds, Settings
from fastmetric.learn.rows import Rows, column_means
from fastmetric.learn.tree_search import nearest_rows

_PATIENCE = 10  # rounds without fewer errors


class Trial(NamedTuple):
    """A part of the rows to learn from, and the errors of a map on the others."""

    rounds: ImpostorRounds
    errors: Callable[[np.ndarray], np.ndarray]  # which of them are wrong, (m,) bool
    held_out: np.ndarray  # their row numbers (m,)


# rows (n, D), classes (n,) -> a map (p, D)
Start = Callable[[Rows, np.ndarray], np.ndarray]


def best_start(trials: Sequence[Trial], starts: Sequence[Start]) -> Start:
    """Return the first start, or another one with clearly fewer errors."""
    best, *others = starts
    for other in others:
        wrong = (
            [trial.errors(start(trial.rounds.X, trial.rounds.y)) for trial in trials]
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

    If these are not clearly fewer, only that of the start is returned. All trials advance round
    by round together.
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
        # A trial that has ended keeps its last errors.
        wrong = [
            trial.errors(state.model.W) if state else last
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


def vote(labels: np.ndarray) -> np.ndarray:
    """Return the most frequent of each row's labels (m, k), of several the first to occur."""
    counts = (labels[:, :, None] == labels[:, None, :]).sum(axis=2)
    return np.take_along_axis(labels, counts.argmax(axis=1)[:, None], axis=1)[:, 0]


class VoteErrors:
    """The held-out rows that nearest neighbours under a map misclassify, (m,) bool."""

    def __init__(
        self,
        X: Rows,
        y: np.ndarray,
        X_held_out: Rows,
        y_held_out: np.ndarray,
        k: int,
    ) -> None:
        """Take the rows learnt from and those held out, with their class numbers."""
        self.X, self.y, self.X_held_out, self.y_held_out = X, y, X_held_out, y_held_out
        self.k, self.n_jobs = min(k, len(X)), X.n_jobs
        self.center = column_means(X)

    def __call__(self, W: np.ndarray) -> np.ndarray:
        """Return which rows held out are wrong under the map W (p, D)."""
        W = W.astype(self.X.dtype)
        Z, held_out = (X.project(self.center, W) for X in (self.X, self.X_held_out))
        near = nearest_rows(Z, held_out, self.k, self.n_jobs)
        return vote(self.y[near]) != self.y_held_out
