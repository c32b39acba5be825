"""What a solver maximises, as a function of flat parameters: f(A) - sum_k alpha_k |A_k|^2.

The parameters are the entries of A and, if the share of the background is learnt, its logit b:
beta = 1 / (1 + exp(-b)), the same for all classes [CCK-9].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from fastmetric.learn.nca.objective import Evaluation, Objective
from fastmetric.learn.rows import column_deviations

_LEAST_SHARE = 1e-12  # of background and kernels: a line search may take arbitrarily long steps


class Value(NamedTuple):
    """The penalised value, its gradient in the parameters, and the evaluation behind them."""

    value: float
    gradient: np.ndarray
    evaluation: Evaluation


class PenalisedObjective:
    """The penalised objective of maps of one shape."""

    def __init__(self, shape: tuple[int, int], alpha: np.ndarray, learns_beta: bool) -> None:
        """Take a penalty for each row of the map (d,)."""
        self.shape, self.alpha, self.learns_beta = shape, alpha[:, None], learns_beta

    def parameters(self, A: np.ndarray, beta: float | None) -> np.ndarray:
        """Return the flat parameters of a map and a share of background."""
        return np.append(A, logit(beta)) if self.learns_beta else A.flatten()

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, float | None]:
        """Return the map (d, D) and the share of the background, None if it is not learnt."""
        size = self.shape[0] * self.shape[1]
        beta = None
        if self.learns_beta:
            beta = float(np.clip(expit(theta[size]), _LEAST_SHARE, 1 - _LEAST_SHARE))
        return theta[:size].reshape(self.shape).copy(), beta

    def units(self, problem: Objective) -> np.ndarray:
        """Return the inverse of the natural scale of each entry of a map (d, D).

        This is the deviation of the feature, the penalty per row added to its variance: in a
        feature that varies less than that, the penalty alone determines the entry.
        """
        deviations = column_deviations(problem.X, problem.center)
        return np.hypot(deviations, np.sqrt(self.alpha / len(problem.X)))

    def evaluate(
        self,
        problem: Objective,
        theta: np.ndarray,
        *,
        rows: np.ndarray | None = None,
        share: float = 1.0,
        label: str | None = None,
    ) -> Value:
        """Return the value over `rows`, a `share` of all rows; the penalty is scaled by it."""
        A, beta = self.split(theta)
        evaluation = problem.evaluate(A, rows, label, beta=beta, certified=False)
        gradient = (evaluation.gradient - 2 * share * self.alpha * A).ravel()
        if beta is not None:
            gradient = np.append(gradient, beta * (1 - beta) * evaluation.beta_slope)
        penalty = share * float(np.sum(self.alpha * A * A))
        return Value(evaluation.value - penalty, gradient, evaluation)
