"""Where to start and how many rounds to learn for, by the errors on rows held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fastmetric.learn.rounds import Rounds
from fastmetric.learn.validation import held_out

FEW = 1_000  # rows; of fewer, a single part held out is too small to tell maps apart
_FOLDS, _REPEATS = 5, 2
_PATIENCE = 10  # rounds without fewer errors


class Trial(NamedTuple):
    """A part of the rows to learn from, and what judges a map by the others."""

    rounds: Rounds
    judge: Callable[[np.ndarray], np.ndarray]  # which of them are wrong, (m,) bool
    kept: np.ndarray  # their row numbers (m,)


# rows (n, D), classes (n,) -> a map (p, D)
Start = Callable[[np.ndarray, np.ndarray], np.ndarray]


def parts(
    y: np.ndarray, fraction: float, rng: np.random.RandomState
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to learn from and those held out, by their classes y (n,).

    Of many rows, a fraction is held out once. Of few, every row is held out twice, a fifth of
    each class at a time.
    """
    n = len(y)
    if n >= FEW:
        learnt, kept = held_out(np.arange(n), y, fraction, rng)
        if len(kept):
            yield learnt, kept
        return
    for _ in range(_REPEATS):
        shuffled = rng.permutation(n)
        fold = np.empty(n, np.intp)
        fold[shuffled[np.argsort(y[shuffled], kind="stable")]] = np.arange(n) % _FOLDS
        for number in range(min(_FOLDS, n)):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def best_start(trials: Sequence[Trial], starts: Sequence[Start]) -> Start:
    """Return the first start, or another one with clearly fewer errors.

    By more than one standard error of the difference; a row held out several times counts as one.
    """
    best, *others = starts
    n = 1 + max(int(trial.kept.max()) for trial in trials)
    for other in others:
        excess = np.zeros(n)
        for rounds, judge, kept in trials:
            ours, theirs = (judge(start(rounds.X, rounds.y)) for start in (best, other))
            excess[kept] += ours.astype(int) - theirs
        if excess.sum() > np.linalg.norm(excess):
            best = other
    return best


def errors_by_round(
    trials: Sequence[Trial], start: Start, on_round: Callable[[float], None]
) -> list[float]:
    """Return the share of errors at the start and after each round, up to the fewest.

    All trials go along together.
    """
    n_kept = sum(len(trial.kept) for trial in trials)
    runs = [trial.rounds.states(start(trial.rounds.X, trial.rounds.y)) for trial in trials]
    errors: list[float] = []
    wrong, best = [0] * len(trials), 0
    while len(errors) - best <= _PATIENCE:
        moved = False
        for k, (trial, run) in enumerate(zip(trials, runs, strict=True)):
            state = next(run, None)
            if state is not None:  # a trial that has ended stays where it is
                moved, wrong[k] = True, int(trial.judge(state.model.W).sum())
        if not moved:
            break
        errors.append(sum(wrong) / n_kept)
        on_round(errors[-1])
        if errors[-1] < errors[best]:
            best = len(errors) - 1
    return errors[: best + 1]
