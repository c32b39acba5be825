"""Arrays that compiled code uses without counting references to them.

Numba counts a reference whenever an array is taken out of a tuple or sliced, by an atomic
operation. In a walk over a tree that is a quarter of the time on one thread, and more on two,
which then write to the same counters.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def borrowed(typing_context: Any, value: Any) -> Any:
    """Return an array, or a tuple of them, that is not counted.

    Whoever calls this must hold the original as an argument of its own: then it outlives the
    call.
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
