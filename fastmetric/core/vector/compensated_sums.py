"""Sums whose error does not grow with the number of terms.

A sum is kept as total + carry, a number of twice the precision: the carry is what the total has
lost by rounding, found by the error-free addition of two numbers (TwoSum, Knuth). An addition of
terms >= 0 rounds the carry alone, which is at most u times the total (u the unit roundoff): of m
additions at most 2 m u^2 of the sum is lost, 4e-4 u for m = 1e12.

No function here may be compiled with leave to reassociate, which would cancel the carry.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastmetric._jit import jit_in_order
from fastmetric.core.vector.register_blocks import Vectors, add_with_carry, array_parts

_FLAGS = ("contract", "nsz")
_TREES = (8, 4, 1)  # vectors that are added to each other before they are added to the sum


@jit_in_order
def add_to(totals, carries, i, value):
    """Add a value to the sum i, which is totals[i] + carries[i]."""
    before = totals[i]
    total = before + value
    added = total - before
    carry = carries[i] + ((before - (total - added)) + (value - added))
    whole = total + carry
    totals[i], carries[i] = whole, carry - (whole - total)


@intrinsic
def whole_vectors_sum(typing_context, values, weights, count):
    """Return sum_j values[j] weights[j], float64, over the first `count` whole vectors.

    A term goes through one rounding of its product and log2(8) additions, before it is added to
    the lanes, whose carries miss one unit at most; the lanes are added in float64.
    """
    signature = types.float64(values, weights, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vec = Vectors(context, builder, values.dtype)
        value_data, _ = array_parts(context, builder, values, args[0])
        weight_data, _ = array_parts(context, builder, weights, args[1])
        zero = ir.Constant(vec.type, [0.0] * vec.lanes)
        total, carry = (cgutils.alloca_once_value(builder, zero) for _ in range(2))
        done = cgutils.alloca_once_value(builder, vec.number(0))

        def product(at: Any) -> Any:
            value = vec.load(vec.at(value_data, at))
            return builder.fmul(value, vec.load(vec.at(weight_data, at)), flags=_FLAGS)

        for size in _TREES:
            left = builder.sub(args[2], builder.load(done))
            with cgutils.for_range(builder, builder.sdiv(left, vec.number(size))):
                first = vec.times(builder.load(done), vec.lanes)
                terms = [
                    product(builder.add(first, vec.number(k * vec.lanes))) for k in range(size)
                ]
                while len(terms) > 1:
                    terms = [
                        builder.fadd(a, b, flags=_FLAGS)
                        for a, b in zip(terms[::2], terms[1::2], strict=True)
                    ]
                add_with_carry(builder, total, carry, terms[0])
                builder.store(builder.add(builder.load(done), vec.number(size)), done)
        wide = builder.fadd(
            *(vec.as_doubles(builder.load(part)) for part in (total, carry)), flags=("nsz",)
        )
        return vec.lanes_sum(wide)

    return signature, codegen
