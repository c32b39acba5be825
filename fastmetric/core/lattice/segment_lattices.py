"""Lattices of several segments of points on common cells, each over a box of its own.

All have one origin and one spacing, so that the lattice of all points is the sum of theirs, cell by
cell, and a point has the same taps on all of them. They lie one after another in one array, the
total as the last one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, jit_in_order, uncounted
from fastmetric.core.lattice.reading import bounds_of
from fastmetric.core.lattice.stencils import (
    AXES,
    LANES,
    add_point,
    hold,
    make_scratch,
    place_own,
    place_point,
    place_slopes,
    read_slopes_from,
    read_value_from,
)


class Parts(NamedTuple):
    """Where the lattices lie in one array: cell (i, j, k) at first + i step0 + j step1 + k."""

    first: np.ndarray  # (L,); the cell (0, 0, 0) itself may be outside
    steps: np.ndarray  # (L, 2)
    lower: np.ndarray  # (L, AXES): the first cells that a first tap may be in
    upper: np.ndarray  # (L, AXES): the last ones


class Rows(NamedTuple):
    """Some rows of one segment."""

    rows: np.ndarray  # (n, d), of all segments
    order: np.ndarray  # (n,): which row comes when; or empty
    first: int  # rows first:last, in this order
    last: int
    segment: int


class Own(NamedTuple):
    """What points add to their own sums."""

    polynomials: np.ndarray  # (1, terms, LANES): lane 0 the kernel, lane 1 its slope
    weights: np.ndarray  # (1,) of every row, or (n,)


@jit
def read_own_and_total(values, some, parts, own, lattice, stencil):
    """Return what points read off the lattice of their segment and off the total (3 + 2 d, m).

    The values of both, what the point itself has added to them, and the slopes of its segment and
    of the others, in cells, without the point itself.
    """
    made, d = make_scratch(stencil), some.rows.shape[1]
    out = np.empty((3 + 2 * d, some.last - some.first))
    values, some, parts, own, lattice, stencil = uncounted(
        (values, some, parts, own, lattice, stencil)
    )
    scratch, last = uncounted(made), parts.first.size - 1
    mine_at, mine_steps = parts.first[some.segment], _steps(parts, some.segment)
    all_at, all_steps = parts.first[last], _steps(parts, last)
    for p in range(some.first, some.last):
        i, q = some.order[p] if some.order.size else p, p - some.first
        row = some.rows[i]
        unused = place_point(row, lattice, stencil, scratch)
        place_slopes(row, lattice, stencil, scratch)
        at = _cell(scratch, mine_steps) + mine_at
        mine = read_slopes_from(values, at, mine_steps, stencil, scratch, unused)
        at = _cell(scratch, all_steps) + all_at
        whole = read_slopes_from(values, at, all_steps, stencil, scratch, unused)
        place_own(row, lattice, own.polynomials, scratch)
        weight = own.weights[0 if own.weights.size == 1 else i]
        out[0, q], out[1, q] = mine[0], whole[0]
        out[2, q] = weight * _own_kernel(scratch, unused)
        for k in range(d):
            slope, of_all = _component(mine, unused + k), _component(whole, unused + k)
            out[3 + k, q] = slope - weight * _own_slope(scratch, unused, unused + k)
            out[3 + d + k, q] = of_all - slope
    hold(made)
    return out


@jit
def read_adjoint(values, some, parts, own, lattice, stencil):
    """Return the slopes (d, m) of points on the lattice of their segment, in cells.

    Without the points themselves.
    """
    made, d = make_scratch(stencil), some.rows.shape[1]
    out = np.empty((d, some.last - some.first))
    values, some, parts, own, lattice, stencil = uncounted(
        (values, some, parts, own, lattice, stencil)
    )
    scratch = uncounted(made)
    first, steps = parts.first[some.segment], _steps(parts, some.segment)
    for p in range(some.first, some.last):
        i = some.order[p] if some.order.size else p
        row = some.rows[i]
        unused = place_point(row, lattice, stencil, scratch)
        place_slopes(row, lattice, stencil, scratch)
        at = _cell(scratch, steps) + first
        found = read_slopes_from(values, at, steps, stencil, scratch, unused)
        place_own(row, lattice, own.polynomials, scratch)
        weight = own.weights[0 if own.weights.size == 1 else i]
        for k in range(d):
            itself = weight * _own_slope(scratch, unused, unused + k)
            out[k, p - some.first] = _component(found, unused + k) - itself
    hold(made)
    return out


@jit
def read_segments(values, some, parts, lattice, stencil):
    """Return the values (L, m) of all lattices at queries; NaN where taps lie outside of one."""
    made, count = make_scratch(stencil), parts.first.size
    out = np.empty((count, some.last - some.first))
    values, some, parts, lattice, stencil = uncounted((values, some, parts, lattice, stencil))
    scratch = uncounted(made)
    for p in range(some.first, some.last):
        i = some.order[p] if some.order.size else p
        unused = place_point(some.rows[i], lattice, stencil, scratch)
        for c in range(count):
            inside = True
            for k in range(unused, AXES):
                cell = scratch.cells[k]
                inside = inside and parts.lower[c, k] <= cell <= parts.upper[c, k]
            if inside:
                steps = _steps(parts, c)
                at = _cell(scratch, steps) + parts.first[c]
                value = read_value_from(values, at, steps, stencil, scratch, unused)
                out[c, p - some.first] = value
            else:
                out[c, p - some.first] = np.nan
    hold(made)
    return out


class Target(NamedTuple):
    """Some cells of one lattice, by their numbers in `shape`, cells of the common lattice."""

    lattice: tuple  # `Lattice` of the segment's shape and the common origin
    first_cell: int
    cells: int


@jit
def spread_twice(some, weights, mine, total, stencil):
    """Return the cells of two targets with points added, and room for a vector behind them.

    `weights` (2, n) are those on the lattice of the segment and on that of all.
    """
    made = make_scratch(stencil)
    to_mine, to_total = np.zeros(mine.cells + 2 * LANES), np.zeros(total.cells + 2 * LANES)
    some, weights, mine, total, stencil = uncounted((some, weights, mine, total, stencil))
    scratch, own, whole = uncounted((made, to_mine, to_total))
    for p in range(some.first, some.last):
        j = some.order[p] if some.order.size else p
        if weights[0, j] == 0 and weights[1, j] == 0:
            continue
        unused = place_point(some.rows[j], mine.lattice, stencil, scratch)
        add_point(weights[0, j], mine.lattice, stencil, scratch, unused, mine.first_cell, own)
        first = total.first_cell
        add_point(weights[1, j], total.lattice, stencil, scratch, unused, first, whole)
    hold(made)
    return to_mine, to_total


@jit_in_order
def class_bounds(found, margins, factor, allowed, out):
    """Write sums and bounds of points, from `read_own_and_total`, to `out` (6, m).

    Those over the own segment and over the others: two sums, then lower and upper bounds of each;
    `margins` are those of both. Return which are within the tolerance (m,): P = f own / (f own +
    other) within `allowed` with a factor f, or for f = 0 each sum within this share of itself.
    """
    accepted = np.zeros(found.shape[1], np.bool_)
    for i in range(found.shape[1]):
        value, whole, itself = found[0, i], found[1, i], found[2, i]
        own, other = max(0.0, value - itself), 0.0
        if margins[1].lower > 0:  # else there are no others
            other = max(0.0, whole - value)
        own_lo, own_hi = bounds_of(value, itself, 0.0, margins[0])
        # The other segments' sum has the rounding of both values that it is the difference of.
        rounded = (whole + value) * margins[1].relative
        other_lo, other_hi = bounds_of(whole - value, 0.0, rounded, margins[1])
        out[0, i], out[1, i] = own, other
        out[2, i], out[3, i], out[4, i], out[5, i] = own_lo, own_hi, other_lo, other_hi
        if factor > 0:
            P = _share(factor * own, other)
            within = _share(factor * own_hi, other_lo) - P <= allowed
            accepted[i] = within and P - _share(factor * own_lo, other_hi) <= allowed
        else:
            within = own_hi - own <= allowed * own_lo and own - own_lo <= allowed * own_lo
            within = within and other_hi - other <= allowed * other_lo
            accepted[i] = within and other - other_lo <= allowed * other_lo
    return accepted


@jit_in_order
def _share(own, other):
    """Return own / (own + other), NaN for two zeros."""
    return own / (own + other) if own + other > 0 else np.nan


@jit
def _steps(parts, c):
    """Return the steps along the first two axes of a lattice."""
    return parts.steps[c, 0], parts.steps[c, 1]


@jit
def _cell(scratch, steps):
    """Return how far the cell of the first tap is from the cell (0, 0, 0)."""
    return scratch.cells[0] * steps[0] + scratch.cells[1] * steps[1] + scratch.cells[2]


@jit
def _component(found, axis):
    """Return the slope along an axis out of a value and three slopes."""
    return found[1] if axis == 0 else found[2] if axis == 1 else found[3]


@jit
def _own_kernel(scratch, unused):
    """Return the kernel of a point with itself; after `place_own`."""
    product = 1.0
    for k in range(unused, AXES):
        product *= scratch.slopes[k, 0]
    return product


@jit
def _own_slope(scratch, unused, axis):
    """Return the slope of a point's own kernel along an axis; after `place_own`."""
    product = scratch.slopes[axis, 1]
    for k in range(unused, AXES):
        if k != axis:
            product *= scratch.slopes[k, 0]
    return product
