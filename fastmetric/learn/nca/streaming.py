"""Learning from rows as they come: steps by each new batch against all rows so far (thesis 4.3)."""

from __future__ import annotations

from copy import copy

import numpy as np

from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.penalised import PenalisedObjective, Value
from fastmetric.learn.optim.lbfgs import Outcome, Recorder
from fastmetric.learn.optim.step_rule import Ascent, online_scale, summary


def learn(
    problem: Objective,
    A: np.ndarray,
    seen: int,
    batch_size: int,
    alpha: float,
    ascent: Ascent | None,
) -> tuple[Outcome, Ascent]:
    """Take one pass of steps over the rows from `seen` on, from the map A (d, D).

    `ascent` is the memory of earlier passes; a copy is returned, brought up to date. A share of
    background stays what it is.
    """
    penalised = PenalisedObjective(A.shape, np.full(len(A), alpha), learns_beta=False)
    theta, units = A.flatten(), penalised.units(problem)
    # A copy: a pass that is interrupted leaves no trace.
    ascent = Ascent(A, units) if ascent is None else copy(ascent)
    ascent.set_units(units)
    recorder = Recorder(penalised, lambda step: None)
    figures: list[tuple[int, Value]] = []
    n = len(problem.X)
    for first in range(seen, n, batch_size):
        rows = np.arange(first, min(first + batch_size, n))
        found = penalised.evaluate(problem, theta, rows=rows, share=len(rows) / n)
        recorder.evaluations += 1
        figures.append((len(rows), found))
        if not recorder.steps:
            recorder.keep(summary(recorder, theta, figures))
        theta = ascent.move(theta, found.gradient, online_scale(ascent.count))
    recorder.keep(summary(recorder, theta, figures))
    return recorder.outcome(True, "all rows were seen"), ascent
