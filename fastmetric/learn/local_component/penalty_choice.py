"""The penalty that foretells held-out rows best."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from fastmetric.learn.local_component.covariance_density import LocalDensity
from fastmetric.learn.local_component.covariance_model import (
    LocalModel,
    Penalty,
    Shape,
    SingularError,
)
from fastmetric.learn.local_component.em import Problem, mean_and_covariance
from fastmetric.learn.rows import whitened

_FACTOR = 4.0  # between two numbers of the grid
_LEAST, _MOST = 1e-9, 1e3  # of the mean variance of the features
_LEAST_GAIN = 1e-3  # nats, for which the grid goes on
_PRECISION = 0.1  # of the log of nu, and evaluations at most, between two numbers of the grid
_EVALUATIONS = 8


def best_nu(value: Callable[[float], float], start: float, least: float, most: float) -> float:
    """Return the nu in [least, most] of largest value(nu), which should have one hump in log nu.

    Uphill from `start` by factors of 4, then a bounded search between the neighbours of the best.
    """
    seen: dict[float, float] = {}

    def loss(log_nu: float) -> float:
        if log_nu not in seen:
            seen[log_nu] = value(math.exp(log_nu))
        return -seen[log_nu]

    low, high, step = math.log(least), math.log(most), math.log(_FACTOR)
    at = min(max(math.log(start), low), high)
    side = step if loss(at + step) < loss(at - step) else -step
    while low < at + side < high and loss(at + side) < loss(at) - _LEAST_GAIN:
        at += side
    ends = max(at - step, low), min(at + step, high)
    options = {"maxiter": _EVALUATIONS, "xatol": _PRECISION}
    minimize_scalar(loss, bounds=ends, method="bounded", options=options)
    return math.exp(max(seen, key=seen.__getitem__))


def range_of_nu(X: np.ndarray, n_jobs: int | None = None) -> tuple[float, float, float]:
    """Return where to begin, the least and the most, from the mean variance of the features."""
    unit = float(np.trace(mean_and_covariance(X, n_jobs)[1])) / X.shape[1]
    if not unit > 0:
        raise ValueError('nu="auto" needs rows that are not all equal. Give a number.')
    return 1e-2 * unit, _LEAST * unit, _MOST * unit


def choose_nu(
    X: np.ndarray,
    held_out: np.ndarray,
    shape: Shape,
    learn: Callable[[Problem], LocalModel],
    n_jobs: int | None = None,
) -> Penalty:
    """Return the penalty with which the model learnt from X (n, D) foretells held-out rows best.

    The Gaussian part's is that of a single Gaussian, which takes no EM to find.
    """
    total = gaussian_nu(X, held_out, n_jobs) if shape.gaussian else None
    moments = mean_and_covariance(X, n_jobs)

    def log_likelihood(nu: float) -> float:
        penalty = Penalty(nu, nu if total is None else total)
        problem = Problem(X, shape, penalty, n_jobs, moments=moments)
        try:
            model = learn(problem)
        except SingularError:  # too small a penalty for data like these
            return -math.inf
        rows = np.ascontiguousarray(problem.rows(model)[:, : model.q])
        density = LocalDensity(model, problem.mean, rows, n_jobs)
        return float(density.log_densities(density.coordinates(held_out)).mean())

    nu = best_nu(log_likelihood, *range_of_nu(X, n_jobs))
    return Penalty(nu, nu if total is None else total)


def gaussian_nu(X: np.ndarray, held_out: np.ndarray, n_jobs: int | None = None) -> float:
    """Return the nu with which a single Gaussian of X (n, D) foretells held-out rows best."""
    mean, cov = mean_and_covariance(X, n_jobs)
    variances, V = np.linalg.eigh(cov)
    variances = np.maximum(variances, 0)
    squares = (whitened(held_out, mean, V.T, n_jobs).astype(np.float64) ** 2).mean(axis=0)

    def log_likelihood(nu: float) -> float:
        return -0.5 * float((np.log(variances + nu) + squares / (variances + nu)).sum())

    return best_nu(log_likelihood, *range_of_nu(X, n_jobs))
