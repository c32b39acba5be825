"""Maximising the likelihood of coincidences: L-BFGS, or EM. Both only rise."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from fastmetric.learn.coincidence.likelihood import Coincidence, Evaluation, Scatter

# sigma^2 stays within these factors of kappa^2: pairs of one kind drive it to 0 or beyond all.
LEAST_NOISE, MOST_NOISE = 1e-12, 1e12
# How far L-BFGS moves the map in its first step, as a share of it.
_FIRST_MOVE = 0.05


class Model(NamedTuple):
    """A map W (p, D) and sigma^2, and the likelihood of the pairs it was fitted to."""

    W: np.ndarray
    noise: float
    log_likelihood: float


class Climb(NamedTuple):
    """How a solver ended."""

    model: Model
    converged: bool
    message: str


class Recorder:
    """Keeps the last model and the figures of all, the start first; knows the clock."""

    def __init__(self, on_step: Callable[[dict[str, float]], None]) -> None:
        self.on_step, self.began = on_step, time.perf_counter()
        self.last: Model | None = None
        self.figures: list[dict[str, float]] = []

    def keep(self, model: Model, **more: float) -> None:
        """Keep a model with its figures, and tell `on_step`."""
        figures = {
            "log_likelihood": model.log_likelihood,
            "noise_variance": model.noise,
            "seconds": time.perf_counter() - self.began,
        }
        self.last = model
        self.figures.append(figures | more)
        self.on_step(self.figures[-1])

    @property
    def n_iter(self) -> int:
        """Return the number of models after the start."""
        return len(self.figures) - 1

    def history(self) -> dict[str, np.ndarray]:
        """Return the figures, an array each."""
        return {name: np.array([one[name] for one in self.figures]) for name in self.figures[-1]}


def lbfgs(
    problem: Coincidence,
    W: np.ndarray,
    noise: float,
    *,
    max_iter: int,
    tol: float,
    recorder: Recorder | None = None,
    scatter: Scatter | None = None,
) -> Climb:
    """Maximise over W (p, D) and log sigma^2 by L-BFGS with the slopes [COI-3].

    W moves in coordinates in which the differences of pairs have covariance one, as EM does. So
    the units of the features do not matter. `tol` is on the gain in the mean
    log-likelihood and on its gradient.
    """
    scatter = scatter or Scatter(problem)
    root = scatter.root() * (scatter.size(W) or 1.0)
    slope = float(np.linalg.norm(problem.evaluate(W, noise).map_gradient @ root)) / problem.n_pairs
    # As sigma^2 is bounded, SciPy's first step is the gradient (or of length one, if that is
    # less). In units of u it is u^2 times as long: chosen so that the step is not lost.
    root *= np.sqrt(_FIRST_MOVE / max(slope, _FIRST_MOVE))
    seen: list[Model] = []

    def model_at(theta: np.ndarray) -> tuple[np.ndarray, float]:
        return W + theta[:-1].reshape(W.shape) @ root.T, float(np.exp(theta[-1]))

    def negated(theta: np.ndarray) -> tuple[float, np.ndarray]:
        moved, sigma_sq = model_at(theta)
        found = problem.evaluate(moved, sigma_sq)
        seen[:] = [Model(moved, sigma_sq, found.log_likelihood)]
        slopes = np.append(found.map_gradient @ root, -sigma_sq * found.noise_slope())
        return -found.log_likelihood / problem.n_pairs, slopes / problem.n_pairs

    def after_iteration(theta: np.ndarray) -> None:
        # The latest evaluation is the one that the solver just accepted.
        if recorder is not None:
            recorder.keep(seen[0])

    start = np.append(np.zeros(W.size), np.log(noise))
    if recorder is not None and not recorder.figures:
        negated(start)
        recorder.keep(seen[0])
    bounds = [(None, None)] * W.size + [_log_noise_bounds(problem, noise)]
    result = minimize(
        negated,
        start,
        method="L-BFGS-B",
        jac=True,
        bounds=bounds,
        tol=tol,
        callback=after_iteration,
        options={"maxiter": max_iter},
    )
    model = Model(*model_at(result.x), -float(result.fun) * problem.n_pairs)
    return Climb(model, bool(result.success), str(result.message))


def _log_noise_bounds(problem: Coincidence, noise: float) -> tuple[float, float]:
    """Return the range of log sigma^2, which holds `noise` in any case."""
    kappa_sq = problem.kappa_sq[problem.pairs.firsts]  # of rows without pairs it means nothing
    low = min(np.log(noise), np.log(kappa_sq.min()) + np.log(LEAST_NOISE))
    high = max(np.log(noise), np.log(kappa_sq.max()) + np.log(MOST_NOISE))
    return float(low), float(high)


def em(
    problem: Coincidence,
    W: np.ndarray,
    noise: float,
    *,
    max_iter: int,
    tol: float,
    recorder: Recorder | None = None,
    scatter: Scatter | None = None,
) -> Climb:
    """Take up to `max_iter` EM steps, [COI-4]; `tol` is on the gain in the mean."""
    scatter = scatter or Scatter(problem)
    found = problem.evaluate(W, noise)
    model, converged = Model(W, noise, found.log_likelihood), False
    least = np.exp(_log_noise_bounds(problem, noise)[0])  # on the way there, EM still rises
    if recorder is not None and not recorder.figures:
        recorder.keep(model)
    for _ in range(max_iter):
        W, noise = em_step(model.W, model.noise, found, scatter)
        noise = max(noise, least)
        found = problem.evaluate(W, noise)
        gain = found.log_likelihood - model.log_likelihood
        model = Model(W, noise, found.log_likelihood)
        if recorder is not None:
            recorder.keep(model)
        if gain <= tol * problem.n_pairs:
            converged = True
            break
    return Climb(model, converged, "the gain fell below tol" if converged else "max_iter reached")


def em_step(
    W: np.ndarray, noise: float, found: Evaluation, scatter: Scatter
) -> tuple[np.ndarray, float]:
    """Return W and sigma^2 after one step of [COI-4], whose H is sigma^2 times that of omega."""
    p, n_pairs = len(W), scatter.n_pairs
    move = scatter.solve(found.map_gradient)
    explained = found.moment - float(np.sum(move * found.map_gradient))
    # The square of sigma^2 by itself might overflow.
    change = 2 * noise * (explained / p - found.total) / n_pairs
    return W - 2 * noise * move, noise * (1 + change)


SOLVERS = {"lbfgs": lbfgs, "em": em}
