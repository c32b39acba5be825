"""Responsibilities among rows of which few are near each other: every pair once.

A block holds the pairs of some rows with some others. Those that may count for either of the two
are listed, row by row: pairs `starts[i]:starts[i + 1]` are those of row i, with `cols` and squared
distances `s`.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import compiled
from fastmetric.core.exp import exp
from fastmetric.core.stripes import add_rows


@compiled
def nearest(products, sq):
    """Return the squared distance to the nearest other row (m,), of products (m, m)."""
    m = sq.size
    least = np.full(m, np.inf, products.dtype)
    for i in range(m):
        for j in range(m):
            s = (sq[i] + sq[j]) - 2 * products[i, j]
            if j != i:
                least[i] = min(least[i], s)
    return np.maximum(least, products.dtype.type(0))


@compiled
def list_pairs(products, sq_i, sq_j, limit_i, limit_j, diagonal):
    """Return starts (m + 1,), cols and s of the pairs within the limit of either row.

    `products` (m, n) become squared distances. `diagonal`: the rows are the same on both sides,
    and pairs j <= i are left out.
    """
    m, n = products.shape
    zero = products.dtype.type(0)
    starts = np.zeros(m + 1, np.intp)
    for i in range(m):
        row, sq, limit, count = products[i], sq_i[i], limit_i[i], 0
        first = i + 1 if diagonal else 0
        for j in range(n):
            row[j] = max((sq + sq_j[j]) - 2 * row[j], zero)
        for j in range(first, n):
            count += (row[j] <= limit) | (row[j] <= limit_j[j])
        starts[i + 1] = starts[i] + count
    # One place more: what is written there is not kept.
    cols, found = np.empty(starts[m] + 1, np.int32), np.empty(starts[m] + 1, products.dtype)
    for i in range(m):
        row, limit, at = products[i], limit_i[i], starts[i]
        if starts[i + 1] > at:
            for j in range(i + 1 if diagonal else 0, n):
                cols[at] = j
                found[at] = row[j]
                at += (row[j] <= limit) | (row[j] <= limit_j[j])
    return starts, cols[:-1], found[:-1]


@compiled
def least_listed(starts, cols, s, n):
    """Return the smallest distances listed for the rows (m,) and for the columns (n,)."""
    least_i = np.full(starts.size - 1, np.inf, s.dtype)
    least_j = np.full(n, np.inf, s.dtype)
    for i in range(starts.size - 1):
        for k in range(starts[i], starts[i + 1]):
            least_i[i] = min(least_i[i], s[k])
            least_j[cols[k]] = min(least_j[cols[k]], s[k])
    return least_i, least_j


@compiled
def sum_listed(starts, cols, s, least_i, least_j):
    """Return the sums of exp((least - s) / 2) of the rows (m,) and of the columns (n,)."""
    half = s.dtype.type(0.5)
    sums_i, sums_j = np.zeros(least_i.size), np.zeros(least_j.size)
    for i in range(least_i.size):
        total, least = 0.0, least_i[i]
        for k in range(starts[i], starts[i + 1]):
            total += exp(half * (least - s[k]))
        sums_i[i] = total
        for k in range(starts[i], starts[i + 1]):
            sums_j[cols[k]] += exp(half * (least_j[cols[k]] - s[k]))
    return sums_i, sums_j


@compiled
def _turned(starts, cols, n):
    """Return the list by columns: starts (n + 1,), rows, and the place of each in the first."""
    ends = np.zeros(n + 1, np.intp)
    for k in range(cols.size):
        ends[cols[k] + 1] += 1
    for j in range(n):
        ends[j + 1] += ends[j]
    at = ends[:-1].copy()
    rows, places = np.empty(cols.size, np.int32), np.empty(cols.size, np.intp)
    for i in range(starts.size - 1):
        for k in range(starts[i], starts[i + 1]):
            j = cols[k]
            rows[at[j]] = i
            places[at[j]] = k
            at[j] += 1
    return ends, rows, places


@compiled
def _pull_side(starts, cols, s, least, sums, points, faint):
    """Return sum_j lambda_ij w_j (m, D) over `points` w_j, and row and column sums of lambda."""
    m, half = least.size, s.dtype.type(0.5)
    pulled = np.zeros((m, points.shape[1]), points.dtype)
    row_sums, col_sums = np.zeros(m), np.zeros(points.shape[0])
    longest = (starts[1:] - starts[:-1]).max() + 1
    weights, live = np.empty(longest, s.dtype), np.empty(longest, np.int32)
    for i in range(m):
        share, low = s.dtype.type(1 / sums[i]), least[i]
        first, size = starts[i], starts[i + 1] - starts[i]
        for k in range(size):
            weights[k] = share * exp(half * (low - s[first + k]))
        # Many pairs count for one of the two rows only.
        count = 0
        for k in range(size):
            weight = weights[k]
            live[count] = cols[first + k]
            weights[count] = weight
            count += weight > faint
        for k in range(count):
            row_sums[i] += weights[k]
            col_sums[live[k]] += weights[k]
        add_rows(pulled[i], live[:count], weights[:count], points)
    return pulled, row_sums, col_sums


@compiled
def pull_listed(starts, cols, s, side_i, side_j, faint):
    """Return what both sides of a block get of each other: see `_pull_side`, for i and for j.

    A side is its least distances, its sums and its rows. Responsibilities up to `faint` are zero.
    """
    least_i, sums_i, rows_i = side_i
    least_j, sums_j, rows_j = side_j
    of_i = _pull_side(starts, cols, s, least_i, sums_i, rows_j, faint)
    ends, rows, places = _turned(starts, cols, least_j.size)
    turned = s[places]
    of_j = _pull_side(ends, rows, turned, least_j, sums_j, rows_i, faint)
    return of_i, of_j
