"""Sides of densities by a lattice: our methods, KDEpy's Fourier transform, NumPy in blocks."""

from __future__ import annotations

import importlib.util
import math
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.shared.setup import UnavailableError
from bench.sides.kernel_density import Problem
from fastmetric import KernelDensity
from fastmetric._typing import SumMethod
from fastmetric.learn.kernel_sums.lattice_sums import LatticeSums

_BLOCK = 1024  # queries that NumPy sums at once


def ours(problem: Problem, rtol: float, method: SumMethod = "auto") -> np.ndarray:
    """Return our log densities, by one method."""
    density = KernelDensity(bandwidth=problem.h, rtol=rtol, method=method).fit(problem.X)
    return density.score_samples(problem.queries)


def walked_share(problem: Problem, rtol: float) -> float:
    """Return the share of the queries that the lattice leaves to other methods."""
    ways: list[LatticeSums] = []
    log_sums = LatticeSums.log_sums

    def remembering(way: LatticeSums, *args: Any, **kwargs: Any) -> np.ndarray:
        ways.append(way)
        return log_sums(way, *args, **kwargs)

    with patch.object(LatticeSums, "log_sums", remembering):
        ours(problem, rtol, "grid")
    return ways[0].walked / len(problem.queries)


def kdepy(problem: Problem, side: int) -> np.ndarray:
    """Return KDEpy's log densities on a regular grid, `side` points along each axis.

    By a Fourier transform; -inf where its density is not positive.
    """
    if importlib.util.find_spec("KDEpy") is None:
        raise UnavailableError("KDEpy is not installed (pip install KDEpy)")
    from KDEpy import FFTKDE

    d = problem.X.shape[1]
    found = FFTKDE(bw=problem.h).fit(problem.X).evaluate(side if d == 1 else problem.queries)
    values = found[1] if d == 1 else found
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(values, 0))


def on_a_grid(X: np.ndarray, h: float, side: int) -> Problem:
    """Return the points, and as queries a regular grid over a box that is a little larger."""
    slack = 1e-9 * np.ptp(X, axis=0)
    ends = zip(X.min(axis=0) - slack, X.max(axis=0) + slack, strict=True)
    axes = np.meshgrid(*[np.linspace(a, b, side) for a, b in ends], indexing="ij")
    return Problem(X, np.stack([axis.ravel() for axis in axes], axis=1), h)


def numpy_in_blocks(problem: Problem) -> np.ndarray:
    """Return the log densities by products of matrices on all cores, relative to nothing."""
    X, h = problem.X, problem.h
    n, d = X.shape
    norms, out = np.einsum("ij,ij->i", X, X), np.empty(len(problem.queries))
    for first in range(0, len(out), _BLOCK):
        rows = problem.queries[first : first + _BLOCK]
        exponents = rows @ X.T
        exponents -= norms / 2
        exponents -= np.einsum("ij,ij->i", rows, rows)[:, None] / 2
        exponents /= h**2
        top = exponents.max(axis=1)
        exponents -= top[:, None]
        np.exp(exponents, out=exponents)
        out[first : first + _BLOCK] = np.log(exponents.sum(axis=1)) + top
    return out - math.log(n) - d / 2 * math.log(2 * math.pi * h**2)
