"""Class sums and gradients of the biweight kernel, over the pairs within its cutoff alone.

Points of one to three dimensions lie in columns of cells of side CELL, in which they are sorted
along x (in the plane a column is a strip; on the line there is one). A group of neighbours in a
column needs one contiguous range of every column within the cutoff; these ranges are copied side
by side, and each row is summed over them separately, so that no two rows write to the same place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, jit_in_order, uncounted
from fastmetric.core.kernels import BIWEIGHT, smooth_fall, smooth_value
from fastmetric.core.tree.boxes import box_gap

# The side of a cell, in units of the cutoff. A power of two, so that a cell's number is exact; and
# the largest number of columns within the cutoff of one.
CELL = 0.25
_MOST = int(2 / CELL + 3) ** 2
GROUP = 24  # rows of a group, at most
_NEAR = 576  # points that a group is summed over at once, in the precision of the points

# The rows of a table: coordinates, the weight in a sum, the class; the weight in the gradient of
# pairs within its class and of others; and the third coordinate.
ROWS = X, Y, WEIGHT, LABEL, OWN, OTHER, Z = range(7)
COORDINATES = X, Y, Z


class CellList(NamedTuple):
    """Points, one column after the other."""

    table: np.ndarray  # (7, n), in the precision of the points; x increases in a column
    solid: bool | None  # None: all z are 0. Loops are compiled for either
    starts: np.ndarray  # (k + 1,): column l is starts[l]:starts[l + 1]
    lower: np.ndarray  # (k, 2): the boxes of the columns' points, in y and z, float64
    upper: np.ndarray
    cells: np.ndarray  # (k,): the columns' cells in z, increasing in a slab
    slabs: np.ndarray  # (s + 1,): the columns slabs[b]:slabs[b + 1] have the same cell in y
    slab_cells: np.ndarray  # (s,): that cell, increasing
    groups: np.ndarray  # (g + 1,): group g is the rows groups[g]:groups[g + 1] of a column
    column_of: np.ndarray  # (g,): that column


class _Nearby(NamedTuple):
    """The points that a group is summed over: where they are, and copies of some of them."""

    ranges: np.ndarray  # (r, 2): what is not copied yet are points ranges[k, 0] to ranges[k, 1]
    table: np.ndarray  # (rows of a table, _NEAR)
    pieces: np.ndarray  # (r, 3): points pieces[k, 0] to pieces[k, 1] are copied to pieces[k, 2]


@jit
def _nearby(ref, last):
    """Return memory for the rows of tables up to `last`, or for all rows of solid ones."""
    rows = last + 1 if ref.solid is None else Z + 1
    table = np.empty((rows, _NEAR), ref.table.dtype)
    return _Nearby(np.empty((_MOST, 2), np.int64), table, np.empty((_MOST, 3), np.int64))


@jit_in_order
def _bisect(x, lo, hi, origin, least):
    """Return the first place in lo:hi, where x increases, with x - origin >= least; hi: none."""
    while lo < hi:
        middle = (lo + hi) // 2
        if np.float64(x[middle]) - origin < least:
            lo = middle + 1
        else:
            hi = middle
    return lo


@jit_in_order
def _look(query, g, ref, ranges):
    """Write the ranges of points within the cutoff of group g into `ranges`; return their number.

    Rounding included: no pair is left out whose squared distance comes out below 1.
    """
    x, column = query.table[X], query.column_of[g]
    low, high = query.lower[column], query.upper[column]
    left, right = np.float64(x[query.groups[g]]), np.float64(x[query.groups[g + 1] - 1])
    sq_reach = 1 + 8 * np.float64(np.finfo(x.dtype).eps)
    reach, count, x = np.sqrt(sq_reach), 0, ref.table[X]
    for slab in range(
        np.searchsorted(ref.slab_cells, np.floor((low[0] - reach) / CELL)),
        np.searchsorted(ref.slab_cells, np.floor((high[0] + reach) / CELL), side="right"),
    ):
        first, last = ref.slabs[slab], ref.slabs[slab + 1]
        cells = ref.cells[first:last]
        for at in range(
            first + np.searchsorted(cells, np.floor((low[1] - reach) / CELL)),
            first + np.searchsorted(cells, np.floor((high[1] + reach) / CELL), side="right"),
        ):
            room = sq_reach - box_gap(low, high, ref.lower[at], ref.upper[at])
            if room <= 0:
                continue
            width = np.sqrt(room)
            start = _bisect(x, ref.starts[at], ref.starts[at + 1], left, -width)
            stop = _bisect(x, start, ref.starts[at + 1], right, width)
            if start < stop:
                ranges[count, 0], ranges[count, 1] = start, stop
                count += 1
    return count


@jit
def pairs_in_reach(query, ref, groups):
    """Return how many pairs each of the given groups would visit."""
    query, ref = uncounted((query, ref))
    ranges, pairs = np.empty((_MOST, 2), np.int64), np.zeros(groups.size, np.int64)
    for k in range(groups.size):
        g = groups[k]
        for r in range(_look(query, g, ref, ranges)):
            pairs[k] += ranges[r, 1] - ranges[r, 0]
        pairs[k] *= query.groups[g + 1] - query.groups[g]
    return pairs


@jit
def _copy(ref, nearby, r, count):
    """Copy points of the ranges r:count side by side, as many as there is room for.

    They are taken off the ranges. Returns how many, in how many pieces, and the next range.
    """
    ranges, table, pieces = nearby
    used = k = 0
    while r < count and used < _NEAR:
        start = ranges[r, 0]
        stop = min(ranges[r, 1], start + _NEAR - used)
        for row in range(table.shape[0]):
            source, to = ref.table[row, start:stop], table[row, used:]
            for j in range(source.size):
                to[j] = source[j]
        pieces[k, 0], pieces[k, 1], pieces[k, 2] = start, stop, used
        used += stop - start
        k += 1
        ranges[r, 0] = stop
        r += stop == ranges[r, 1]
    return used, k, r


@jit
def _found(place, pieces):
    """Return where a point was copied to; -1: nowhere."""
    for k in range(len(pieces)):
        if pieces[k, 0] <= place < pieces[k, 1]:
            return pieces[k, 2] + place - pieces[k, 0]
    return -1


@jit
def _heights(solid, table):
    """Return the z of a table; None in a plane."""
    return None if solid is None else table[Z]


@jit
def cell_list_sums(query, ref, self_index, first, last, out):
    """Sum the kernels of the rows of the groups first:last, over their class and over the others.

    Row i is the point self_index[i], left out (-1: none). Added to `out` (2, n). Returns how
    many pairs were visited.
    """
    query, ref, self_index, out = uncounted((query, ref, self_index, out))
    nearby, pairs = _nearby(ref, LABEL), 0
    weights, zs = nearby.table[WEIGHT], _heights(ref.solid, nearby.table)
    for g in range(first, last):
        r, count = 0, _look(query, g, ref, nearby.ranges)
        while r < count:
            used, k, r = _copy(ref, nearby, r, count)
            for i in range(query.groups[g], query.groups[g + 1]):
                itself = _found(self_index[i], nearby.pieces[:k])
                weight = weights[itself]  # of the last place for -1, which keeps it
                if itself >= 0:
                    weights[itself] = 0
                own, other = _class_sums(query.table[:, i], nearby.table, zs, used)
                weights[itself] = weight
                out[0, i] += own
                out[1, i] += other
                pairs += used
    return pairs


@jit
def _class_sums(row, table, zs, used):
    """Return a row's sums of weights times kernels over points of its class, and of others."""
    x, y, z, label = row[X], row[Y], row[Z], row[LABEL]
    xs, ys, weights, labels = table[X], table[Y], table[WEIGHT], table[LABEL]
    own = other = zero = table.dtype.type(0)
    for j in range(used):
        s = (x - xs[j]) * (x - xs[j]) + (y - ys[j]) * (y - ys[j])
        if zs is not None:
            s += (z - zs[j]) * (z - zs[j])
        k = weights[j] * smooth_value(BIWEIGHT, s)
        # Both at once: a choice for each sum by itself would not be vectorised.
        to_own, to_other = (k, zero) if labels[j] == label else (zero, k)
        own += to_own
        other += to_other
    return own, other


@jit
def cell_list_gradient(query, ref, first, last, out):
    """Add the gradient at the rows of the groups first:last [CCK-6] to `out` (3, n).

    The weight of a pair is -k'(s_ij) (p_i w_j + p_j w_i), w the points' weights in the sums, p
    those in the gradient (OWN within a class, OTHER outside); a pair adds that times x_i - x_j.
    """
    query, ref, out = uncounted((query, ref, out))
    nearby = _nearby(ref, OTHER)
    zs = _heights(ref.solid, nearby.table)
    for g in range(first, last):
        r, count = 0, _look(query, g, ref, nearby.ranges)
        while r < count:
            used, _, r = _copy(ref, nearby, r, count)
            for i in range(query.groups[g], query.groups[g + 1]):
                sums = _weighted_differences(query.table[:, i], nearby.table, zs, used)
                for k in range(3):
                    out[k, i] += sums[k]


@jit
def _weighted_differences(row, table, zs, used):
    """Return a row's sums of weighted differences to the points, along x, y and z."""
    x, y, z, label = row[X], row[Y], row[Z], row[LABEL]
    my_weight, my_own, my_other = row[WEIGHT], row[OWN], row[OTHER]
    xs, ys, weights, labels = table[X], table[Y], table[WEIGHT], table[LABEL]
    own, other = table[OWN], table[OTHER]
    sum_x = sum_y = sum_z = table.dtype.type(0)
    for j in range(used):
        dx, dy = x - xs[j], y - ys[j]
        s = dx * dx + dy * dy
        if zs is not None:
            dz = z - zs[j]
            s += dz * dz
        its_own, its_other = own[j], other[j]  # both are read: no branch is left then
        if labels[j] == label:
            my, its = my_own, its_own
        else:
            my, its = my_other, its_other
        w = smooth_fall(BIWEIGHT, s) * (my * weights[j] + its * my_weight)
        sum_x += w * dx
        sum_y += w * dy
        if zs is not None:
            sum_z += w * dz
    return sum_x, sum_y, sum_z
