"""Radial kernels of the scaled squared distance s, chosen by an integer code.

An integer, because a compiled function passed as an argument would miss Numba's disk
cache in every new process. LLVM moves the choice out of the loops.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import compiled
from fastmetric.core.exp import exp

GAUSSIAN = 0  # exp(-s)
BIWEIGHT = 1  # (1 - s)^2 for s < 1, else 0

# In the lower precision, so that an expression has the precision of s.
_ZERO, _ONE = np.float32(0), np.float32(1)


@compiled
def kernel_value(code, s):
    """Return k(s), in the precision of s."""
    if code == GAUSSIAN:
        return exp(-s)
    gap = max(_ONE - s, _ZERO)
    return gap * gap


@compiled
def kernel_fall(code, s):
    """Return -k'(s) >= 0, in the precision of s."""
    if code == GAUSSIAN:
        return exp(-s)
    gap = max(_ONE - s, _ZERO)
    return gap + gap
