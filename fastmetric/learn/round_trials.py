"""How many rounds to learn for: as many as leave the fewest errors on rows held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fastmetric.learn.rounds import Rounds
from fastmetric.learn.validation import held_out

FEW = 1_000  # rows; of fewer, a single part held out is too small to tell maps apart
_FOLDS = 5
_PATIENCE = 10  # rounds without fewer errors


class Trial(NamedTuple):
    """A part of the rows to learn from, and what judges a map by the others."""

    rounds: Rounds
    judge: Callable[[np.ndarray], float]  # the share of errors
    n_kept: int  # how many they are


def parts(
    y: np.ndarray, fraction: float, rng: np.random.RandomState
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to learn from and those held out, by their classes y (n,).

    Of many rows, a fraction is held out once. Of few, every row is, a fifth of each class at a
    time.
    """
    n = len(y)
    if n >= FEW:
        learnt, kept = held_out(np.arange(n), y, fraction, rng)
        if len(kept):
            yield learnt, kept
        return
    shuffled = rng.permutation(n)
    fold = np.empty(n, np.intp)
    fold[shuffled[np.argsort(y[shuffled], kind="stable")]] = np.arange(n) % _FOLDS
    for number in range(min(_FOLDS, n)):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def errors_by_round(
    trials: list[Trial], W: np.ndarray, n_passes: int, on_round: Callable[[float], None]
) -> list[list[float]]:
    """Return the share of errors at the start W (p, D) and after each round, a list for each pass.

    All trials go along together. A pass is cut where the errors were fewest, and the next one
    begins there; there is none if it brought nothing.
    """
    n_kept = sum(trial.n_kept for trial in trials)
    maps, curves = [W] * len(trials), []
    for number in range(n_passes):
        runs = [
            trial.rounds.one_pass(start, number) for trial, start in zip(trials, maps, strict=True)
        ]
        ends, wrong = list(maps), [0] * len(trials)
        errors: list[float] = []
        best = 0
        while len(errors) - best <= _PATIENCE:
            moved = False
            for k, (trial, run) in enumerate(zip(trials, runs, strict=True)):
                state = next(run, None)
                if state is not None:  # a trial that has ended stays where it is
                    moved, ends[k] = True, state.model.W
                    wrong[k] = round(trial.n_kept * trial.judge(ends[k]))
            if not moved:
                break
            errors.append(sum(wrong) / n_kept)
            on_round(errors[-1])
            if errors[-1] < errors[best]:
                best, maps = len(errors) - 1, list(ends)
        curves.append(errors[: best + 1])
        if best == 0:
            break
    return curves
