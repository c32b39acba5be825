"""Sums of exponentials of any size: total * exp(shift), shift the largest exponent so far.

The largest term counts as 1, so that only terms that are negligible in the result underflow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.vector.exp import exp64

# The shift of an empty sum; finite, as the gap between two infinities would be NaN.
EMPTY = -np.finfo(np.float64).max


class ShiftedSums(NamedTuple):
    """Sums totals * exp(shifts), two float64 arrays of one shape."""

    shifts: np.ndarray
    totals: np.ndarray


@jit
def empty_sums(shape):
    """Return sums without terms."""
    return ShiftedSums(np.full(shape, EMPTY), np.zeros(shape))


@jit
def shifted_to(exponent, shift, total):
    """Return the shift and total of one sum, rescaled for a term exp(exponent)."""
    if exponent > shift:
        return exponent, total * exp64(shift - exponent)
    return shift, total


@jit
def log_sum(shift, total):
    """Return log(total * exp(shift)); -inf for an empty sum."""
    return np.log(total) + shift if total > 0 else -np.inf
