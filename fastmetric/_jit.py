"""The only place that names Numba options.

`compiled` is for loops whose sums may be reassociated, `exact_order` for arithmetic
whose order carries meaning (the rounding trick of exp, decisions about pruning).
Neither assumes the absence of NaN or infinity: those assumptions would delete the
checks that keep a row honest.

The `inlined` variants are for small steps of a walk that take tuples of arrays. A call would push
hundreds of numbers on the stack, which takes longer than many such steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

_REASSOCIATED = {"contract", "nsz", "arcp", "reassoc"}
_IN_ORDER = {"contract"}


def _jit(
    function: Callable[..., Any], fastmath: set[str], *, inline: bool = False
) -> Callable[..., Any]:
    """Return `function` compiled lazily, without the GIL, cached on disk if possible."""
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "forceinline": inline}
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


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as `compiled`, as a part of its callers."""
    return _jit(function, _REASSOCIATED, inline=True)


def inlined_in_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as `exact_order`, as a part of its callers."""
    return _jit(function, _IN_ORDER, inline=True)
