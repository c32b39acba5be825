"""Plain twins of Manifold Parzen Windows: one row at a time, sharing no code with the package."""

from __future__ import annotations

import numpy as np

from tests.twins.pairs import WIDE, log_sum_exp, sq_distances


def nearest_others(X, k):
    """Return the row numbers (n, k) of the nearest others, by distance, then by number."""
    s = sq_distances(X, X)
    np.fill_diagonal(s, np.inf)
    return np.argsort(s, axis=1, kind="stable")[:, :k]


def local_covariances(X, k, weights=None):
    """Return C_i = sum_j w_j (x_j - x_i)(x_j - x_i)' / sum_j w_j (n, D, D) over k neighbours.

    `weights`: a function of the neighbours' squared distances (k,); None: all 1.
    """
    k = min(k, len(X) - 1)
    covariances = []
    for x, around in zip(X, nearest_others(X, k), strict=True):
        gaps = X[around] - x
        w = np.ones(k) if weights is None else weights((gaps**2).sum(axis=1))
        covariances.append((gaps.T * w) @ gaps / w.sum())
    return np.array(covariances)


def density(X, query, covariances, q, noise):
    """Return the log density (m,): q leading eigenvalues kept, the rest replaced by the noise.

    Every covariance in full, by all of its eigenvectors [MAN-1] to [MAN-4].
    """
    logs = []
    for x, C in zip(X, covariances, strict=True):
        values, vectors = np.linalg.eigh(C)
        values[: len(values) - q] = 0
        values[values < 1e-14 * values.max(initial=0)] = 0  # what rounding leaves of a zero
        values = np.asarray(values, WIDE) + WIDE(noise)
        parts = (np.asarray(query, WIDE) - np.asarray(x, WIDE)) @ np.asarray(vectors, WIDE)
        quadratic = (parts**2 / values).sum(axis=1)
        logs.append(-(quadratic + np.log(2 * WIDE(np.pi) * values).sum()) / 2)
    return np.array([log_sum_exp(column) for column in np.array(logs).T]) - np.log(WIDE(len(X)))


def terms_along(X, directions, variances, query, noise):
    """Return the logs of the Gaussians (n, m), for directions (n, q, D), their variances (n, q)."""
    logs = []
    n_features = X.shape[1]
    for x, V, variance in zip(X, directions, variances, strict=True):
        V, lengths = np.asarray(V, WIDE), np.asarray(variance, WIDE) + WIDE(noise)
        gaps = np.asarray(query, WIDE) - np.asarray(x, WIDE)
        parts = gaps @ V.T
        across = ((gaps - parts @ V) ** 2).sum(axis=1)
        quadratic = across / WIDE(noise) + (parts**2 / lengths).sum(axis=1)
        log_det = np.log(lengths).sum() + (n_features - len(V)) * np.log(WIDE(noise))
        logs.append(-(quadratic + log_det + n_features * np.log(2 * WIDE(np.pi))) / 2)
    return np.array(logs)


def density_along(X, directions, variances, query, noise):
    """Return the log density (m,) for given directions (n, q, D) and their variances (n, q)."""
    logs = terms_along(X, directions, variances, query, noise)
    return np.array([log_sum_exp(column) for column in logs.T]) - np.log(WIDE(len(X)))
