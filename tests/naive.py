"""Plain NumPy twins of everything compiled: slow, obvious, sharing no code with the package.

In extended precision where the machine has it, so that a difference is the package's.
"""

from __future__ import annotations

import numpy as np

WIDE = np.longdouble


def sq_distances(query, ref):
    """Return |q_i - r_j|^2, (m, n)."""
    gaps = np.asarray(query, WIDE)[:, None, :] - np.asarray(ref, WIDE)[None, :, :]
    return (gaps**2).sum(axis=-1)


def kernel(name, s):
    """Return k(s)."""
    return np.exp(-s) if name == "gaussian" else np.where(s < 1, (1 - s) ** 2, 0)


def kernel_fall(name, s):
    """Return -k'(s)."""
    return np.exp(-s) if name == "gaussian" else np.where(s < 1, 2 * (1 - s), 0)


def log_sum_exp(values):
    """Return log sum exp(values), -inf for none."""
    values = np.asarray(values, WIDE)
    top = values.max(initial=-np.inf)
    return top if np.isinf(top) else top + np.log(np.exp(values - top).sum())


def log_class_sums(query, ref, y, classes):
    """Return log sum_{j in c} exp(-|q_i - r_j|^2), (m, C)."""
    s = sq_distances(query, ref)
    return np.array([[log_sum_exp(-row[y == c]) for c in classes] for row in s], dtype=WIDE)


def neighbour_probabilities(Z):
    """Return p_ij, the softmax of -|z_i - z_j|^2 over j != i, (n, n)."""
    s = sq_distances(Z, Z)
    np.fill_diagonal(s, np.inf)
    shifted = np.exp(-(s - s.min(axis=1, keepdims=True)))
    return shifted / shifted.sum(axis=1, keepdims=True)


def nca_value(A, X, y):
    """Return sum_i P_i."""
    p = neighbour_probabilities(np.asarray(X, WIDE) @ np.asarray(A, WIDE).T)
    return (p * (y[:, None] == y)).sum()


def nca(A, X, y, rows=None):
    """Return the value, the gradient, and the sum of the absolute terms of the gradient.

    Goldberger's pairwise formula, weights p_ij (P_i - [same class]) for every ordered pair,
    with P_i - 1 taken from the other classes.
    """
    A, X, y = np.asarray(A, WIDE), np.asarray(X, WIDE), np.asarray(y)
    Z = X @ A.T
    p = neighbour_probabilities(Z)
    same = y[:, None] == y[None, :]
    own, other = (p * same).sum(axis=1), (p * ~same).sum(axis=1)
    weights = p * np.where(same, -other[:, None], own[:, None])
    value, gradient, size = WIDE(0), np.zeros(A.shape, WIDE), np.zeros(A.shape, WIDE)
    for i in range(len(X)) if rows is None else rows:
        value += own[i]
        for j in range(len(X)):
            term = 2 * weights[i, j] * np.outer(Z[i] - Z[j], X[i] - X[j])
            gradient += term
            size += np.abs(term)
    return value, gradient, size


def pair_scatter(weights, query, ref):
    """Return sum_j w_ij (q_i - r_j), (m, d), and -sum_i w_ij (q_i - r_j), (n, d)."""
    gaps = np.asarray(query, WIDE)[:, None, :] - np.asarray(ref, WIDE)[None, :, :]
    terms = np.asarray(weights, WIDE)[:, :, None] * gaps
    return terms.sum(axis=1), -terms.sum(axis=0)


def density_kernel(kernel, r):
    """Return k(r), in the shape of r: the kernels of a density at distance r, bandwidth 1."""
    r = np.asarray(r, WIDE)
    inside = r < 1
    return {
        "gaussian": lambda: np.exp(-r * r / 2),
        "exponential": lambda: np.exp(-r),
        "biweight": lambda: np.where(inside, (1 - r * r) ** 2, 0),
        "tophat": lambda: np.where(inside, 1, 0).astype(WIDE),
        "epanechnikov": lambda: np.where(inside, 1 - r * r, 0),
        "linear": lambda: np.where(inside, 1 - r, 0),
        "cosine": lambda: np.where(inside, np.cos(WIDE(np.pi) / 2 * r), 0),
    }[kernel]()


def density_sums(X, query=None, *, kernel="gaussian", h=1.0, weights=None):
    """Return sum_j w_j k(|q - x_j| / h), (m,); query None: without j = i."""
    points = X if query is None else query
    k = density_kernel(kernel, np.sqrt(sq_distances(points, X)) / WIDE(h))
    if query is None:
        np.fill_diagonal(k, 0)
    return k @ np.ones(len(X), WIDE) if weights is None else k @ np.asarray(weights, WIDE)


def density_loo(X, h, *, kernel="gaussian", weights=None):
    """Return the weighted mean of log sum_{j != i} w_j k(|x_i - x_j| / h) - d log h."""
    sums = density_sums(X, kernel=kernel, h=h, weights=weights)
    with np.errstate(divide="ignore"):
        return float(np.average(np.log(sums), weights=weights) - X.shape[1] * np.log(h))


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
