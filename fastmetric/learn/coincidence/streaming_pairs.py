"""On-line learning from pairs: a step for each batch of pairs, which is not kept.

The steps follow the rule of `optim.step_rule`, in units in which the differences of all pairs so
far have variance one. They shorten as on-line NCA's do, since the number of pairs to come is
unknown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from fastmetric.learn.coincidence.likelihood import Coincidence, make_pairs
from fastmetric.learn.coincidence.likelihood_solvers import LEAST_NOISE, MOST_NOISE
from fastmetric.learn.optim.step_rule import StepRule, online_scale
from fastmetric.learn.rows import ArrayRows, Rows, beyond_rounding

_BATCH = 100  # pairs in a step


class PairSteps:
    """The map W (p, D) and sigma^2 so far, kappa = 1, and the state of the step rule."""

    def __init__(self, W: np.ndarray, noise: float) -> None:
        self.W, self.noise = W, noise
        # Of the differences so far, the mean squares; of the rows, the largest entries.
        self.squares, self.largest, self.n_pairs = *np.zeros((2, W.shape[1])), 0
        self.by_map: StepRule | None = None
        # The log of sigma^2 has its own rule, as a map of one entry.
        self.by_noise = StepRule(np.ones((1, 1)), np.ones((1, 1)))

    def state(self) -> dict[str, Any]:
        """Return the state as arrays and numbers, for `resumed`."""
        rules = {"by_map": self.by_map and self.by_map.state(), "by_noise": self.by_noise.state()}
        return vars(self) | {"squares": self.squares.copy()} | rules

    @classmethod
    def resumed(cls, state: dict[str, Any]) -> PairSteps:
        """Return steps that continue from a `state`, which is not changed."""
        steps = cls.__new__(cls)
        vars(steps).update(state)
        steps.squares = state["squares"].copy()  # added to in place
        steps.by_map = state["by_map"] and StepRule.resumed(state["by_map"])
        steps.by_noise = StepRule.resumed(state["by_noise"])
        return steps

    @property
    def count(self) -> int:
        """Return the number of steps so far."""
        return self.by_noise.count

    def learn(
        self,
        X: Rows,
        firsts: np.ndarray,
        seconds: np.ndarray,
        coincide: np.ndarray,
    ) -> float:
        """Take steps by pairs (m,) of the rows X (n, D), in their order.

        Returns the likelihood of the pairs, each before the step of its batch.
        """
        return sum(
            self._step(X.take(firsts[part]), X.take(seconds[part]), coincide[part], X.n_jobs)
            for part in gen_batches(len(coincide), _BATCH)
        )

    def _step(
        self, ours: np.ndarray, theirs: np.ndarray, coincide: np.ndarray, n_jobs: int | None
    ) -> float:
        """Take one step by pairs of rows (m, D); return their likelihood before it."""
        m = len(coincide)
        rows = np.concatenate([ours, theirs])
        pairs = make_pairs(2 * m, np.arange(m), np.arange(m, 2 * m), coincide)
        found = Coincidence(ArrayRows(rows, n_jobs), pairs, np.ones(2 * m)).evaluate(
            self.W, self.noise
        )
        gaps = np.subtract(ours, theirs, dtype=np.float64)
        self.n_pairs += m
        self.squares += np.mean(gaps**2 - self.squares, axis=0) * (m / self.n_pairs)
        self.largest = np.maximum(self.largest, np.abs(rows).max(axis=0))
        units = beyond_rounding(np.sqrt(self.squares), self.largest, rows.dtype)
        units = np.broadcast_to(units, self.W.shape)
        if self.by_map is None:
            self.by_map = StepRule(self.W, units)
        self.by_map.set_units(units)
        scale = online_scale(self.count)
        moved = self.by_map.move(self.W.ravel(), -found.map_gradient.ravel(), scale)
        slope = np.array([self.noise * found.noise_slope()])
        log_noise = self.by_noise.move(np.log([self.noise]), slope, scale)
        self.W = moved.reshape(self.W.shape)
        self.noise = float(np.clip(np.exp(log_noise[0]), LEAST_NOISE, MOST_NOISE))
        return found.log_likelihood
