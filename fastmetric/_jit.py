"""The only place that names Numba options.

`compiled` is for loops whose sums may be reassociated, `exact_order` for arithmetic
whose order carries meaning (the rounding trick of exp, decisions about pruning).
Neither assumes the absence of NaN or infinity: those assumptions would delete the
checks that keep a row honest.

Every function becomes a part of its callers. A call would push tuples of arrays on the stack,
which takes longer than many a step; and it would be bound to a copy of its own where the function
has just been compiled, but to the caller's copy where that comes from the cache: two compilations,
whose reassociated sums differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

_REASSOCIATED = {"contract", "nsz", "arcp", "reassoc"}
_IN_ORDER = {"contract"}


def _jit(function: Callable[..., Any], fastmath: set[str]) -> Callable[..., Any]:
    """Return `function` compiled lazily, without the GIL, cached on disk if possible."""
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "forceinline": True}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no writable folder for the cache anywhere
        return numba.njit(**options)(function)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop whose floating-point sums may be reordered and vectorised."""
    return _jit(function, _REASSOCIATED)


def exact_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile arithmetic that must be carried out in the order it is written."""
    return _jit(function, _IN_ORDER)
