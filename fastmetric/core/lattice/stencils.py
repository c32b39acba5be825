"""The taps of a point on a lattice, in vector registers, and sums over a lattice with them.

A tap is a polynomial in the point's place within its cell: LANES taps are evaluated by one Horner
scheme over a vector, without an exponential function. Taps beyond the width are zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastmetric._jit import jit
from fastmetric.core.vector.register_blocks import Vectors, array_parts

LANES = 8  # taps that are evaluated together
AXES = 3  # of every lattice; those that the data do not have are one cell long
_FLAGS = ("contract", "nsz")


class Stencil(NamedTuple):
    """The taps of every point, by its place f - 1/2 in its cell, f in [0, 1)."""

    width: int  # taps in a coordinate, even
    coefficients: np.ndarray  # (chunks, degree + 1, LANES) of the taps, highest power first
    slopes: np.ndarray  # (chunks, 1, LANES): the taps' places in cells, relative to 1/2


class Lattice(NamedTuple):
    """A lattice of cells, C order."""

    shape: tuple[int, int, int]  # cells; the last axis has room for whole vectors
    origin: np.ndarray  # (AXES,): where cell 0 begins
    inverse_spacing: float


class Scratch(NamedTuple):
    """The taps of one point."""

    cells: np.ndarray  # (AXES,): the first one that has a tap
    taps: np.ndarray  # (AXES, chunks * LANES)
    slopes: np.ndarray  # the same, times the distance of the tap to the point, in cells


class _Lanes(Vectors):
    """Vectors of LANES numbers, whatever their precision."""

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        """Take the type of the numbers."""
        super().__init__(context, builder, dtype)
        self.lanes = LANES
        self.type = ir.VectorType(context.get_data_type(dtype), LANES)

    def everywhere(self, number: Any) -> Any:
        """Return a number in every lane."""
        undefined = ir.Constant(self.type, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        one = self.builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(one, undefined, zeros)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c, fused where the machine can."""
        product = self.builder.fmul(a, b, flags=_FLAGS)
        return self.builder.fadd(product, c, flags=_FLAGS)


@intrinsic
def _evaluate(typing_context, coefficients, chunk, place, out, at):
    """Write the polynomials of one chunk at `place` to out.flat[at : at + LANES]."""
    number = coefficients.dtype
    signature = types.void(coefficients, types.intp, number, out, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vec = _Lanes(context, builder, number)
        data, (_, terms, _) = array_parts(context, builder, coefficients, args[0])
        target, _ = array_parts(context, builder, out, args[3])
        first = vec.at(data, vec.times(args[1], vec.times(terms, LANES)))
        place = vec.everywhere(args[2])
        total = cgutils.alloca_once_value(builder, vec.load(first))
        with cgutils.for_range(builder, terms, start=vec.number(1)) as loop:
            here = vec.load(vec.at(first, vec.times(loop.index, LANES)))
            builder.store(vec.fused(builder.load(total), place, here), total)
        vec.store(builder.load(total), vec.at(target, args[4]))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _add_rows(typing_context, weight, taps, rows, chunk, values, first, step):
    """Add weight taps[1, j] taps[2, k] to values[first + j step + k], for `rows` j and LANES k."""
    number, index = values.dtype, types.intp
    signature = types.void(number, taps, index, index, values, index, index)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vec = _Lanes(context, builder, number)
        weight, _, rows, chunk, _, first, step = args
        tap_data, (_, length) = array_parts(context, builder, taps, args[1])
        data, _ = array_parts(context, builder, values, args[4])
        last_axis = vec.at(tap_data, vec.times(length, 2), vec.times(chunk, LANES))
        across = builder.fmul(vec.load(last_axis), vec.everywhere(weight), flags=_FLAGS)
        along = vec.at(tap_data, length)
        start = vec.at(data, first, vec.times(chunk, LANES))
        with cgutils.for_range(builder, rows) as loop:
            here = vec.at(start, vec.times(loop.index, step))
            tap = vec.spread(vec.at(along, loop.index))
            vec.store(vec.fused(tap, across, vec.load(here)), here)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _read_rows(typing_context, values, first, steps, counts, chunk, taps):
    """Return sum_ijk taps[0, i] taps[1, j] taps[2, k] values[first + i s0 + j s1 + k], LANES k."""
    number, index = values.dtype, types.intp
    pair = types.UniTuple(index, 2)
    signature = number(values, index, pair, pair, index, taps)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vec = _Lanes(context, builder, number)
        data, _ = array_parts(context, builder, values, args[0])
        tap_data, (_, length) = array_parts(context, builder, taps, args[5])
        step0, step1 = cgutils.unpack_tuple(builder, args[2])
        count0, count1 = cgutils.unpack_tuple(builder, args[3])
        offset = vec.times(args[4], LANES)
        start = vec.at(data, args[1], offset)
        zero = ir.Constant(vec.type, [0.0] * LANES)
        whole = cgutils.alloca_once_value(builder, zero)
        plane = cgutils.alloca_once(builder, vec.type)
        with cgutils.for_range(builder, count0) as outer:
            builder.store(zero, plane)
            here = vec.at(start, vec.times(outer.index, step0))
            with cgutils.for_range(builder, count1) as inner:
                tap = vec.spread(vec.at(tap_data, length, inner.index))
                row = vec.load(vec.at(here, vec.times(inner.index, step1)))
                builder.store(vec.fused(tap, row, builder.load(plane)), plane)
            tap = vec.spread(vec.at(tap_data, outer.index))
            builder.store(vec.fused(tap, builder.load(plane), builder.load(whole)), whole)
        last = vec.load(vec.at(tap_data, vec.times(length, 2), offset))
        return vec.lanes_sum(builder.fmul(builder.load(whole), last, flags=_FLAGS))

    return signature, codegen


@intrinsic
def _read_slopes(typing_context, values, first, steps, counts, chunk, taps, slopes):
    """Return the sum of `_read_rows`, and the same with `slopes` for `taps` in one axis each."""
    number, index = values.dtype, types.intp
    pair = types.UniTuple(index, 2)
    result = types.UniTuple(number, 1 + AXES)
    signature = result(values, index, pair, pair, index, taps, slopes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vec = _Lanes(context, builder, number)
        data, _ = array_parts(context, builder, values, args[0])
        tap_data, (_, length) = array_parts(context, builder, taps, args[5])
        slope_data, _ = array_parts(context, builder, slopes, args[6])
        step0, step1 = cgutils.unpack_tuple(builder, args[2])
        count0, count1 = cgutils.unpack_tuple(builder, args[3])
        offset = vec.times(args[4], LANES)
        start = vec.at(data, args[1], offset)
        zero = ir.Constant(vec.type, [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(3)]  # value, axes 0 and 1
        plane, tilted = (cgutils.alloca_once(builder, vec.type) for _ in range(2))

        def add(total: Any, factor: Any, vector: Any) -> None:
            builder.store(vec.fused(factor, vector, builder.load(total)), total)

        with cgutils.for_range(builder, count0) as outer:
            builder.store(zero, plane)
            builder.store(zero, tilted)
            here = vec.at(start, vec.times(outer.index, step0))
            with cgutils.for_range(builder, count1) as inner:
                row = vec.load(vec.at(here, vec.times(inner.index, step1)))
                add(plane, vec.spread(vec.at(tap_data, length, inner.index)), row)
                add(tilted, vec.spread(vec.at(slope_data, length, inner.index)), row)
            tap = vec.spread(vec.at(tap_data, outer.index))
            add(sums[0], tap, builder.load(plane))
            add(sums[1], vec.spread(vec.at(slope_data, outer.index)), builder.load(plane))
            add(sums[2], tap, builder.load(tilted))
        last = vec.load(vec.at(tap_data, vec.times(length, 2), offset))
        last_slope = vec.load(vec.at(slope_data, vec.times(length, 2), offset))
        ends = ((sums[0], last), (sums[1], last), (sums[2], last), (sums[0], last_slope))
        found = [
            vec.lanes_sum(builder.fmul(builder.load(total), end, flags=_FLAGS))
            for total, end in ends
        ]
        return context.make_tuple(builder, result, found)

    return signature, codegen


@jit
def make_scratch(stencil):
    """Return room for the taps of a point, those of axes that the data do not have set to one."""
    chunks, _, lanes = stencil.coefficients.shape
    dtype = stencil.coefficients.dtype
    taps = np.zeros((AXES, chunks * lanes), dtype)
    taps[:, 0] = 1
    return Scratch(np.zeros(AXES, np.int64), taps, np.zeros((AXES, chunks * lanes), dtype))


@jit
def hold(scratch):
    """Do nothing: until this call the arrays exist. Without it they are freed after `uncounted`."""


@jit
def place_point(row, lattice, stencil, scratch):
    """Write the taps of a point (d,) and their cells; the last d axes are the data's."""
    unused = AXES - row.size
    for k in range(row.size):
        place = (row[k] - lattice.origin[unused + k]) * lattice.inverse_spacing
        cell = np.floor(place)
        scratch.cells[unused + k] = np.int64(cell) - (stencil.width // 2 - 1)
        at = (unused + k) * scratch.taps.shape[1]
        within = scratch.taps.dtype.type(place - cell - 0.5)
        for chunk in range(stencil.coefficients.shape[0]):
            _evaluate(stencil.coefficients, chunk, within, scratch.taps, at + chunk * LANES)
    return unused


@jit
def place_slopes(row, lattice, stencil, scratch):
    """Write the taps times their distances to the point, in cells; after `place_point`."""
    unused = AXES - row.size
    for k in range(unused, AXES):
        place = (row[k - unused] - lattice.origin[k]) * lattice.inverse_spacing
        within = scratch.taps.dtype.type(place - np.floor(place) - 0.5)
        for t in range(scratch.taps.shape[1]):
            away = within - stencil.slopes[t // LANES, 0, t % LANES]
            scratch.slopes[k, t] = scratch.taps[k, t] * away


@jit
def counts_of(stencil, unused):
    """Return how many taps the first two axes have."""
    width = stencil.width
    return (width if unused < 1 else 1), (width if unused < 2 else 1)


@jit
def add_point(weight, lattice, stencil, scratch, unused, first_cell, values):
    """Add a point of some weight to `values`, which are the cells from `first_cell` on."""
    _, n1, n2 = lattice.shape
    counts, cells = counts_of(stencil, unused), scratch.cells
    for i in range(counts[0]):
        first = ((cells[0] + i) * n1 + cells[1]) * n2 + cells[2] - first_cell
        part = scratch.taps.dtype.type(weight) * scratch.taps[0, i]
        for chunk in range(stencil.coefficients.shape[0]):
            _add_rows(part, scratch.taps, counts[1], chunk, values, first, n2)


@jit
def read_point(lattice, stencil, scratch, unused, values):
    """Return the value of a lattice (n,) at a point."""
    _, n1, n2 = lattice.shape
    counts, cells = counts_of(stencil, unused), scratch.cells
    first, total = (cells[0] * n1 + cells[1]) * n2 + cells[2], 0.0
    for chunk in range(stencil.coefficients.shape[0]):
        total += _read_rows(values, first, (n1 * n2, n2), counts, chunk, scratch.taps)
    return total


@jit
def read_point_slopes(lattice, stencil, scratch, unused, values):
    """Return the value of a lattice (n,) at a point, and sums weighted by distances in cells."""
    _, n1, n2 = lattice.shape
    counts, cells = counts_of(stencil, unused), scratch.cells
    first = (cells[0] * n1 + cells[1]) * n2 + cells[2]
    total, slope0, slope1, slope2 = 0.0, 0.0, 0.0, 0.0
    for chunk in range(stencil.coefficients.shape[0]):
        found = _read_slopes(
            values, first, (n1 * n2, n2), counts, chunk, scratch.taps, scratch.slopes
        )
        total += found[0]
        slope0 += found[1]
        slope1 += found[2]
        slope2 += found[3]
    return total, slope0, slope1, slope2


@jit
def place_own(row, lattice, own, scratch):
    """Write what a point adds to itself along each axis, by polynomials `own` (1, terms, LANES).

    Lane 0 has the kernel, lane 1 the kernel weighted by the distance, in cells; instead of the
    slopes of `scratch`.
    """
    unused = AXES - row.size
    for k in range(unused, AXES):
        place = (row[k - unused] - lattice.origin[k]) * lattice.inverse_spacing
        within = scratch.slopes.dtype.type(place - np.floor(place) - 0.5)
        _evaluate(own, 0, within, scratch.slopes, k * scratch.slopes.shape[1])


@jit
def read_slopes_from(values, first, steps, stencil, scratch, unused):
    """Return the value and the slopes of `read_point_slopes` from the cell of the first tap on.

    `steps` are those between neighbours along the first two axes.
    """
    counts, total, slope0, slope1, slope2 = counts_of(stencil, unused), 0.0, 0.0, 0.0, 0.0
    for chunk in range(stencil.coefficients.shape[0]):
        found = _read_slopes(values, first, steps, counts, chunk, scratch.taps, scratch.slopes)
        total += found[0]
        slope0 += found[1]
        slope1 += found[2]
        slope2 += found[3]
    return total, slope0, slope1, slope2


@jit
def read_value_from(values, first, steps, stencil, scratch, unused):
    """Return the value of `read_point` from the cell of the first tap on."""
    counts, total = counts_of(stencil, unused), 0.0
    for chunk in range(stencil.coefficients.shape[0]):
        total += _read_rows(values, first, steps, counts, chunk, scratch.taps)
    return total
