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
from fastmetric.core.vector.exp import exp
from fastmetric.core.vector.register_blocks import ROWS, sq_distances

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
    totals: np.ndarray  # (m,): the sums so far
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
        np.empty(strips.shape[0] * ROWS * LONGEST, queries.rows.dtype),
        np.zeros(strips.shape, np.float32),
        np.empty((scratch_rows(ref.series), m)),
        np.empty((d, m)),
    )


@jit
def distance_tile(group, ref, start, stop):
    """Return the squared distances to the points start:stop (rows, columns), both padded."""
    return fill_tile(group, group.strips, ref.panels, start, stop, group.tile)


@jit
def fill_tile(group, strips, panels, start, stop, memory):
    """Write the squared distances of strips to the panels' points start:stop; return the tile.

    Infinite from a query to itself, where it is to be left out.
    """
    width = panels.shape[2]
    padded = (stop - start + width - 1) // width * width
    height = strips.shape[0] * ROWS
    tile = memory[: height * padded].reshape(height, padded)
    sq_distances(strips, 0, panels, start, tile)
    if start <= group.last_self and group.first_self < stop:
        for i in range(group.self_index.size):
            if start <= group.self_index[i] < stop:
                tile[i, group.self_index[i] - start] = np.inf
    return tile


@jit
def add_leaf(group, ref, rule, start, stop):
    """Add the points start:stop of the tree, pair by pair."""
    tile = distance_tile(group, ref, start, stop)
    add_tile(group, tile, rule.code, rule.factor, group.shift, ref.point_weights[start:stop])


@jit
def add_tile(group, tile, code, factor, shift, weights):
    """Turn a tile of squared distances into kernels, and add the sums of its rows."""
    apply_kernel(code, tile.reshape(tile.size), factor, shift)
    for i in range(group.totals.size):
        group.totals[i] += _weighted_sum(tile[i, : weights.size], weights)


@jit
def _weighted_sum(values, weights):
    """Return sum w v, in the precision of the values."""
    total = values.dtype.type(0)
    for j in range(values.size):
        total += values.dtype.type(weights[j]) * values[j]
    return total


@jit
def add_centroid(group, ref, rule, node):
    """Add a node as if all its weight were at its centre (Epanechnikov: exactly)."""
    center, weight, cols = ref.nodes.centers[node], ref.nodes.weights[node], group.cols
    s = group.v[0]
    s[:] = 0
    for k in range(center.size):
        x, row = center[k], cols[k]
        for i in range(s.size):
            s[i] += (row[i] - x) * (row[i] - x)
    totals, factor, shift = group.totals, rule.factor, group.shift
    if rule.code == GAUSSIAN:
        for i in range(s.size):
            totals[i] += weight * exp(shift - factor * s[i])
        return
    correction = centroid_correction(rule.code, ref.nodes.scatters[node] * factor)
    for i in range(s.size):
        totals[i] += weight * shifted_kernel(rule.code, factor * s[i], shift) - correction


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
        group.totals,
    )


@jit
def add_local(group, ref, rule, center, local):
    """Add a polynomial `local` (C,) around a centre: what a cell accepted for all its queries."""
    place(group, rule, center)
    series = ref.series
    fill(series, series.degree, group.v, TAYLOR, group.scratch)
    field = contracted(series, series.degree, local, TAYLOR, -1, group.scratch)
    for i in range(group.totals.size):
        group.totals[i] += field[i]
