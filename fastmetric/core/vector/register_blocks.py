"""Blocks of pairs held in vector registers: squared distances, and weighted sums of points.

LLVM's vectoriser does not find a register block in a nest of loops, so the vector code of
the two innermost blocks is written out here. Both keep ROWS x 2 vectors of sums in registers
while they run over coordinates (distances) or over points (weighted sums), and so come near
the machine's peak, also for the short inner dimensions at which a BLAS call loses time to
packing and to reading and writing its result.

Distances are sums of squared differences. Norms and products would lose eps (|q|^2 + |r|^2)
whatever the distance: for clusters far apart nothing is left. Nor would they save much, since
one multiplication per coordinate remains and subtractions have units of their own on current
processors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastmetric._jit import jit

ROWS = 6
SHORT = 8  # coordinates whose squares are added one after the other
CHUNK = 5  # coordinates that are added before the carry is taken
VECTOR_BYTES = 32
_FLAGS = ("contract", "nsz")


class Vectors:
    """The few vector instructions that the blocks are made of, for one element type."""

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        self.builder = builder
        self.item_bytes = dtype.bitwidth // 8
        self.lanes = VECTOR_BYTES // self.item_bytes
        self.type = ir.VectorType(context.get_data_type(dtype), self.lanes)
        self._index = context.get_value_type(types.intp)

    def number(self, value: int) -> Any:
        """Return an index constant."""
        return ir.Constant(self._index, value)

    def times(self, a: Any, b: Any) -> Any:
        """Return the product of two indices, or of an index and an int."""
        return self.builder.mul(a, self.number(b) if isinstance(b, int) else b)

    def at(self, pointer: Any, *offsets: Any) -> Any:
        """Return the pointer moved by indices or ints."""
        for offset in offsets:
            step = self.number(offset) if isinstance(offset, int) else offset
            pointer = self.builder.gep(pointer, [step])
        return pointer

    def load(self, pointer: Any) -> Any:
        """Return the vector that begins at an element."""
        vector = self.builder.load(self.builder.bitcast(pointer, self.type.as_pointer()))
        vector.align = self.item_bytes
        return vector

    def store(self, vector: Any, pointer: Any) -> None:
        """Write a vector to where an element begins."""
        target = self.builder.bitcast(pointer, self.type.as_pointer())
        self.builder.store(vector, target).align = self.item_bytes

    def add_to_doubles(self, vector: Any, pointer: Any) -> None:
        """Add a vector to the float64 numbers that begin at `pointer`."""
        wide, vector = ir.VectorType(ir.DoubleType(), self.lanes), self.as_doubles(vector)
        target = self.builder.bitcast(pointer, wide.as_pointer())
        before = self.builder.load(target)
        before.align = 8
        self.builder.store(self.builder.fadd(before, vector), target).align = 8

    def as_doubles(self, vector: Any) -> Any:
        """Return a vector in float64."""
        wide = ir.VectorType(ir.DoubleType(), self.lanes)
        return vector if self.type == wide else self.builder.fpext(vector, wide)

    def lanes_sum(self, vector: Any) -> Any:
        """Return the sum of the lanes, pairwise; their number is a power of two."""
        count, undefined = vector.type.count, ir.Constant(vector.type, ir.Undefined)
        while count > 1:
            count //= 2
            upper = [ir.Constant(ir.IntType(32), count + k) for k in range(count)]
            lower = [ir.Constant(ir.IntType(32), k) for k in range(count)]
            halves = (
                self.builder.shuffle_vector(
                    vector, undefined, ir.Constant(ir.VectorType(ir.IntType(32), count), half)
                )
                for half in (lower, upper)
            )
            vector = self.builder.fadd(*halves, flags=("nsz",))
            undefined = ir.Constant(vector.type, ir.Undefined)
        return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))

    def spread(self, pointer: Any) -> Any:
        """Return the element at `pointer` in every lane."""
        undefined = ir.Constant(self.type, ir.Undefined)
        first = ir.Constant(ir.IntType(32), 0)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        vector = self.builder.insert_element(undefined, self.builder.load(pointer), first)
        return self.builder.shuffle_vector(vector, undefined, everywhere)

    def sums(self, vectors: int) -> list[list[Any]]:
        """Return ROWS x `vectors` sums, set to zero; LLVM keeps them in registers."""
        zero = ir.Constant(self.type, [0.0] * self.lanes)
        grid = [
            [cgutils.alloca_once(self.builder, self.type) for _ in range(vectors)]
            for _ in range(ROWS)
        ]
        for row in grid:
            for total in row:
                self.builder.store(zero, total)
        return grid

    def add_product(self, total: Any, a: Any, b: Any) -> None:
        """Add a * b to a sum, fused where the machine can."""
        product = self.builder.fmul(a, b, flags=_FLAGS)
        before = self.builder.load(total)
        self.builder.store(self.builder.fadd(before, product, flags=_FLAGS), total)


def array_parts(context: Any, builder: Any, kind: Any, value: Any) -> tuple[Any, list[Any]]:
    """Return the data pointer and the shape of an array argument."""
    array = context.make_array(kind)(context, builder, value)
    return array.data, cgutils.unpack_tuple(builder, array.shape)


def add_with_carry(builder: Any, total: Any, carry: Any, more: Any) -> None:
    """Add `more` to the sum of the variables `total` and `carry`, all terms being >= 0.

    After total + more has been rounded, more - (rounded - total) is what was lost if `more` is not
    the larger one. If it is, the carry misses u times `more` at most: u of the sum in all.
    """
    before = builder.load(total)
    after = builder.fadd(before, more, flags=("nsz",))
    added = builder.fsub(after, before, flags=("nsz",))
    lost = builder.fsub(more, added, flags=("nsz",))
    builder.store(builder.fadd(builder.load(carry), lost, flags=("nsz",)), carry)
    builder.store(after, total)


def _distance_block(addition: str) -> Any:
    """Return the block of squared distances, its squares added in one of three ways.

    "plain": one after the other. "halves": those of each half of the coordinates, then both.
    "carry": CHUNK at a time, and the sums of the chunks by `add_with_carry`.
    """

    @intrinsic
    def block(typing_context, strips, strip, panels, panel, tile, r, c):
        """Write the squared distances of one strip to one panel into tile[r.., c..]."""
        index = types.intp
        signature = types.void(strips, index, panels, index, tile, index, index)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vec = Vectors(context, builder, strips.dtype)
            strip_data, _ = array_parts(context, builder, strips, args[0])
            panel_data, (_, d, _) = array_parts(context, builder, panels, args[2])
            tile_data, (_, tile_step) = array_parts(context, builder, tile, args[4])
            _, strip, _, panel, _, r, c = args
            width = 2 * vec.lanes
            first_row = vec.at(strip_data, vec.times(strip, vec.times(d, ROWS)))
            first_col = vec.at(panel_data, vec.times(panel, vec.times(d, width)))
            sums, zero = vec.sums(2), ir.Constant(vec.type, [0.0] * vec.lanes)
            totals = vec.sums(2) if addition != "plain" else sums
            carries = vec.sums(2) if addition == "carry" else None

            def add_square(at: Any) -> None:
                here = vec.at(first_col, vec.times(at, width))
                cols = [vec.load(here), vec.load(vec.at(here, vec.lanes))]
                there = vec.at(first_row, vec.times(at, ROWS))
                for k, row in enumerate(sums):
                    z = vec.spread(vec.at(there, k))
                    for total, col in zip(row, cols, strict=True):
                        gap = builder.fsub(z, col, flags=_FLAGS)
                        vec.add_product(total, gap, gap)

            def add_squares(first: Any, count: Any) -> None:
                with cgutils.for_range(builder, count) as loop:
                    add_square(builder.add(first, loop.index))

            def each(*grids: Any) -> Any:
                return (
                    cells for rows in zip(*grids, strict=True) for cells in zip(*rows, strict=True)
                )

            def flush() -> None:
                for total, carry, chunk in each(totals, carries, sums):
                    add_with_carry(builder, total, carry, builder.load(chunk))
                    builder.store(zero, chunk)

            if addition == "plain":
                add_squares(vec.number(0), d)
            elif addition == "halves":
                half = builder.udiv(d, vec.number(2))
                add_squares(vec.number(0), half)
                for total, part in each(totals, sums):
                    builder.store(builder.load(part), total)
                    builder.store(zero, part)
                add_squares(half, builder.sub(d, half))
            else:
                chunks = builder.udiv(d, vec.number(CHUNK))
                with cgutils.for_range(builder, chunks) as loop:
                    for k in range(CHUNK):
                        add_square(builder.add(vec.times(loop.index, CHUNK), vec.number(k)))
                    flush()
                done = vec.times(chunks, CHUNK)
                add_squares(done, builder.sub(d, done))
                flush()
            rest = {"plain": None, "halves": sums, "carry": carries}[addition]
            corner = vec.at(tile_data, vec.times(r, tile_step), c)
            for k in range(ROWS):
                for v in range(2):
                    whole = builder.load(totals[k][v])
                    if rest is not None:
                        whole = builder.fadd(whole, builder.load(rest[k][v]), flags=("nsz",))
                    vec.store(whole, vec.at(corner, vec.times(tile_step, k), v * vec.lanes))
            return context.get_dummy_value()

        return signature, codegen

    return block


_plain_block, _halves_block, _carry_block = map(_distance_block, ("plain", "halves", "carry"))


def _weighted_sum_block(vectors: int) -> Any:
    """Return the block of weighted sums over `vectors` vectors of coordinates."""

    @intrinsic
    def block(typing_context, tile, corner, across, along, terms, rows, first, k, out, o):
        """Add sum_t w[r, t] rows[first + t, k..] to out[o + r, k..] for ROWS values of r.

        w[r, t] is the element corner + r * across + t * along of the tile.
        """
        index = types.intp
        signature = types.void(tile, index, index, index, index, rows, index, index, out, index)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vec = Vectors(context, builder, rows.dtype)
            tile_data, _ = array_parts(context, builder, tile, args[0])
            row_data, (_, row_step) = array_parts(context, builder, rows, args[5])
            out_data, (_, out_step) = array_parts(context, builder, out, args[8])
            _, corner, across, along, terms, _, first, k, _, o = args
            weights = vec.at(tile_data, corner)
            points = vec.at(row_data, vec.times(first, row_step), k)
            sums = vec.sums(vectors)
            with cgutils.for_range(builder, terms) as loop:
                here = vec.at(points, vec.times(loop.index, row_step))
                parts = [vec.load(vec.at(here, v * vec.lanes)) for v in range(vectors)]
                term = vec.at(weights, vec.times(loop.index, along))
                for r, row in enumerate(sums):
                    w = vec.spread(vec.at(term, vec.times(across, r)))
                    for total, part in zip(row, parts, strict=True):
                        vec.add_product(total, w, part)
            start = vec.at(out_data, vec.times(o, out_step), k)
            for r, row in enumerate(sums):
                for v, total in enumerate(row):
                    target = vec.at(start, vec.times(out_step, r), v * vec.lanes)
                    vec.add_to_doubles(builder.load(total), target)
            return context.get_dummy_value()

        return signature, codegen

    return block


_sum_block_2 = _weighted_sum_block(2)
_sum_block_1 = _weighted_sum_block(1)


def panel_width(dtype: np.dtype) -> int:
    """Return the number of points in a panel."""
    return 2 * VECTOR_BYTES // dtype.itemsize


@jit
def make_panels(points, d, width):
    """Return the first d coordinates of points (n, >= d) as panels (n / width, d, width)."""
    panels = np.empty((points.shape[0] // width, d, width), points.dtype)
    for p in range(panels.shape[0]):
        for k in range(d):
            for i in range(width):
                panels[p, k, i] = points[p * width + i, k]
    return panels


@jit
def sq_distances(strips, i0, panels, j0, tile):
    """Write the squared distances of the strips' points i0.. to the panels' j0.. into `tile`.

    The height of the tile and i0 are multiples of ROWS, its width and j0 of a panel's width.
    Strips are panels of ROWS points. A distance is off by at most d + 2 units of its rounding.
    """
    n_rows, n_cols = tile.shape
    width = panels.shape[2]
    for c in range(0, n_cols, width):
        for r in range(0, n_rows, ROWS):
            _plain_block(strips, (i0 + r) // ROWS, panels, (j0 + c) // width, tile, r, c)


@jit
def accurate_sq_distances(strips, panels, j0, tile):
    """Write the squared distances as `sq_distances` does, i0 = 0, off by at most ten units.

    Two units are those of a difference that is squared. Up to SHORT coordinates the sum takes one
    a coordinate, by halves up to 2 * SHORT - 2 seven and one, with carries five, two and one.
    """
    n_rows, n_cols = tile.shape
    d, width = panels.shape[1], panels.shape[2]
    for c in range(0, n_cols, width):
        for r in range(0, n_rows, ROWS):
            if d <= SHORT:
                _plain_block(strips, r // ROWS, panels, (j0 + c) // width, tile, r, c)
            elif d <= 2 * SHORT - 2:
                _halves_block(strips, r // ROWS, panels, (j0 + c) // width, tile, r, c)
            else:
                _carry_block(strips, r // ROWS, panels, (j0 + c) // width, tile, r, c)


@jit
def add_weighted_sums(tile, across, along, terms, rows, first, out):
    """Add sum_t w[r, t] rows[first + t] to out[r], w[r, t] = tile.flat[r across + t along].

    `out` (m, d') in float64, m a multiple of ROWS and d' = rows.shape[1] of the vector length.
    """
    lanes = VECTOR_BYTES // tile.itemsize
    for k in range(0, out.shape[1] - lanes, 2 * lanes):
        for r in range(0, out.shape[0], ROWS):
            _sum_block_2(tile, r * across, across, along, terms, rows, first, k, out, r)
    if out.shape[1] // lanes % 2:
        k = out.shape[1] - lanes
        for r in range(0, out.shape[0], ROWS):
            _sum_block_1(tile, r * across, across, along, terms, rows, first, k, out, r)
