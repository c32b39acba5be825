"""Maximising the likelihood of coincidences: by L-BFGS, or by EM. Neither lowers it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric.learn.coincidence.likelihood import Coincidence, Evaluation, Scatter
from fastmetric.learn.optim.lbfgs import lbfgs
from fastmetric.learn.optim.outcome import Ending, Recorder

# sigma^2 stays within these factors of kappa^2: pairs of one kind drive it to 0 or infinity.
LEAST_NOISE, MOST_NOISE = 1e-12, 1e12
# How far L-BFGS moves the map in its first step, as a share of it.
_FIRST_MOVE = 0.05


class Model(NamedTuple):
    """A map W (p, D) and sigma^2, and the likelihood of the pairs it was fitted to."""

    W: np.ndarray
    noise: float
    log_likelihood: float


class Solved(NamedTuple):
    """The last model of a solver, and why the run ended."""

    model: Model
    ending: Ending
    message: str


def keep(recorder: Recorder[Model] | None, model: Model, **more: float) -> None:
    """Keep a model with its figures, if there is a recorder."""
    if recorder is not None:
        recorder.keep(
            model, log_likelihood=model.log_likelihood, noise_variance=model.noise, **more
        )


def by_lbfgs(
    problem: Coincidence,
    W: np.ndarray,
    noise: float,
    *,
    max_iter: int,
    tol: float,
    recorder: Recorder[Model] | None = None,
    scatter: Scatter | None = None,
) -> Solved:
    """Maximise over W (p, D) and log sigma^2 by L-BFGS with the slopes [COI-3].

    W moves in coordinates in which the differences of pairs have covariance one, as EM does. So
    the units of the features do not matter. `tol` is on the gain in the mean
    log-likelihood and on its gradient.
    """
    scatter = scatter or Scatter(problem)
    root = scatter.root() * (scatter.size(W) or 1.0)
    slope = float(np.linalg.norm(problem.evaluate(W, noise).map_gradient @ root)) / problem.n_pairs
    # As sigma^2 is bounded, SciPy's first step is the gradient (or of length one, if that is
    # less). In units of u it is u^2 times as long: u is chosen so that the step is useful.
    root *= np.sqrt(_FIRST_MOVE / max(slope, _FIRST_MOVE))
    seen: list[Model] = []

    def model_at(theta: np.ndarray) -> tuple[np.ndarray, float]:
        return W + theta[:-1].reshape(W.shape) @ root.T, float(np.exp(theta[-1]))

    def value_and_slope(theta: np.ndarray) -> tuple[float, np.ndarray]:
        moved, sigma_sq = model_at(theta)
        found = problem.evaluate(moved, sigma_sq)
        seen[:] = [Model(moved, sigma_sq, found.log_likelihood)]
        slopes = np.append(-(found.map_gradient @ root), sigma_sq * found.noise_slope())
        return found.log_likelihood / problem.n_pairs, slopes / problem.n_pairs

    start = np.append(np.zeros(W.size), np.log(noise))
    if recorder is not None and not recorder.figures:
        value_and_slope(start)
        keep(recorder, seen[0])
    end = lbfgs(
        value_and_slope,
        start,
        max_iter=max_iter,
        tol=tol,
        accepted=lambda: keep(recorder, seen[0]),
        bounds=[(None, None)] * W.size + [_log_noise_bounds(problem, noise)],
    )
    model = Model(*model_at(end.x), end.value * problem.n_pairs)
    return Solved(model, end.ending, end.message)


def _log_noise_bounds(problem: Coincidence, noise: float) -> tuple[float, float]:
    """Return the range of log sigma^2, which holds `noise` in any case."""
    kappa_sq = problem.kappa_sq[problem.pairs.firsts]  # of rows without pairs it means nothing
    low = min(np.log(noise), np.log(kappa_sq.min()) + np.log(LEAST_NOISE))
    high = max(np.log(noise), np.log(kappa_sq.max()) + np.log(MOST_NOISE))
    return float(low), float(high)


def by_em(
    problem: Coincidence,
    W: np.ndarray,
    noise: float,
    *,
    max_iter: int,
    tol: float,
    recorder: Recorder[Model] | None = None,
    scatter: Scatter | None = None,
) -> Solved:
    """Take up to `max_iter` EM steps, [COI-4]; `tol` is on the gain in the mean."""
    scatter = scatter or Scatter(problem)
    found = problem.evaluate(W, noise)
    model = Model(W, noise, found.log_likelihood)
    least = np.exp(
        _log_noise_bounds(problem, noise)[0]
    )  # down to there, EM still increases the likelihood
    if recorder is not None and not recorder.figures:
        keep(recorder, model)
    for _ in range(max_iter):
        W, noise = em_step(model.W, model.noise, found, scatter)
        noise = max(noise, least)
        found = problem.evaluate(W, noise)
        gain = found.log_likelihood - model.log_likelihood
        model = Model(W, noise, found.log_likelihood)
        keep(recorder, model)
        if gain <= tol * problem.n_pairs:
            return Solved(model, Ending.CONVERGED, "the gain fell below tol")
    return Solved(model, Ending.NOT_CONVERGED, "max_iter reached")


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


SOLVERS = {"lbfgs": by_lbfgs, "em": by_em}
