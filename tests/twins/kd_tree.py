"""Plain NumPy twins of the searches of a k-d tree: bit for bit, in the precision of the data."""

from __future__ import annotations

import numpy as np


def neighbours_sq_distances(X, query):
    """Return |q_i - x_j|^2, (m, n), in the precision of X, from the first coordinate to the last.

    Every operation rounded by itself, so that the package's must be the same bits.
    """
    X, query = np.asarray(X), np.asarray(query)
    total = np.zeros((len(query), len(X)), X.dtype)
    for k in range(X.shape[1]):
        gap = X[None, :, k] - query[:, None, k]
        total = total + gap * gap
    return total


def neighbours_nearest(X, query, k):
    """Return the k smallest distances of each query, (m, k)."""
    return np.sqrt(np.sort(neighbours_sq_distances(X, query), axis=1)[:, :k])


def neighbours_within(X, query, r):
    """Return the row numbers of the points at a distance <= r, one array for each query."""
    near = np.sqrt(neighbours_sq_distances(X, query)) <= np.reshape(r, (-1, 1))
    return [np.flatnonzero(row) for row in near]
