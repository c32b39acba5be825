"""A lattice read off at queries: sums of kernels, and their slopes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, jit_in_order, uncounted
from fastmetric.core.lattice.stencils import (
    AXES,
    hold,
    make_scratch,
    place_point,
    place_slopes,
    read_point,
    read_point_slopes,
)


class Readers(NamedTuple):
    """Queries."""

    rows: np.ndarray  # (m, d)
    order: np.ndarray  # (m,): which query comes when; or empty
    own_weights: np.ndarray  # (m,): of the point that a query is, left out; (1,) of all; or empty
    own_kernel: np.ndarray  # the kernel of a point with itself along an axis, a polynomial


@jit
def read_values(values, readers, first, last, lattice, stencil):
    """Return the lattice's values (2, last - first) at queries, and what they have left out.

    The value is NaN where taps lie outside the lattice.
    """
    made, out = make_scratch(stencil), np.zeros((2, last - first))
    values, readers, lattice, stencil = uncounted((values, readers, lattice, stencil))
    scratch, common = uncounted(made), readers.own_weights.size == 1
    for p in range(first, last):
        i = readers.order[p] if readers.order.size else p
        unused = place_point(readers.rows[i], lattice, stencil, scratch)
        if not _is_on(lattice, stencil, scratch, unused):
            out[0, p - first] = np.nan
            continue
        out[0, p - first] = read_point(lattice, stencil, scratch, unused, values)
        if readers.own_weights.size:
            weight = readers.own_weights[0 if common else i]
            if weight != 0:
                own = _own_kernel(readers.rows[i], lattice, readers.own_kernel)
                out[1, p - first] = own * weight
    hold(made)
    return out


class Margins(NamedTuple):
    """What separates the values of a lattice from the exact sums [GRD-4]."""

    lines: np.ndarray  # (k, 2): slopes and offsets of upper bounds
    lower: float  # the slope of the lower bound
    relative: float  # the rounding of a value
    own_error: float  # of what a query's own point has added
    stretch: float  # of the log of a sum: rounded places, and taps
    lost: float  # what rounded places may add or take, beside it


@jit_in_order
def intervals(found, margins):
    """Return lower and upper bounds (2, m) of exact sums from `read_values` (2, m)."""
    out = np.empty(found.shape)
    for i in range(found.shape[1]):
        value, own = found[0, i], found[1, i]
        if np.isnan(value):
            out[0, i], out[1, i] = 0.0, np.inf
            continue
        out[0, i], out[1, i] = bounds_of(value, own, 0.0, margins)
    return out


@jit_in_order
def bounds_of(value, own, rounded, margins):
    """Return bounds of a sum, from the value of a lattice and what is left out of it.

    `rounded` is an error of the value beside its margin.
    """
    margin = value * margins.relative + own * margins.own_error + rounded
    least, most = max(0.0, value - own - margin), max(0.0, value - own + margin)
    upper = np.inf
    for k in range(margins.lines.shape[0]):
        upper = min(upper, margins.lines[k, 0] * most + margins.lines[k, 1])
    lower = max(0.0, least * margins.lower * (1 - margins.stretch) - margins.lost)
    return lower, upper * (1 + margins.stretch * (1 + margins.stretch)) + margins.lost


@jit
def read_slopes(values, readers, first, last, lattice, stencil):
    """Return values as `read_values` and sums weighted by distances, (1 + d, last - first).

    The distances are those of queries to lattice points, in cells; nothing is left out.
    """
    made, d = make_scratch(stencil), readers.rows.shape[1]
    out = np.zeros((1 + d, last - first))
    values, readers, lattice, stencil = uncounted((values, readers, lattice, stencil))
    scratch = uncounted(made)
    for p in range(first, last):
        i = readers.order[p] if readers.order.size else p
        unused = place_point(readers.rows[i], lattice, stencil, scratch)
        if not _is_on(lattice, stencil, scratch, unused):
            continue
        place_slopes(readers.rows[i], lattice, stencil, scratch)
        found = read_point_slopes(lattice, stencil, scratch, unused, values)
        out[0, p - first] = found[0]
        for k in range(d):
            slope = found[1] if unused + k == 0 else found[2] if unused + k == 1 else found[3]
            out[1 + k, p - first] = slope
    hold(made)
    return out


@jit
def _is_on(lattice, stencil, scratch, unused):
    """Return whether all taps lie on the lattice."""
    for k in range(unused, AXES):
        cell, room = scratch.cells[k], stencil.width
        if k == AXES - 1:
            room = scratch.taps.shape[1]
        if not 0 <= cell <= lattice.shape[k] - room:
            return False
    return True


@jit
def _own_kernel(row, lattice, polynomial):
    """Return the kernel of a point with itself, as the lattice has it."""
    product, unused = 1.0, AXES - row.size
    for k in range(row.size):
        place = (row[k] - lattice.origin[unused + k]) * lattice.inverse_spacing
        within, value = place - np.floor(place) - 0.5, 0.0
        for c in polynomial:
            value = value * within + c
        product *= value
    return product
