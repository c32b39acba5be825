"""Responsibilities among rows of which few are near each other: every pair once.

A block holds the pairs of some rows with some others. Those that may count for either of the two
are listed, row by row: pairs `starts[i]:starts[i + 1]` are those of row i, with `cols` and squared
distances `s`.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.pairs.pair_tiles import smallest
from fastmetric.core.pairs.product_weights import add_rows
from fastmetric.core.vector.exp import exp


@jit
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
    cols, s = np.empty(m * n, np.int32), np.empty(m * n, products.dtype)
    counts, at = np.empty(n, np.uint8), np.uintp(0)  # unsigned: no index from the end
    for i in range(m):
        row, limit = products[i], least_i[i] + reach
        for j in range(n):
            counts[j] = row[j] <= max(limit, limit_j[j])
        for j in range(i + 1 if diagonal else 0, n):  # a branch would be mispredicted
            cols[at] = j
            s[at] = row[j]
            at += np.uintp(counts[j])
        starts[i + 1] = at
    return starts, cols[:at].copy(), s[:at].copy()


@jit
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


@jit
def sum_listed(starts, cols, s, least_i, least_j):
    """Return the sums of exp((least - s) / 2) of the rows (m,) and of the columns (n,)."""
    half = s.dtype.type(0.5)
    sums_i, sums_j = np.zeros(least_i.size), np.zeros(least_j.size)
    terms = np.empty(_longest(starts), s.dtype)
    for i in range(least_i.size):
        js, far = cols[starts[i] : starts[i + 1]], s[starts[i] : starts[i + 1]]
        total, least = 0.0, least_i[i]
        for k in range(far.size):
            total += exp(half * (least - far[k]))
        sums_i[i] = total
        _gather(least_j, js, terms)
        for k in range(far.size):
            terms[k] = exp(half * (terms[k] - far[k]))
        for k in range(far.size):
            sums_j[np.uintp(js[k])] += terms[k]
    return sums_i, sums_j


@jit
def gradient_listed(starts, cols, s, side_i, side_j, rows, negligible):
    """Return sum_j v_ij w_j (m, D) over `rows` w_j, and the sums of v by i (m,) and by j (n,).

    v_ij = lambda_ij + lambda_ji, zero up to `negligible`. A side is the smallest distances of its
    rows and their shares, 1 over the sum of exp((least - s) / 2).
    """
    (least_i, share_i), (least_j, share_j) = side_i, side_j
    m, half, longest = least_i.size, s.dtype.type(0.5), _longest(starts)
    weighted = np.zeros((m, rows.shape[1]), rows.dtype)
    sums_i, sums_j = np.zeros(m), np.zeros(rows.shape[0])
    weights, shares = np.empty(longest, s.dtype), np.empty(longest, s.dtype)
    live = np.empty(longest, np.int32)
    for i in range(m):
        js, far = cols[starts[i] : starts[i + 1]], s[starts[i] : starts[i + 1]]
        least, share = least_i[i], share_i[i]
        _gather(least_j, js, weights)
        _gather(share_j, js, shares)
        for k in range(far.size):
            by_j = shares[k] * exp(half * (weights[k] - far[k]))
            weights[k] = share * exp(half * (least - far[k])) + by_j
        count = np.uintp(0)  # fewer than listed: the smallest distances were not all known then
        for k in range(far.size):
            weight = weights[k]
            live[count] = js[k]
            weights[count] = weight
            count += np.uintp(weight > negligible)
        total = 0.0
        for k in range(count):
            total += weights[k]
            sums_j[np.uintp(live[k])] += weights[k]
        sums_i[i] = total
        add_rows(weighted[i], live[:count], weights[:count], rows)
    return weighted, sums_i, sums_j


@jit
def _longest(starts):
    """Return the largest number of pairs of a row."""
    return (starts[1:] - starts[:-1]).max()


@jit
def _gather(values, where, out):
    """Write values[where] to the beginning of `out`; apart, so that exponentials vectorise."""
    for k in range(where.size):
        out[k] = values[np.uintp(where[k])]
