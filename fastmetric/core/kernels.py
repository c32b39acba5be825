"""Radial kernels of the scaled squared distance s, chosen by an integer code.

An integer, because a compiled function passed as an argument would miss Numba's disk
cache in every new process.

r = sqrt(s). Every kernel is 1 at s = 0 and falls from there; those but the Gaussian and the
exponential are 0 from s = 1 on.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from fastmetric._jit import jit
from fastmetric.core.vector.exp import exp

GAUSSIAN = 0  # exp(-s)
BIWEIGHT = 1  # (1 - s)^2
TOPHAT = 2  # 1
EPANECHNIKOV = 3  # 1 - s
EXPONENTIAL = 4  # exp(-r)
LINEAR = 5  # 1 - r
COSINE = 6  # cos(pi r / 2)

CODES = {
    "gaussian": GAUSSIAN,
    "biweight": BIWEIGHT,
    "tophat": TOPHAT,
    "epanechnikov": EPANECHNIKOV,
    "exponential": EXPONENTIAL,
    "linear": LINEAR,
    "cosine": COSINE,
}

# In the lower precision, so that an expression has the precision of s.
_ZERO, _ONE = np.float32(0), np.float32(1)


@jit
def has_tails(code):
    """Return whether the kernel is nowhere zero: sums may then be shifted in the exponent."""
    return code in (GAUSSIAN, EXPONENTIAL)


@jit
def exponent(code, s):
    """Return t where k(s) = exp(-t), for a kernel with tails."""
    return s if code == GAUSSIAN else np.sqrt(s)


@jit
def kernel_value(code, s):
    """Return k(s), in the precision of s."""
    if code == GAUSSIAN:
        return exp(-s)
    if code == EXPONENTIAL:
        return exp(-np.sqrt(s))
    gap = max(_ONE - s, _ZERO)
    if code == BIWEIGHT:
        return gap * gap
    if code == TOPHAT:
        return _ONE if gap > _ZERO else _ZERO
    if code == EPANECHNIKOV:
        return gap
    if code == LINEAR:
        # 1 - r = (1 - s) / (1 + r), which keeps its digits near the rim.
        return gap / (_ONE + np.sqrt(s))
    return _cosine(gap / (_ONE + np.sqrt(s)))


@jit
def _quarter_sine(x):
    """Return sin(pi x / 2) for a float64 0 <= x <= 1, by its Taylor series to below 1e-19."""
    y = x * (np.pi / 2)
    total, term = y, y
    for k in range(3, 23, 2):
        term *= -y * y / (k * (k - 1))
        total += term
    return total


def _cosine(x: float) -> float:
    """Return the cosine kernel of r = 1 - x in the precision of x; for compiled code."""
    return float(np.sin(x * np.pi / 2))


@overload(_cosine)
def _cosine_in_precision(x):
    """Return the implementation for the precision of x."""
    if x == types.float32:
        return lambda x: np.float32(_quarter_sine(np.float64(x)))
    return lambda x: _quarter_sine(x)


# NCA knows the two smooth kernels only. A choice of two LLVM moves out of a loop; with seven it
# leaves it inside, and the loop is no longer vectorised.
@jit
def smooth_value(code, s):
    """Return k(s) of the Gaussian or the biweight, in the precision of s."""
    if code == GAUSSIAN:
        return exp(-s)
    gap = max(_ONE - s, _ZERO)
    return gap * gap


@jit
def smooth_fall(code, s):
    """Return -k'(s) >= 0 of the Gaussian or the biweight, in the precision of s."""
    if code == GAUSSIAN:
        return exp(-s)
    gap = max(_ONE - s, _ZERO)
    return gap + gap
