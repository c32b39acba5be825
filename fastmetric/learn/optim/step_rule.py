"""Ascent by batches: a step rule without a learning rate.

The gradient of a batch is smoothed over about ten steps, and divided by its own size: the root
of the mean square of its entries, smoothed over about a hundred. The quotient is a direction; the
length of a step is a small share of the size of the map, and decreases to zero along half a
cosine. All of it is in units in which every feature has variance one, a penalty counted as
variance too (`PenalisedObjective.units`). Up to the penalty, the steps therefore do not depend on
the units of the features, on the number of rows or on the scale of the objective, and the last
iterates vary as little as their average would.

The whole gradient has one size, not one for each entry as in Adam, which would move features that
hardly vary as far as those that separate the classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

RATE = 0.1  # length of the first step, as a share of the size of the start
_SMOOTHING, _SIZE_SMOOTHING = 0.9, 0.99
_STEADY = 50  # steps on-line; from there on they shorten as 1 / sqrt(their number)


class StepRule:
    """The state of the step rule: smoothed gradient and sizes."""

    def __init__(self, A: np.ndarray, units: np.ndarray) -> None:
        """Take the map (d, D) to start from, and the units (d, D) of its entries, inverted."""
        live = max(int(np.count_nonzero(units)), 1)
        self.length = float(np.linalg.norm(A * units)) / live**0.5 or A.shape[1] ** -0.5
        self.count = 0
        self.mean = np.zeros(A.size)
        self.square = 0.0
        self.set_units(units)

    def state(self) -> dict[str, Any]:
        """Return the state as arrays and numbers, for `resumed`."""
        return dict(vars(self))

    @classmethod
    def resumed(cls, state: dict[str, Any]) -> StepRule:
        """Return a rule that continues from a `state`."""
        rule = cls.__new__(cls)
        vars(rule).update(state)
        return rule

    def set_units(self, units: np.ndarray) -> None:
        """Change the units; an entry with unit 0, of a constant feature, is not moved."""
        self.inverse = np.divide(1, units, where=units > 0, out=np.zeros(units.shape)).ravel()

    def move(self, theta: np.ndarray, gradient: np.ndarray, scale: float) -> np.ndarray:
        """Return the entries of the map after a step of `scale` times the first one's length."""
        self.count += 1
        slope = gradient * self.inverse
        live = max(int(np.count_nonzero(self.inverse)), 1)
        self.mean = _SMOOTHING * self.mean + (1 - _SMOOTHING) * slope
        self.square *= _SIZE_SMOOTHING
        self.square += (1 - _SIZE_SMOOTHING) * float(slope @ slope) / live
        if self.square == 0:  # no gradient so far
            return theta
        mean = self.mean / (1 - _SMOOTHING**self.count)
        size = (self.square / (1 - _SIZE_SMOOTHING**self.count)) ** 0.5
        return theta + scale * RATE * self.length / size * mean * self.inverse


def annealed_scale(progress: float) -> float:
    """Return the length of a step after a share of all steps, relative to the first."""
    return float(1 + np.cos(np.pi * progress)) / 2


def online_scale(count: int) -> float:
    """Return the length of the step after `count` on-line steps, relative to the first."""
    return 1 / (1 + count / _STEADY) ** 0.5
