"""Responsibilities of a panel of rows, out of a product of matrices: for many dimensions.

The products with all reference rows are turned into weights in place, each row relative to its
nearest neighbour. In many dimensions nearly all of a row's sum comes from few neighbours: weights
below its rounding become zero, and where few are left these alone are multiplied with rows.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.pairs.pair_tiles import smallest
from fastmetric.core.vector.exp import exp

_COLS = 512  # reference rows that are processed together


@jit
def weigh(products, sq_query, sq_ref, self_index, col_sums):
    """Turn products (m, n) of rows into their responsibilities [LOC-2], in place.

    Kernels are exp(-s / 2), s the squared distance. `sq_query` and `sq_ref` are the squares of
    the rows. Row i is itself self_index[i], left out (-1: none). Returns the logs of the rows'
    sums (m,), the sums of their responsibilities, 1 up to rounding (m,), and how many are not zero;
    `col_sums` (n,) grow by the responsibilities.
    """
    m, n = products.shape
    number = products.dtype.type
    log_sums, row_sums, live = np.empty(m), np.empty(m), 0
    half, negligible = number(0.5), number(np.finfo(products.dtype).eps / (4 * n))
    for i in range(m):
        row, sq = products[i], sq_query[i]
        for j in range(n):
            row[j] = max((sq + sq_ref[j]) - 2 * row[j], number(0))
        if self_index[i] >= 0:
            row[self_index[i]] = np.inf
        least = smallest(row)
        total = 0.0
        for j in range(n):
            row[j] = exp(half * (least - row[j]))
            total += row[j]
        log_sums[i] = np.log(total) - np.float64(least) / 2
        share, row_sum = number(1 / total), 0.0
        for j in range(n):
            weight = share * row[j]
            weight = weight if weight > negligible else number(0)
            row[j] = weight
            row_sum += weight
            col_sums[j] += weight
            live += weight != 0
        row_sums[i] = row_sum
    return log_sums, row_sums, live


@jit
def few_products(weights, rows):
    """Return weights (m, n) times rows (n, d), where most weights are zero."""
    m, n = weights.shape
    out = np.zeros((m, rows.shape[1]), rows.dtype)
    cols, live = np.empty(_COLS + 1, np.intp), np.empty(_COLS + 1, weights.dtype)
    for j0 in range(0, n, _COLS):
        for i in range(m):
            count = 0
            for j in range(j0, min(j0 + _COLS, n)):  # a branch would be mispredicted
                cols[count] = j
                live[count] = weights[i, j]
                count += weights[i, j] != 0
            add_rows(out[i], cols[:count], live[:count], rows)
    return out


@jit
def add_rows(to, cols, weights, rows):
    """Add sum_k weights[k] rows[cols[k]] to `to`, four at a time: it is loaded less often."""
    whole = cols.size // 4 * 4
    for k in range(0, whole, 4):
        a, b, c, d = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        x, y, z, w = rows[cols[k]], rows[cols[k + 1]], rows[cols[k + 2]], rows[cols[k + 3]]
        for f in range(to.size):
            to[f] += (a * x[f] + b * y[f]) + (c * z[f] + d * w[f])
    for k in range(whole, cols.size):
        a, x = weights[k], rows[cols[k]]
        for f in range(to.size):
            to[f] += a * x[f]
