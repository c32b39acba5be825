"""Points added to a lattice, and sorted by the tile of it that they lie in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, uncounted
from fastmetric.core.lattice.stencils import (
    AXES,
    LANES,
    Lattice,
    add_point,
    hold,
    make_scratch,
    place_point,
)


class Span(NamedTuple):
    """Some of the points, and a range of cells that contains all of their taps."""

    first: int  # points first:last, in the order of their sorting
    last: int
    first_cell: int
    last_cell: int


@jit
def spread_points(rows, weights, order, span, lattice, stencil):
    """Return the cells of the span with its points added, and room for a vector behind them.

    `rows` (n, d); `weights` (n,), or (1,) of all; `order` (n,) says which point comes when, or is
    empty.
    """
    made = make_scratch(stencil)
    values = np.zeros(span.last_cell - span.first_cell + 2 * LANES, made.taps.dtype)
    rows, order, lattice, stencil = uncounted((rows, order, lattice, stencil))
    scratch, cells = uncounted((made, values))
    common = weights.size == 1
    for p in range(span.first, span.last):
        j = order[p] if order.size else p
        unused = place_point(rows[j], lattice, stencil, scratch)
        add_point(
            weights[0 if common else j], lattice, stencil, scratch, unused, span.first_cell, cells
        )
    hold(made)
    return values


class Tiles(NamedTuple):
    """How the cells of a lattice are grouped into tiles."""

    lattice: Lattice
    side: int  # cells
    counts: tuple[int, int, int]


@jit
def tile_numbers(rows, tiles, first, last, out):
    """Write the tiles of the points first:last to out (n,); return how many each tile has."""
    lattice, counts = tiles.lattice, tiles.counts
    found = np.zeros(counts[0] * counts[1] * counts[2], np.int64)
    for j in range(first, last):
        tile = 0
        for k in range(AXES):
            cell, axis = 0, k - (AXES - rows.shape[1])
            if axis >= 0:
                cell = np.int64((rows[j, axis] - lattice.origin[k]) * lattice.inverse_spacing)
            tile = tile * counts[k] + min(max(cell // tiles.side, 0), counts[k] - 1)
        out[j] = tile
        found[tile] += 1
    return found


@jit
def put_in_order(numbers, starts, first, last, order):
    """Write the points first:last into `order` from where their tiles start; moves the starts."""
    for j in range(first, last):
        tile = numbers[j]
        order[starts[tile]] = j
        starts[tile] += 1
