"""On-line learning: a step for each new batch against all rows so far (thesis 4.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.penalised import PenalisedObjective, Value
from fastmetric.learn.nca.training import LearntMap, MapRecorder
from fastmetric.learn.optim.outcome import Ending, Outcome, Recorder
from fastmetric.learn.optim.step_rule import StepRule, online_scale


def learn(
    problem: Objective,
    A: np.ndarray,
    seen: int,
    batch_size: int,
    alpha: float,
    state: dict[str, Any] | None,
) -> tuple[Outcome[LearntMap], dict[str, Any]]:
    """Take one pass of steps over the rows from `seen` on, from the map A (d, D).

    `state` is the state of the step rule after earlier passes; the updated state is returned. The
    share of a background is not learnt.
    """
    penalised = PenalisedObjective(A.shape, np.full(len(A), alpha), learns_beta=False)
    theta, units = A.flatten(), penalised.units(problem)
    rule = StepRule(A, units) if state is None else StepRule.resumed(state)
    rule.set_units(units)
    maps = MapRecorder(Recorder(), penalised)
    figures: list[tuple[int, Value]] = []
    n = len(problem.X)
    for first in range(seen, n, batch_size):
        rows = np.arange(first, min(first + batch_size, n))
        found = penalised.evaluate(problem, theta, rows=rows, share=len(rows) / n)
        maps.evaluations += 1
        figures.append((len(rows), found))
        if not maps.recorder.figures:
            maps.keep(theta, figures)
        theta = rule.move(theta, found.gradient, online_scale(rule.count))
    maps.keep(theta, figures)
    return maps.recorder.outcome(Ending.CONVERGED, "all rows were seen"), rule.state()
