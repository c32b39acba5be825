"""L-BFGS (SciPy's), and what every solver leaves behind: its steps, a good state at any time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from fastmetric.learn.nca.objective import Evaluation
from fastmetric.learn.nca.penalised import PenalisedObjective, Value


class Step(NamedTuple):
    """An accepted iterate."""

    n_iter: int
    A: np.ndarray
    beta: float | None  # the share of the background, if it is learnt
    value: float  # mean of P, without the penalty
    error_bound: float  # of the value
    gradient_norm: float  # largest entry, with the penalty
    way: str  # how the sums were taken
    pair_share: float  # of the pairs that were visited
    seconds: float  # since the solver began
    evaluations: int  # since the solver began


class Outcome(NamedTuple):
    """How a run ended: its steps, the start first."""

    steps: list[Step]
    converged: bool
    message: str
    interrupted: bool = False  # Ctrl-C, after at least one step

    @property
    def last(self) -> Step:
        """Return the last step."""
        return self.steps[-1]

    def history(self) -> dict[str, np.ndarray]:
        """Return the figures of the start and of every accepted step, one array each."""
        names = {"value": "objective"}
        kept = ("value", "gradient_norm", "pair_share", "seconds", "evaluations")
        figures = {
            names.get(key, key): np.array([getattr(step, key) for step in self.steps])
            for key in kept
        }
        if self.last.beta is not None:
            figures["beta"] = np.array([step.beta for step in self.steps])
        return figures


class Recorder:
    """Keeps the steps of a solver and its clock; `on_step` is told of each one after the start."""

    def __init__(self, penalised: PenalisedObjective, on_step: Callable[[Step], None]) -> None:
        self.penalised, self.on_step = penalised, on_step
        self.began, self.evaluations = time.perf_counter(), 0
        self.steps: list[Step] = []

    def step(
        self, theta: np.ndarray, evaluation: Evaluation, rows: float, gradient: np.ndarray
    ) -> Step:
        """Return a step from an evaluation over so many rows, not kept yet."""
        A, beta = self.penalised.split(theta)
        return Step(
            len(self.steps),
            A,
            beta,
            evaluation.value / rows,
            evaluation.error_bound / rows,
            float(np.abs(gradient).max()),
            evaluation.way,
            evaluation.pair_share,
            time.perf_counter() - self.began,
            self.evaluations,
        )

    def keep(self, step: Step) -> bool:
        """Keep a step; return whether `on_step` asked to stop there."""
        self.steps.append(step)
        if step.n_iter == 0:
            return False
        try:
            self.on_step(step)
        except StopIteration:
            return True
        return False

    def outcome(self, converged: bool, message: str, interrupted: bool = False) -> Outcome:
        """Return how the run ended."""
        return Outcome(self.steps, converged, message, interrupted)


def lbfgs(
    evaluate: Callable[[np.ndarray, int], Value],
    penalised: PenalisedObjective,
    theta: np.ndarray,
    *,
    rows: int,
    max_iter: int,
    tol: float,
    on_step: Callable[[Step], None],
) -> Outcome:
    """Maximise evaluate(theta, n_iter), a sum over so many rows, from `theta`.

    `tol` is SciPy's: the run ends when the relative gain or the largest entry of the gradient
    falls below it. A StopIteration from `on_step` ends it too. Ctrl-C ends it at the last
    accepted step, if there is one after the start.
    """
    recorder = Recorder(penalised, on_step)
    latest: list[Step] = []
    stopped = False

    def negated(theta: np.ndarray) -> tuple[float, np.ndarray]:
        found = evaluate(theta, len(recorder.steps))
        recorder.evaluations += 1
        latest[:] = [recorder.step(theta, found.evaluation, rows, found.gradient)]
        if not recorder.steps:
            recorder.keep(latest[0])
        return -found.value, -found.gradient

    def after_iteration(theta: np.ndarray) -> None:
        nonlocal stopped
        # The latest evaluation is the one that the solver just accepted.
        if recorder.keep(latest[0]._replace(n_iter=len(recorder.steps))):
            stopped = True
            raise StopIteration

    try:
        result = minimize(
            negated,
            theta,
            method="L-BFGS-B",
            jac=True,
            tol=tol,
            callback=after_iteration,
            options={"maxiter": max_iter},
        )
    except KeyboardInterrupt:
        if len(recorder.steps) < 2:
            raise
        return recorder.outcome(False, "interrupted", interrupted=True)
    return recorder.outcome(bool(result.success) or stopped, str(result.message))
