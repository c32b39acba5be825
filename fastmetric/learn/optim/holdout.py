"""Rows held out of a fit for model selection: a stratified part, or folds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

FEW = 1_000  # rows; of fewer, a single part held out is too small to distinguish models
_FOLDS, _REPEATS = 5, 3


def hold_out(
    rows: np.ndarray, y: np.ndarray, fraction: float, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to learn from and those held out, the same share of every class.

    At least one row of each class is learnt from; at least one row is held out if any class has
    two.
    """
    shuffled = rows[rng.permutation(len(rows))]
    _, numbers, sizes = np.unique(y[shuffled], return_inverse=True, return_counts=True)
    by_class = np.argsort(numbers, kind="stable")
    rank = np.empty(len(rows), np.intp)  # among the rows of the class
    rank[by_class] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wanted = np.minimum(np.floor(fraction * sizes + 0.5), sizes - 1)
    if not wanted.any() and sizes.max() > 1:
        wanted[sizes.argmax()] = 1
    held_out = rank < wanted[numbers]
    return np.sort(shuffled[~held_out]), np.sort(shuffled[held_out])


def splits(
    y: np.ndarray, fraction: float, rng: np.random.RandomState
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to learn from and those held out, by their classes y (n,).

    From 1,000 rows on, one stratified part is held out. Of fewer rows, each is held out three
    times: five stratified folds, drawn three times.
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
