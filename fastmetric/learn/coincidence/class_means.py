"""Coincidence with the means of classes: one model per class, eq. (22) of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastmetric.learn.coincidence import likelihood_solvers as solvers
from fastmetric.learn.coincidence.likelihood import START_NOISE, Coincidence, make_pairs
from fastmetric.learn.coincidence.likelihood_solvers import Model
from fastmetric.learn.linear_starts import pca
from fastmetric.learn.optim.outcome import Ending, Recorder
from fastmetric.learn.rows import ArrayRows, Rows, column_means


class Settings(NamedTuple):
    """How the model of a class is fitted."""

    solver: str
    max_iter: int
    tol: float


class ClassModel(NamedTuple):
    """The model of a class, and how its fit went."""

    mean: np.ndarray  # (D,)
    model: Model
    n_iter: int
    converged: bool


def fit_classes(X: Rows, y: np.ndarray, p: int, settings: Settings) -> Iterator[ClassModel]:
    """Yield the model of each class number of y (n,), in R^p, from rows X (n, D)."""
    n = len(X)
    rows = np.concatenate(
        [X.resident(), X.block(slice(1))]
    )  # the last row is the mean of the class at hand
    center = column_means(X)
    # Directions that separate the class from the others would be the obvious start, but with many
    # features they separate the training rows at once, whether or not they generalise.
    start = pca(X, p) if p <= n else np.eye(p, X.shape[1])
    solve = solvers.SOLVERS[settings.solver]
    firsts, seconds = np.arange(n, dtype=np.int32), np.full(n, n, np.int32)
    for number in range(int(y.max()) + 1):
        own = y == number
        rows[-1] = column_means(X.subset(own))
        pairs = make_pairs(n + 1, firsts, seconds, own)
        problem = Coincidence(ArrayRows(rows, X.n_jobs), pairs, np.ones(n + 1), center)
        noise = START_NOISE / p
        W = problem.scaled(start, noise)
        recorder: Recorder[Model] = Recorder()
        end = solve(
            problem, W, noise, max_iter=settings.max_iter, tol=settings.tol, recorder=recorder
        )
        converged = end.ending is Ending.CONVERGED
        yield ClassModel(rows[-1].copy(), end.model, len(recorder.figures) - 1, converged)


def log_coincidences(
    X: Rows,
    maps: np.ndarray,
    means: np.ndarray,
    noises: np.ndarray,
) -> np.ndarray:
    """Return log P (n, C) that rows X (n, D) coincide with the means (C, D), [COI-1]."""
    found = np.empty((len(X), len(means)), X.dtype)
    for c, (W, mean, noise) in enumerate(zip(maps, means, noises, strict=True)):
        Z = X.project(mean.astype(X.dtype), W.astype(X.dtype))
        q = np.einsum("ij,ij->i", Z, Z, dtype=np.float64)
        with np.errstate(over="ignore"):  # a row too far away for the precision: log 0
            found[:, c] = -0.5 * (Z.shape[1] * np.log1p(2 * noise) + q / (1 + 2 * noise))
    return found
