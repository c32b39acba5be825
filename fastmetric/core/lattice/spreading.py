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
    scale: float  # tiles in a unit of the rows
    counts: tuple[int, int, int]


@jit
def tile_counts(rows, tiles, first, last):
    """Return how many of the points first:last of rows (n, d) each tile has."""
    counts = tiles.counts
    made = np.zeros(counts[0] * counts[1] * counts[2], np.int64)
    rows, tiles, found = uncounted((rows, tiles, made))
    for j in range(first, last):
        found[_tile_of(rows, j, tiles)] += 1
    return made


@jit
def points_in_tiles(rows, tiles, marked, first, last):
    """Return which of the points first:last of rows (n, d) lie in tiles that are marked."""
    made, n = np.empty(last - first, np.int64), 0
    rows, tiles, marked, found = uncounted((rows, tiles, marked, made))
    for j in range(first, last):
        found[n] = j
        n += marked[_tile_of(rows, j, tiles)]
    return made[:n].copy()


@jit
def _tile_of(rows, j, tiles):
    """Return the tile of the point j of rows (n, d)."""
    tile, unused = 0, AXES - rows.shape[1]
    for k in range(unused, AXES):
        at = np.int64((rows[j, k - unused] - tiles.lattice.origin[k]) * tiles.scale)
        tile = tile * tiles.counts[k] + min(max(at, 0), tiles.counts[k] - 1)
    return tile


@jit
def tile_numbers(rows, tiles, first, last, out):
    """Write the tiles of the points first:last to out (n,); return how many each tile has."""
    counts = tiles.counts
    made = np.zeros(counts[0] * counts[1] * counts[2], np.int64)
    rows, out, tiles, found = uncounted((rows, out, tiles, made))
    for j in range(first, last):
        tile = _tile_of(rows, j, tiles)
        out[j] = tile
        found[tile] += 1
    return made


@jit
def put_in_order(numbers, starts, first, last, order):
    """Write the points first:last into `order` from where their tiles start; moves the starts."""
    for j in range(first, last):
        tile = numbers[j]
        order[starts[tile]] = j
        starts[tile] += 1
