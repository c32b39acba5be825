"""A group of queries in a walk: its box, its sums so far, and the ways to add to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.far_field.evaluation import TAYLOR, add_series, contracted, fill, scratch_rows
from fastmetric.core.far_field.expansions import Series
from fastmetric.core.kernels import (
    GAUSSIAN,
    apply_kernel,
    centroid_correction,
    shifted_kernel,
)
from fastmetric.core.tree.balanced_tree import Tree
from fastmetric.core.tree.node_moments import Nodes
from fastmetric.core.vector.compensated_sums import add_to, whole_vectors_sum
from fastmetric.core.vector.exp import exp
from fastmetric.core.vector.register_blocks import (
    CHUNK,
    ROWS,
    SHORT,
    VECTOR_BYTES,
    accurate_sq_distances,
)

GROUP = 162  # the largest group of queries; a multiple of ROWS
LONGEST = 576  # points that a group is summed over at once; a multiple of UNIT


class Reference(NamedTuple):
    """The points that are summed over, as a tree."""

    tree: Tree  # rows padded to whole panels, which nothing reads
    panels: np.ndarray  # (N / width, d, width), the tree's points
    float32_panels: np.ndarray  # in float32, each leaf around its centre, in h; may be empty
    point_weights: np.ndarray  # (n,), float64, in tree order
    nodes: Nodes
    series: Series


class Rule(NamedTuple):
    """Which kernel, and how exact."""

    code: int
    factor: float  # s = factor * squared distance
    rtol: float
    atol: float
    in_float32: float = 0.0  # the relative error of a leaf in float32; 0: not allowed


class Queries(NamedTuple):
    """Query points in an order in which neighbours are near."""

    rows: np.ndarray  # (m, d)
    self_index: np.ndarray  # (m,): the point of the tree that is the query itself; -1: none
    starts: np.ndarray  # (groups,): a group is a range of at most GROUP queries
    stops: np.ndarray
    shifts: np.ndarray  # (groups,): sums are times exp(shift)


class Group(NamedTuple):
    """One group of queries in a walk."""

    lower: np.ndarray  # (d,), its box
    upper: np.ndarray
    first_self: int  # the range of its own points among the reference points
    last_self: int
    cols: np.ndarray  # (d, m): the queries, float64
    strips: np.ndarray  # (GROUP / ROWS, d, ROWS)
    self_index: np.ndarray  # (m,)
    shift: float
    totals: np.ndarray  # (m,): the sums so far are totals + carries, and what all have in common
    carries: np.ndarray  # (m,)
    common: np.ndarray  # (1,): a total and a carry again
    common_carry: np.ndarray  # (1,)
    tile: np.ndarray  # scratch, as all that follows
    float32_strips: np.ndarray  # float32
    scratch: np.ndarray
    v: np.ndarray  # (d, m)


@jit
def make_group(queries, cells, c, ref):
    """Return the one group of a cell, nothing summed yet."""
    g = cells.firsts[c]
    start, stop = queries.starts[g], queries.stops[g]
    m, d = stop - start, queries.rows.shape[1]
    cols = np.empty((d, m))
    strips = np.zeros(((m + ROWS - 1) // ROWS, d, ROWS), queries.rows.dtype)
    for k in range(d):
        for i in range(m):
            x = queries.rows[start + i, k]
            cols[k, i] = x
            strips[i // ROWS, k, i % ROWS] = x
    return Group(
        cells.lower[c],
        cells.upper[c],
        cells.first_selves[c],
        cells.last_selves[c],
        cols,
        strips,
        queries.self_index[start:stop],
        queries.shifts[g],
        np.zeros(m),
        np.zeros(m),
        np.zeros(1),
        np.zeros(1),
        np.empty(strips.shape[0] * ROWS * LONGEST, queries.rows.dtype),
        np.zeros(strips.shape, np.float32),
        np.empty((scratch_rows(ref.series), m)),
        np.empty((d, m)),
    )


@jit
def distance_tile(group, ref, start, stop):
    """Return the squared distances to the points start:stop (rows, columns), both padded."""
    tile = empty_tile(group.strips, ref.panels, start, stop, group.tile)
    accurate_sq_distances(group.strips, ref.panels, start, tile)
    leave_out_selves(group, start, stop, tile)
    return tile


@jit
def empty_tile(strips, panels, start, stop, memory):
    """Return a tile for the strips and the panels' points start:stop, both padded."""
    width = panels.shape[2]
    padded = (stop - start + width - 1) // width * width
    height = strips.shape[0] * ROWS
    return memory[: height * padded].reshape(height, padded)


@jit
def leave_out_selves(group, start, stop, tile):
    """Make the distance from a query to itself infinite, where it is to be left out."""
    if start <= group.last_self and group.first_self < stop:
        for i in range(group.self_index.size):
            if start <= group.self_index[i] < stop:
                tile[i, group.self_index[i] - start] = np.inf


@jit
def add_leaf(group, ref, rule, start, stop):
    """Add the points start:stop of the tree, pair by pair."""
    tile, weights = distance_tile(group, ref, start, stop), ref.point_weights[start:stop]
    apply_kernel(rule.code, tile.reshape(tile.size), rule.factor, group.shift)
    lanes = VECTOR_BYTES // tile.itemsize
    count = weights.size // lanes
    # No assignment of a whole array: Numba would compile the message of a wrong shape.
    narrow, sums = np.empty(weights.size, tile.dtype), group.v[0]
    for j in range(weights.size):
        narrow[j] = weights[j]
    for i in range(sums.size):
        sums[i] = whole_vectors_sum(tile[i], narrow, count)
    for i in range(sums.size):
        add_to(group.totals, group.carries, i, sums[i])
    for j in range(count * lanes, weights.size):  # at the end of all points only
        for i in range(sums.size):
            add_to(group.totals, group.carries, i, tile[i, j] * narrow[j])


@jit
def add_centroid(group, ref, rule, node):
    """Add a node as if all its weight were at its centre (Epanechnikov: exactly)."""
    center, weight, s = ref.nodes.centers[node], ref.nodes.weights[node], group.v[0]
    _sq_distances_to(center, group)
    totals, carries, factor, shift = group.totals, group.carries, rule.factor, group.shift
    if rule.code == GAUSSIAN:
        for i in range(s.size):
            add_to(totals, carries, i, weight * exp(shift - factor * s[i]))
        return
    correction = weight * centroid_correction(rule.code, ref.nodes.spreads[node] * factor)
    for i in range(s.size):
        value = weight * shifted_kernel(rule.code, factor * s[i], shift) - correction
        add_to(totals, carries, i, value)


@jit
def _sq_distances_to(center, group):
    """Write the squared distances of a centre to the queries into the first row of the group's v.

    CHUNK coordinates at a time beyond SHORT, as `accurate_sq_distances`.
    """
    totals, d = group.v[0], center.size
    totals[:] = 0
    if d <= SHORT:
        _add_squares(center, group, 0, d, totals)
        return
    chunk, carries = group.v[1], group.v[2]
    carries[:] = 0
    for first in range(0, d, CHUNK):
        chunk[:] = 0
        _add_squares(center, group, first, min(first + CHUNK, d), chunk)
        for i in range(totals.size):
            add_to(totals, carries, i, chunk[i])
    for i in range(totals.size):
        totals[i] += carries[i]


@jit
def _add_squares(center, group, first, last, sums):
    """Add the squared differences of the coordinates first:last to sums (m,)."""
    for k in range(first, last):
        x, row = center[k], group.cols[k]
        for i in range(sums.size):
            sums[i] += (row[i] - x) * (row[i] - x)


@jit
def place(group, rule, center):
    """Write the queries around a centre (d,), in units of h, into the group's v (d, m)."""
    inverse_h = np.sqrt(2 * rule.factor)
    for k in range(center.size):
        x, row, out = center[k], group.cols[k], group.v[k]
        for i in range(out.size):
            out[i] = (row[i] - x) * inverse_h


@jit
def add_far_field(group, ref, rule, node, degree):
    """Add a node by its series."""
    place(group, rule, ref.nodes.centers[node])
    add_series(
        ref.series,
        degree,
        ref.nodes.coefficients[node],
        group.v,
        group.shift,
        group.scratch,
        (group.totals, group.carries),
    )


@jit
def add_local(group, ref, rule, center, local):
    """Add a polynomial `local` (C,) around a centre: what a cell accepted for all its queries."""
    place(group, rule, center)
    series = ref.series
    fill(series, series.degree, group.v, TAYLOR, group.scratch)
    field = contracted(series, series.degree, local, TAYLOR, -1, group.scratch)
    for i in range(group.totals.size):
        add_to(group.totals, group.carries, i, field[i])


@jit
def add_to_all(group, value):
    """Add a value to the sums of all queries."""
    add_to(group.common, group.common_carry, 0, value)


@jit
def share_common(group):
    """Add what all queries have in common to the sum of each."""
    for i in range(group.totals.size):
        add_to(group.totals, group.carries, i, group.common[0])
        group.carries[i] += group.common_carry[0]
    group.common[0] = group.common_carry[0] = 0.0


@jit
def total_of(group, i):
    """Return the sum of query i, what all have in common aside."""
    return group.totals[i] + group.carries[i]
