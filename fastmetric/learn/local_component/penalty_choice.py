"""The penalty of largest held-out likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fastmetric.learn.local_component.covariance_model import (
    LocalDensity,
    LocalModel,
    Penalty,
    Shape,
    SingularError,
)
from fastmetric.learn.local_component.em import Problem
from fastmetric.learn.optim.scalar_search import search_unimodal
from fastmetric.learn.rows import Rows, mean_and_covariance

_LEAST, _MOST = 1e-9, 1e3  # of the mean variance of the features


def range_of_nu(X: Rows) -> tuple[float, float, float]:
    """Return where to begin, the least and the most, from the mean variance of the features."""
    unit = float(np.trace(mean_and_covariance(X)[1])) / X.shape[1]
    if not unit > 0:
        raise ValueError('nu="auto" needs rows that are not all equal. Give a number.')
    return 1e-2 * unit, _LEAST * unit, _MOST * unit


def choose_nu(
    X: Rows,
    held_out: Rows,
    shape: Shape,
    learn: Callable[[Problem], LocalModel],
) -> Penalty:
    """Return the penalty of largest held-out likelihood, of models learnt from X (n, D).

    The Gaussian part's is that of a single Gaussian, which takes no EM to find.
    """
    total = gaussian_nu(X, held_out) if shape.gaussian else None
    moments = mean_and_covariance(X)

    def log_likelihood(nu: float) -> float:
        penalty = Penalty(nu, nu if total is None else total)
        problem = Problem(X, shape, penalty, moments=moments)
        try:
            model = learn(problem)
        except SingularError:  # too small a penalty for data like these
            return -math.inf
        rows = np.ascontiguousarray(problem.rows(model)[:, : model.q])
        density = LocalDensity(model, problem.mean, rows, X.n_jobs)
        return float(density.log_densities(density.coordinates(held_out)).mean())

    nu = search_unimodal(log_likelihood, *range_of_nu(X))
    return Penalty(nu, nu if total is None else total)


def gaussian_nu(X: Rows, held_out: Rows) -> float:
    """Return the nu of largest held-out likelihood, of a single Gaussian of X (n, D)."""
    mean, cov = mean_and_covariance(X)
    variances, V = np.linalg.eigh(cov)
    variances = np.maximum(variances, 0)
    squares = (held_out.project(mean, V.T, precise=True).astype(np.float64) ** 2).mean(axis=0)

    def log_likelihood(nu: float) -> float:
        return -0.5 * float((np.log(variances + nu) + squares / (variances + nu)).sum())

    return search_unimodal(log_likelihood, *range_of_nu(X))
