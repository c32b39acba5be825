"""Ascent by batches: a step rule that needs no tuning.

The gradient of a batch is smoothed over about ten steps, and divided by its own size: the root
of the mean square of its entries, smoothed over about a hundred. What is left is a direction; the
length of a step is a small share of the size of the map, and falls to zero along half a cosine.
All of it in units in which every feature has variance one, a penalty counted as variance too
(`PenalisedObjective.units`). Up to the penalty, the steps therefore do not depend on the units of
the features, on the number of rows or on the scale of the objective, and the end is as quiet as an
average of iterates would be.

One size for the whole gradient, not one for each entry as in Adam: features that hardly vary
would be moved as far as those that carry the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmetric.learn.nca.objective import Evaluation
from fastmetric.learn.nca.penalised import PenalisedObjective, Value
from fastmetric.learn.optim.lbfgs import Outcome, Recorder, Step

RATE = 0.1  # of the size of the map that the steps begin with, in the first one
_SHARE_LENGTH = 1.0  # what the logit of the background's share moves by, over RATE
_SMOOTHING, _SIZE_SMOOTHING = 0.9, 0.99
_STEADY = 50  # steps on-line; from there on they shorten as 1 / sqrt(their number)


class Batch(NamedTuple):
    """What a step goes by: its rows, and the function of the parameters that they make."""

    size: int
    evaluate: Callable[[np.ndarray], Value]


class Ascent:
    """The memory of the step rule: smoothed gradient and sizes. Arrays only."""

    def __init__(self, A: np.ndarray, units: np.ndarray) -> None:
        """Take the map (d, D) to start from, and the units (d, D) of its entries, inverted."""
        live = max(int(np.count_nonzero(units)), 1)
        self.length = float(np.linalg.norm(A * units)) / live**0.5 or A.shape[1] ** -0.5
        self.count = 0
        self.mean = np.zeros(A.size)
        self.square = 0.0
        self.set_units(units)

    def set_units(self, units: np.ndarray) -> None:
        """Go on with other units; an entry without, of a feature that does not vary, stays."""
        self.inverse = np.divide(1, units, where=units > 0, out=np.zeros(units.shape)).ravel()

    def move(self, theta: np.ndarray, gradient: np.ndarray, scale: float) -> np.ndarray:
        """Return the entries of the map after a step of `scale` times the first one's length."""
        self.count += 1
        slope = gradient * self.inverse
        live = max(int(np.count_nonzero(self.inverse)), 1)
        self.mean = _SMOOTHING * self.mean + (1 - _SMOOTHING) * slope
        self.square *= _SIZE_SMOOTHING
        self.square += (1 - _SIZE_SMOOTHING) * float(slope @ slope) / live
        if self.square == 0:  # nothing to go by
            return theta
        mean = self.mean / (1 - _SMOOTHING**self.count)
        size = (self.square / (1 - _SIZE_SMOOTHING**self.count)) ** 0.5
        return theta + scale * RATE * self.length / size * mean * self.inverse


def online_scale(count: int) -> float:
    """Return the length of a step after `count` of a run without end, over the first one's."""
    return 1 / (1 + count / _STEADY) ** 0.5


def ascend(
    next_batch: Callable[[np.ndarray], Batch],
    penalised: PenalisedObjective,
    theta: np.ndarray,
    units: np.ndarray,
    *,
    steps: int,
    max_iter: int,
    on_step: Callable[[Step], None],
) -> Outcome:
    """Maximise by `max_iter` iterations of so many steps, each by the next batch.

    A StopIteration from `on_step` ends the run, and so does Ctrl-C, at the last iteration.
    The figures of an iteration are means over its batches, taken before each step.
    """
    recorder = Recorder(penalised, on_step)
    A = penalised.split(theta)[0]
    # The logit of the background's share goes by itself, as if it were a map of one entry.
    by_map, by_share = Ascent(A, units), Ascent(np.full((1, 1), _SHARE_LENGTH), np.ones((1, 1)))
    try:
        for n_iter in range(1, max_iter + 1):
            seen: list[tuple[int, Value]] = []
            for k in range(steps):
                batch = next_batch(theta)
                found = batch.evaluate(theta)
                recorder.evaluations += 1
                if not recorder.steps:
                    recorder.keep(summary(recorder, theta, [(batch.size, found)]))
                seen.append((batch.size, found))
                progress = ((n_iter - 1) * steps + k + 0.5) / (max_iter * steps)
                scale = (1 + np.cos(np.pi * progress)) / 2
                slope = found.gradient
                moved = [by_map.move(theta[: A.size], slope[: A.size], scale)]
                if penalised.learns_beta:
                    moved.append(by_share.move(theta[A.size :], slope[A.size :], scale))
                theta = np.concatenate(moved)
            if recorder.keep(summary(recorder, theta, seen)):
                return recorder.outcome(True, "stopped by the callback")
    except KeyboardInterrupt:
        if len(recorder.steps) < 2:
            raise
        return recorder.outcome(False, "interrupted", interrupted=True)
    return recorder.outcome(True, "the steps have come to their end")


def summary(recorder: Recorder, theta: np.ndarray, seen: list[tuple[int, Value]]) -> Step:
    """Return a step with the means over the batches of an iteration."""
    rows = sum(size for size, _ in seen)
    evaluations = [found.evaluation for _, found in seen]
    mean = Evaluation(
        sum(one.value for one in evaluations),
        evaluations[-1].gradient,
        sum(one.error_bound for one in evaluations),
        evaluations[-1].way,
        float(np.mean([one.pair_share for one in evaluations])),
    )
    gradient = np.mean([found.gradient for _, found in seen], axis=0)
    return recorder.step(theta, mean, rows, gradient)
