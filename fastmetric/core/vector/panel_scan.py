"""A panel of UNIT points scanned in vector registers: squared distances, and which are below.

No product is fused with a sum, so that a point's distance goes through the same roundings as the
bounds of its box (`core.tree.boxes`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

UNIT = 16  # points of a panel: whole vectors in both precisions

# Instructions without flags would be given those of the function, fusing (`contract`) among them.
# Signed zeros make no difference to squares.
_UNFUSED = ("nsz",)


def _vectors(context: Any, kind: Any) -> Any:
    """Return the type of a vector of UNIT numbers of an array's type."""
    return ir.VectorType(context.get_data_type(kind.dtype), UNIT)


def _spread(builder: Any, vectors: Any, number: Any) -> Any:
    """Return a number in every lane."""
    undefined = ir.Constant(vectors, ir.Undefined)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), UNIT), [0] * UNIT)
    one = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, everywhere)


def _pointer(builder: Any, vectors: Any, numbers: Any) -> Any:
    """Return a pointer to numbers as one to a vector."""
    return builder.bitcast(numbers, vectors.as_pointer())


def _square_added(builder: Any, total: Any, gap: Any) -> Any:
    """Return total + gap * gap, rounded after the product and after the sum."""
    return builder.fadd(total, builder.fmul(gap, gap, flags=_UNFUSED), flags=_UNFUSED)


@intrinsic
def plus_square(typing_context, total, gap):
    """Return total + gap * gap, of two numbers of one type."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _square_added(builder, *args)

    return gap(gap, gap), codegen


@intrinsic
def panel_sq_distances(typing_context, panels, panel, point, out):
    """Write the squared distances of one panel's points to `point` (d,) into out (UNIT,)."""
    signature = types.void(panels, types.intp, point, out)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors, bytes_ = _vectors(context, panels), panels.dtype.bitwidth // 8
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in ((panels, args[0]), (point, args[2]), (out, args[3]))
        ]
        columns, coordinates, target = (array.data for array in arrays)
        d = cgutils.unpack_tuple(builder, arrays[0].shape)[1]
        width = ir.Constant(d.type, UNIT)
        first = builder.mul(builder.mul(args[1], d), width)
        total = cgutils.alloca_once_value(builder, ir.Constant(vectors, [0.0] * UNIT))
        with cgutils.for_range(builder, d) as loop:
            here = builder.add(first, builder.mul(loop.index, width))
            column = builder.load(_pointer(builder, vectors, builder.gep(columns, [here])))
            column.align = bytes_
            x = builder.load(builder.gep(coordinates, [loop.index]))
            gap = builder.fsub(column, _spread(builder, vectors, x), flags=_UNFUSED)
            builder.store(_square_added(builder, builder.load(total), gap), total)
        builder.store(builder.load(total), _pointer(builder, vectors, target)).align = bytes_
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def lanes_below(typing_context, values, bound):
    """Return the set of lanes whose value (UNIT of them) is below `bound`, as bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = _vectors(context, values)
        data = context.make_array(values)(context, builder, args[0]).data
        vector = builder.load(_pointer(builder, vectors, data))
        vector.align = values.dtype.bitwidth // 8
        bits = builder.fcmp_ordered("<", vector, _spread(builder, vectors, args[1]))
        return builder.zext(builder.bitcast(bits, ir.IntType(UNIT)), ir.IntType(64))

    return types.int64(values, values.dtype), codegen


@intrinsic
def lowest_bit(typing_context, bits):
    """Return the number of the lowest bit that is set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen
