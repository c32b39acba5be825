"""Nearest neighbours by matrix products: candidates first, then their true distances.

Products lose digits where points are close to each other and far from the origin, so they only
choose candidates; the nearest are decided by differences.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit_in_order
from fastmetric.core.tree.heaps import sink


@jit_in_order
def offer(products, norms, rows, first, best, found):
    """Offer a block of columns to the heaps `best`, `found` (b, K) of the rows `rows` (b,).

    products (b, c): x_i . x_j of the columns j = first, first + 1, ...; norms (c,): |x_j|².
    The heaps, largest first, hold |x_j|² - 2 x_i . x_j, which is |x_i - x_j|² - |x_i|². A point
    is no neighbour of itself.
    """
    size = best.shape[1]
    two = products.dtype.type(2)
    for i in range(products.shape[0]):
        worst = best[i, 0]
        for j in range(products.shape[1]):
            s = norms[j] - two * products[i, j]
            if s < worst and first + j != rows[i]:
                sink(best[i], found[i], size, s, first + j)
                worst = best[i, 0]


@jit_in_order
def _sq_distance(x, y):
    """Return |x - y|² of two points (D,), in float64."""
    total = 0.0
    for k in range(x.size):
        gap = np.float64(x[k]) - np.float64(y[k])
        total += gap * gap
    return total


@jit_in_order
def sq_distances(X, rows, columns):
    """Return the squared distances (b, c), float64, of the rows to the points columns (b, c)."""
    out = np.empty(columns.shape, np.float64)
    for i in range(rows.size):
        for j in range(columns.shape[1]):
            out[i, j] = _sq_distance(X[rows[i]], X[columns[i, j]])
    return out


@jit_in_order
def nearest_by_differences(X, row, best, found):
    """Write the k nearest points to X[row], itself left out, into best and found (k,), a heap."""
    best[:] = np.inf
    for j in range(X.shape[0]):
        if j != row:
            s = _sq_distance(X[row], X[j])
            if s < best[0]:
                sink(best, found, best.size, s, j)
