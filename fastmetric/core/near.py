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
from fastmetric.core.tiles import smallest


@compiled
def list_pairs(products, sq_i, sq_j, least_i, least_j, reach, diagonal):
    """Return starts (m + 1,), cols and s of the pairs that may count for either row.

    They are those within `reach` of the smallest distance of a row. `products` (m, n) become
    squared distances, and `least_i` (m,) and `least_j` (n,), the smallest known so far, become
    those of the block where it has smaller ones. `diagonal`: the rows are the same on both sides,
    and pairs j <= i are left out.
    """
    m, n = products.shape
    _distances(products, sq_i, sq_j, least_i, least_j, diagonal)
    limit_j = least_j + reach
    starts = np.zeros(m + 1, np.intp)
    # One place more: what is written there is not kept.
    cols, s = np.empty(m * n + 1, np.int32), np.empty(m * n + 1, products.dtype)
    counts, at = np.empty(n, np.uint8), np.uintp(0)  # unsigned: no index from the end
    for i in range(m):
        row, limit = products[i], least_i[i] + reach
        for j in range(n):
            counts[j] = row[j] <= max(limit, limit_j[j])
        for j in range(i + 1 if diagonal else 0, n):  # a branch would be guessed wrong
            cols[at] = j
            s[at] = row[j]
            at += np.uintp(counts[j])
        starts[i + 1] = at
    return starts, cols[:at].copy(), s[:at].copy()


@compiled
def _distances(products, sq_i, sq_j, least_i, least_j, diagonal):
    """Turn products (m, n) into squared distances, and lower what the smallest are."""
    m, n = products.shape
    zero = products.dtype.type(0)
    for i in range(m):
        row, sq = products[i], sq_i[i]
        for j in range(n):
            row[j] = max((sq + sq_j[j]) - 2 * row[j], zero)
        if diagonal:
            row[i] = np.inf
        least_i[i] = min(least_i[i], smallest(row))
        for j in range(n):
            least_j[j] = min(row[j], least_j[j])


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
def pull_listed(starts, cols, s, side_i, side_j, rows, faint):
    """Return sum_j v_ij w_j (m, D) over `rows` w_j, and the sums of v by i (m,) and by j (n,).

    v_ij = lambda_ij + lambda_ji, zero up to `faint`. A side is the smallest distances of its rows
    and their shares, 1 over the sum of exp((least - s) / 2).
    """
    (least_i, share_i), (least_j, share_j) = side_i, side_j
    m, half = least_i.size, s.dtype.type(0.5)
    pulled = np.zeros((m, rows.shape[1]), rows.dtype)
    sums_i, sums_j = np.zeros(m), np.zeros(rows.shape[0])
    longest = (starts[1:] - starts[:-1]).max() + 1
    weights, live = np.empty(longest, s.dtype), np.empty(longest, np.int32)
    for i in range(m):
        first, size = starts[i], starts[i + 1] - starts[i]
        least, share = least_i[i], share_i[i]
        for k in range(size):
            j, far = cols[first + k], s[first + k]
            by_j = share_j[j] * exp(half * (least_j[j] - far))
            weights[k] = share * exp(half * (least - far)) + by_j
        count = np.uintp(0)  # limits were wider than needed
        for k in range(size):
            weight = weights[k]
            live[count] = cols[first + k]
            weights[count] = weight
            count += np.uintp(weight > faint)
        for k in range(count):
            sums_i[i] += weights[k]
            sums_j[live[k]] += weights[k]
        add_rows(pulled[i], live[:count], weights[:count], rows)
    return pulled, sums_i, sums_j
