"""The only place that names Numba options.

`jit` is for loops whose sums may be reassociated, `jit_in_order` for arithmetic
whose order carries meaning (the rounding trick of exp, decisions about pruning).
Neither assumes the absence of NaN or infinity: those assumptions would delete the
checks that keep a row honest.

Every function becomes a part of its callers. A call would push tuples of arrays on the stack,
which takes longer than many a step; and it would be bound to a copy of its own where the function
has just been compiled, but to the caller's copy where that comes from the cache: two compilations,
whose reassociated sums differ in the last bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

from fastmetric._code_cache import CodeCache

_REASSOCIATED = {"contract", "nsz", "arcp", "reassoc"}
_IN_ORDER = {"contract"}


def _jit(function: Callable[..., Any], fastmath: set[str]) -> Callable[..., Any]:
    """Return `function` compiled lazily, without the GIL, cached on disk if possible."""
    compiled: Any = numba.njit(nogil=True, fastmath=fastmath, forceinline=True)(function)
    if isinstance(compiled, Dispatcher):  # not with NUMBA_DISABLE_JIT
        with contextlib.suppress(RuntimeError):  # no writable folder anywhere
            compiled._cache = CodeCache(function)  # type: ignore[attr-defined]
    return compiled


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop whose floating-point sums may be reordered and vectorised."""
    return _jit(function, _REASSOCIATED)


def jit_in_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile arithmetic that must be carried out in the order it is written."""
    return _jit(function, _IN_ORDER)


@intrinsic
def uncounted(typing_context: Any, value: Any) -> Any:
    """Return an array, or a tuple of them, that is not counted.

    Whoever calls this must hold the original as an argument of its own: then it outlives the
    call. Numba counts a reference whenever an array is taken out of a tuple or sliced, by an atomic
    operation. In a walk over a tree that is a quarter of the time on one thread, and more on two,
    which then write to the same counters.
    """

    def lent(context: Any, builder: Any, kind: Any, item: Any) -> Any:
        """Return the value with no owner."""
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, item)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            return array._getvalue()
        if isinstance(kind, (types.Tuple, types.UniTuple, types.NamedTuple, types.NamedUniTuple)):
            parts = [
                lent(context, builder, part, builder.extract_value(item, i))
                for i, part in enumerate(kind.types)
            ]
            return context.make_tuple(builder, kind, parts)
        return item

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """Emit the copy."""
        return lent(context, builder, signature.args[0], args[0])

    return value(value), codegen
