"""Query cells: neighbouring groups of queries taken together, halved repeatedly down to one group.

A node that is far from the whole cell is added to it once, as a polynomial around its middle
[SUM-7]; any other node is left to the halves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.error_bounds import SLACK

LEVELS = 16  # more than a cell can be halved


class QueryCells(NamedTuple):
    """Ranges of groups, a cell before its halves: the first half follows at once."""

    firsts: np.ndarray  # (k,), of the groups
    lasts: np.ndarray
    levels: np.ndarray  # (k,): how often halved; 0: a cell that is part of no other
    lower: np.ndarray  # (k, d), the boxes
    upper: np.ndarray
    centers: np.ndarray  # (k, d), their middles
    radii: np.ndarray  # (k,): half their diagonals, at least
    first_selves: np.ndarray  # (k,): the range of their own points among the reference points
    last_selves: np.ndarray


@jit
def make_query_cells(queries, first, last, together):
    """Return the groups first:last, halved, or each alone if not `together`."""
    d, count = queries.rows.shape[1], last - first
    k = 2 * count - 1 if together else count
    cells = QueryCells(
        np.empty(k, np.int64),
        np.empty(k, np.int64),
        np.zeros(k, np.int64),
        np.empty((k, d)),
        np.empty((k, d)),
        np.empty((k, d)),
        np.empty(k),
        np.empty(k, np.int64),
        np.empty(k, np.int64),
    )
    if together:
        _halve(cells, first, last)
    else:
        for c in range(k):
            cells.firsts[c], cells.lasts[c] = first + c, first + c + 1
    for c in range(k - 1, -1, -1):
        if cells.lasts[c] - cells.firsts[c] == 1:
            _box_group(cells, c, queries)
        else:
            _box_halves(cells, c)
        sq = 0.0
        for j in range(d):
            low, high = cells.lower[c, j], cells.upper[c, j]
            center = low + 0.5 * (high - low)
            cells.centers[c, j] = center
            side = max(high - center, center - low)
            sq += side * side
        cells.radii[c] = np.sqrt(sq) * (1 + SLACK)
    return cells


@jit
def _halve(cells, first, last):
    """Lay out the ranges."""
    cells.firsts[0], cells.lasts[0] = first, last
    for c in range(cells.firsts.size):
        first, last = cells.firsts[c], cells.lasts[c]
        if last - first > 1:
            middle = (first + last) // 2
            left, right = halves(cells, c)
            cells.firsts[left], cells.lasts[left] = first, middle
            cells.firsts[right], cells.lasts[right] = middle, last
            for half in (left, right):
                cells.levels[half] = cells.levels[c] + 1


@jit
def halves(cells, c):
    """Return the halves of a cell of more than one group."""
    first, last = cells.firsts[c], cells.lasts[c]
    return c + 1, c + 2 * ((first + last) // 2 - first)


@jit
def _box_group(cells, c, queries):
    """Box one group."""
    g = cells.firsts[c]
    start, stop = queries.starts[g], queries.stops[g]
    lower, upper = cells.lower[c], cells.upper[c]
    first, last = np.int64(2**62), np.int64(-1)
    for j in range(lower.size):
        lower[j], upper[j] = queries.rows[start, j], queries.rows[start, j]
    for i in range(start, stop):
        for j in range(lower.size):
            x = np.float64(queries.rows[i, j])
            lower[j], upper[j] = min(lower[j], x), max(upper[j], x)
        if queries.self_index[i] >= 0:
            first, last = min(first, queries.self_index[i]), max(last, queries.self_index[i])
    cells.first_selves[c], cells.last_selves[c] = first, last


@jit
def _box_halves(cells, c):
    """Box a cell by its halves."""
    a, b = halves(cells, c)
    for j in range(cells.lower.shape[1]):
        cells.lower[c, j] = min(cells.lower[a, j], cells.lower[b, j])
        cells.upper[c, j] = max(cells.upper[a, j], cells.upper[b, j])
    cells.first_selves[c] = min(cells.first_selves[a], cells.first_selves[b])
    cells.last_selves[c] = max(cells.last_selves[a], cells.last_selves[b])
