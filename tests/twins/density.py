"""Plain NumPy twins of kernel densities and mean shift, in extended precision."""

from __future__ import annotations

import numpy as np

from tests.twins.pairs import WIDE, log_sum_exp, sq_distances


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


def log_density(X, query, h=1.0):
    """Return the log of the Gaussian kernel density, (m,)."""
    n, d = np.shape(X)
    logs = [log_sum_exp(-row) for row in sq_distances(query, X) / (2 * WIDE(h) ** 2)]
    return np.array(logs) - np.log(WIDE(n)) - d * np.log(WIDE(h) * np.sqrt(2 * WIDE(np.pi)))


def mean_shift_step(X, query, h=1.0):
    """Return sum_j k_j x_j / sum_j k_j - q, (m, d), k the Gaussian of width h."""
    X, query = np.asarray(X, WIDE), np.asarray(query, WIDE)
    s = sq_distances(query, X) / (2 * WIDE(h) ** 2)
    k = np.exp(s.min(axis=1, keepdims=True) - s)
    gaps = X[None, :, :] - query[:, None, :]
    return (k[:, :, None] * gaps).sum(axis=1) / k.sum(axis=1, keepdims=True)


def mean_shift(X, starts, h=1.0, tol=1e-7, max_iter=20_000):
    """Return where plain mean shift ends from `starts`, (m, d)."""
    points, left = np.array(starts, WIDE), np.arange(len(starts))
    for _ in range(max_iter):
        if not left.size:
            return points
        step = mean_shift_step(X, points[left], h)
        points[left] += step
        left = left[np.sqrt((step**2).sum(axis=1)) > tol * h]
    raise RuntimeError("Plain mean shift did not end.")
