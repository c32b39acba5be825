"""Radial kernels of the scaled squared distance s by code: values, slopes, and their bounds.

A kernel is an integer code, because a compiled function passed as an argument would miss Numba's
disk cache in every new process. Names, volumes and random draws are in `learn.kernel_table`.

r = sqrt(s). Every kernel is 1 at s = 0 and decreases; the compact ones are 0 from s = 1 on. The
bounds are of derivatives in q / h, where s = |q|^2 / (2 h^2) for the Gaussian and |q|^2 / h^2 for
the others.

The weakest assumption holds for a code that is not known here: its value is NaN, its bounds are
infinite, so that no node is accepted whole, and no node is left out as beyond its reach.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from fastmetric._jit import jit, jit_in_order
from fastmetric.core.vector.exp import exp, exp64

GAUSSIAN = 0  # exp(-s)
BIWEIGHT = 1  # (1 - s)^2
TOPHAT = 2  # 1
EPANECHNIKOV = 3  # 1 - s
EXPONENTIAL = 4  # exp(-r)
LINEAR = 5  # 1 - r
COSINE = 6  # cos(pi r / 2)

_COMPACT = (BIWEIGHT, TOPHAT, EPANECHNIKOV, LINEAR, COSINE)

# In the lower precision, so that an expression has the precision of s.
_ZERO, _ONE, _NAN = np.float32(0), np.float32(1), np.float32(np.nan)


@jit
def has_tails(code):
    """Return whether the kernel is nowhere zero: sums may then be shifted in the exponent."""
    return code not in _COMPACT


@jit
def exponent(code, s):
    """Return t where k(s) = exp(-t), for the Gaussian and the exponential kernel."""
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
    if code == COSINE:
        return _cosine(gap / (_ONE + np.sqrt(s)))
    return _NAN


@jit
def _quarter_sine(x):
    """Return sin(pi x / 2) for a float64 0 <= x <= 1, by its Taylor series to below 1e-19.

    The small terms first: within 4 units at x = 1, where a bound has none to spare.
    """
    y = x * (np.pi / 2)
    sq, ratio = y * y, 1.0
    for k in range(21, 1, -2):
        ratio = 1 - ratio * sq / (k * (k - 1))
    return y * ratio


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


# Tiles


@jit_in_order
def shifted_kernel(code, s, shift):
    """Return exp(shift) k(s), float64, infinity beyond 1e304.

    The shift is 0 unless the kernel has tails.
    """
    if code in (GAUSSIAN, EXPONENTIAL):
        t = shift - exponent(code, s)
        return exp64(t) if t <= 700.0 else np.inf
    return np.float64(kernel_value(code, s))


@jit
def apply_kernel(code, x, factor, shift):
    """Turn squared distances x into exp(shift) k(factor * x), in place.

    A whole tile in one loop: rows of a few dozen would not fill the pipeline of exp.
    """
    scale, lift = x.dtype.type(factor), x.dtype.type(shift)
    if code == GAUSSIAN:
        for j in range(x.size):
            x[j] = exp(lift - scale * x[j])
    elif code == EXPONENTIAL:
        for j in range(x.size):
            x[j] = exp(lift - np.sqrt(scale * x[j]))
    # A choice of many that stays inside the loop would keep it from being vectorised.
    elif code == BIWEIGHT:
        for j in range(x.size):
            x[j] = kernel_value(BIWEIGHT, scale * x[j])
    elif code == EPANECHNIKOV:
        for j in range(x.size):
            x[j] = kernel_value(EPANECHNIKOV, scale * x[j])
    elif code == TOPHAT:
        for j in range(x.size):
            x[j] = kernel_value(TOPHAT, scale * x[j])
    elif code == LINEAR:
        for j in range(x.size):
            x[j] = kernel_value(LINEAR, scale * x[j])
    else:
        for j in range(x.size):
            x[j] = kernel_value(code, scale * x[j])


# Bounds


@jit_in_order
def inverse_sq_width(code, factor):
    """Return 1 / h^2, where s = factor * squared distance."""
    return 2 * factor if code == GAUSSIAN else factor


@jit_in_order
def slope_bound(code, s_hi, k_lo):
    """Return exp(shift) times a bound of the kernel's gradient in q/h up to s_hi.

    k_lo = exp(shift) times the kernel's largest value there. Infinity if the code is not known.
    """
    if code == GAUSSIAN:
        return k_lo * np.sqrt(2 * s_hi)
    if code == EXPONENTIAL:
        return k_lo
    if code == TOPHAT:
        return 0.0
    return 2.0 if code in _COMPACT else np.inf


@jit_in_order
def curvature_bound(code, s_lo, s_hi, k_lo):
    """Return exp(shift) times a bound of the kernel's Hessian in q/h over s_lo..s_hi.

    Of k plus `centroid_correction` for the Epanechnikov kernel, whose Hessian is then 0. Infinity
    where there is no bound; k_lo = exp(shift) k(s_lo) [SUM-2], [SUM-2b].
    """
    if code == GAUSSIAN:  # s = r^2 / 2
        t = min(max(3.0, 2 * s_lo), 2 * s_hi)
        at_top = (t - 1) * exp(s_lo - t / 2)
        return k_lo * max(1.0, abs(2 * s_lo - 1), at_top)
    if code == EXPONENTIAL:
        r = np.sqrt(s_lo)
        return k_lo * max(1.0, 1 / r) if r > 0 else np.inf
    if s_hi >= 1:
        return np.inf
    if code == BIWEIGHT:
        return max(4 * (1 - s_lo), 12 * s_hi - 4)
    if code == COSINE:
        return np.pi**2 / 4
    if code == LINEAR:
        return 1 / np.sqrt(s_lo) if s_lo > 0 else np.inf
    return 0.0 if code in (TOPHAT, EPANECHNIKOV) else np.inf


@jit
def centroid_correction(code, scatter):
    """Return what the centroid of points exceeds their sum by, `scatter` their sum of w s.

    Known exactly for the Epanechnikov kernel, which is linear in s within its reach; else 0.
    """
    return scatter if code == EPANECHNIKOV else 0.0
