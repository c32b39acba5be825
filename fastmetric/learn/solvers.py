"""Maximising an objective: L-BFGS (SciPy), with a history and a good state at any time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

Function = Callable[[np.ndarray, int], tuple[float, np.ndarray, float]]


class Step(NamedTuple):
    """An accepted iterate."""

    n_iter: int
    A: np.ndarray
    value: float  # without the penalty
    error_bound: float  # of the value
    gradient_norm: float  # largest entry, with the penalty
    seconds: float  # since the solver began
    evaluations: int  # since the solver began


class Outcome(NamedTuple):
    """How a run ended: its last step, and every step's figures."""

    last: Step
    history: dict[str, np.ndarray]
    converged: bool
    message: str
    interrupted: bool  # Ctrl-C, after at least one step


class _Recorder:
    """Evaluates the function and keeps what the solver accepted."""

    def __init__(self, function: Function, alpha: float, shape: tuple[int, ...]) -> None:
        self.function, self.alpha, self.shape = function, alpha, shape
        self.began, self.evaluations = time.perf_counter(), 0
        self.steps: list[Step] = []  # the start, then the accepted iterates
        self.latest: Step

    def evaluate(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the penalised value and minus its gradient, flat."""
        A, n_iter = flat.reshape(self.shape).copy(), len(self.steps)
        value, gradient, error_bound = self.function(A, n_iter)
        gradient = gradient - 2 * self.alpha * A
        self.evaluations += 1
        seconds, largest = time.perf_counter() - self.began, float(np.abs(gradient).max())
        self.latest = Step(n_iter, A, value, error_bound, largest, seconds, self.evaluations)
        if n_iter == 0:
            self.accept()
        return self.alpha * float(np.sum(A * A)) - value, -gradient.ravel()

    def accept(self) -> Step:
        """Keep the latest evaluation, the one that the solver just accepted."""
        self.steps.append(self.latest)
        return self.latest

    def history(self) -> dict[str, np.ndarray]:
        """Return the figures of the start and of every accepted step, one array each."""
        return {
            "objective": np.array([step.value for step in self.steps]),
            "gradient_norm": np.array([step.gradient_norm for step in self.steps]),
            "seconds": np.array([step.seconds for step in self.steps]),
            "evaluations": np.array([step.evaluations for step in self.steps]),
        }


def lbfgs(
    function: Function,
    start: np.ndarray,
    *,
    alpha: float,
    max_iter: int,
    tol: float,
    on_step: Callable[[Step], None],
) -> Outcome:
    """Maximise function(A, n_iter) - alpha ‖A‖² from `start` (d, D).

    The function returns its value, its gradient and a bound of the value's error; n_iter is
    only for its messages.
    `tol` is SciPy's: the run ends when the relative gain or the largest entry of the gradient
    falls below it. A StopIteration from `on_step` ends it too. Ctrl-C ends it at the last
    accepted step, if there is one after the start.
    """
    recorder = _Recorder(function, alpha, start.shape)
    stopped = interrupted = False

    def after_iteration(flat: np.ndarray) -> None:
        nonlocal stopped
        try:
            on_step(recorder.accept())
        except StopIteration:
            stopped = True
            raise

    try:
        result = minimize(
            recorder.evaluate,
            start.ravel(),
            method="L-BFGS-B",
            jac=True,
            tol=tol,
            callback=after_iteration,
            options={"maxiter": max_iter},
        )
        converged, message = bool(result.success) or stopped, str(result.message)
    except KeyboardInterrupt:
        if len(recorder.steps) < 2:
            raise
        interrupted, converged, message = True, False, "interrupted"
    return Outcome(recorder.steps[-1], recorder.history(), converged, message, interrupted)
