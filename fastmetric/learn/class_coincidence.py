"""Coincidence with the means of classes: one model per class, eq. (22) of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from fastmetric import engine
from fastmetric.learn import coincidence_solvers as solvers
from fastmetric.learn.coincidence import START_NOISE, Coincidence, make_pairs
from fastmetric.learn.coincidence_solvers import Model, Recorder
from fastmetric.learn.linear import column_means, covariance, project

_FLOOR = 0.01  # of the largest variance of a class: below, variances are raised to it


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


def fit_classes(
    X: np.ndarray, y: np.ndarray, p: int, settings: Settings, n_jobs: int | None
) -> Iterator[ClassModel]:
    """Yield the model of each class number of y (n,), in R^p, from rows X (n, D)."""
    n = len(X)
    rows = np.concatenate([X, X[:1]])  # the last row is the mean of the class at hand
    center = column_means(X, n_jobs)
    solve = solvers.lbfgs if settings.solver == "lbfgs" else solvers.em
    firsts, seconds = np.arange(n, dtype=np.int32), np.full(n, n, np.int32)
    for number in range(int(y.max()) + 1):
        own = y == number
        rows[-1] = column_means(X[own], n_jobs)
        pairs = make_pairs(n + 1, firsts, seconds, own)
        problem = Coincidence(rows, pairs, np.ones(n + 1), n_jobs, center)
        noise = START_NOISE / p
        W = problem.scaled(_start(X, X[own], rows[-1], p, n_jobs), noise)
        recorder = Recorder(lambda figures: None)
        limits = {"max_iter": settings.max_iter, "tol": settings.tol}
        climb = solve(problem, W, noise, **limits, recorder=recorder)
        yield ClassModel(rows[-1].copy(), climb.model, recorder.n_iter, climb.converged)


def _start(
    X: np.ndarray, own: np.ndarray, mean: np.ndarray, p: int, n_jobs: int | None
) -> np.ndarray:
    """Return the p directions (p, D) in which all rows spread most, relative to the class.

    Around the mean of the class; with the class's covariance whitened.
    """
    spread, within = covariance(X, mean, n_jobs), covariance(own, mean, n_jobs)
    with engine.one_thread_blas():
        units = np.sqrt(np.diag(spread))
        units[units <= np.finfo(np.float64).eps * units.max()] = 1.0  # it does not vary
        spread, within = spread / units / units[:, None], within / units / units[:, None]
        floor = _FLOOR * max(float(np.trace(spread)) / len(spread), np.finfo(np.float64).tiny)
        values, directions = eigh(within + floor * np.eye(len(within)))
        root = directions / np.sqrt(values) @ directions.T
        leading = eigh(root @ spread @ root)[1][:, ::-1][:, :p].T
        return leading @ root / units


def log_coincidences(
    X: np.ndarray,
    maps: np.ndarray,
    means: np.ndarray,
    noises: np.ndarray,
    n_jobs: int | None,
) -> np.ndarray:
    """Return log P (n, C) that rows X (n, D) coincide with the means (C, D), [COI-1]."""
    found = np.empty((len(X), len(means)), X.dtype)
    for c, (W, mean, noise) in enumerate(zip(maps, means, noises, strict=True)):
        Z = project(X, mean.astype(X.dtype), W.astype(X.dtype), n_jobs)
        q = np.einsum("ij,ij->i", Z, Z, dtype=np.float64)
        found[:, c] = -0.5 * (Z.shape[1] * np.log1p(2 * noise) + q / (1 + 2 * noise))
    return found
