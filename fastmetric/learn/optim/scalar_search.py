"""Maximisation over a positive number: a grid in its logarithm, then Brent's bounded search."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

_FACTOR = 4.0  # between two numbers of the ascent
_LEAST_GAIN = 1e-3  # nats; a smaller gain ends the ascent
_PRECISION = 0.1  # of the logarithm, in the bounded search after it
_EVALUATIONS = 8  # of that search, at most


def search_on_grid(
    value: Callable[[float], float], start: float, least: float, most: float
) -> tuple[float, bool]:
    """Return the x in [least, most] of largest value(x), and whether it is the lower end.

    A grid of factors 2 around `start` is extended while its end is the best; a bounded search
    between the neighbours of the best follows. Values may be -inf.
    """
    low, high = math.log(least), math.log(most)
    seen: dict[float, float] = {}

    def loss(log_x: float) -> float:
        seen[float(log_x)] = value(math.exp(log_x))
        return -seen[float(log_x)]

    middle = min(max(math.log(start), low), high)
    grid = [middle + k * math.log(2) for k in range(-5, 2)]
    grid = [log_x for log_x in grid if low < log_x < high] or [middle]
    for log_x in grid:
        loss(log_x)
    while True:
        best = max(grid, key=seen.__getitem__)
        if (best == grid[-1] or seen[best] == -math.inf) and grid[-1] < high:
            grid.append(min(grid[-1] + math.log(2), high))
            loss(grid[-1])
        elif best == grid[0] > low and seen[best] > -math.inf:
            grid.insert(0, max(best - math.log(2), low))
            loss(grid[0])
        else:
            break
    if best == low:
        return least, True
    k = grid.index(best)
    ends = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    with np.errstate(invalid="ignore"):  # differences of infinities
        minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-4})
    return math.exp(max(seen, key=seen.__getitem__)), False


def search_unimodal(
    value: Callable[[float], float], start: float, least: float, most: float
) -> float:
    """Return the x in [least, most] of largest value(x), which should have one maximum in log x.

    The ascent from `start` is by factors of 4; a bounded search between the neighbours of the best
    follows.
    """
    seen: dict[float, float] = {}

    def loss(log_x: float) -> float:
        if log_x not in seen:
            seen[log_x] = value(math.exp(log_x))
        return -seen[log_x]

    low, high, step = math.log(least), math.log(most), math.log(_FACTOR)
    at = min(max(math.log(start), low), high)
    side = step if loss(at + step) < loss(at - step) else -step
    while low < at + side < high and loss(at + side) < loss(at) - _LEAST_GAIN:
        at += side
    ends = max(at - step, low), min(at + step, high)
    options = {"maxiter": _EVALUATIONS, "xatol": _PRECISION}
    minimize_scalar(loss, bounds=ends, method="bounded", options=options)
    return math.exp(max(seen, key=seen.__getitem__))
