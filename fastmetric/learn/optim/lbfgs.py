"""SciPy's L-BFGS, for every objective of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from fastmetric.learn.optim.outcome import Ending


class Maximum(NamedTuple):
    """The last iterate of L-BFGS, and why the run ended."""

    x: np.ndarray
    value: float
    ending: Ending
    message: str


def lbfgs(
    value_and_slope: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    max_iter: int,
    tol: float,
    accepted: Callable[[], None],
    bounds: list[tuple[float | None, float | None]] | None = None,
) -> Maximum:
    """Maximise a function of flat parameters from `start`.

    `tol` is SciPy's: the run ends when the relative gain or the largest entry of the slope is
    below it. `accepted` is called after every iteration; the latest evaluation is then the one
    that the solver accepted.
    """

    def negated(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = value_and_slope(x)
        return -value, -slope

    result = minimize(
        negated,
        start,
        method="L-BFGS-B",
        jac=True,
        bounds=bounds,
        tol=tol,
        callback=lambda x: accepted(),
        options={"maxiter": max_iter},
    )
    ending = Ending.CONVERGED if result.success else Ending.NOT_CONVERGED
    return Maximum(result.x, -float(result.fun), ending, str(result.message))
