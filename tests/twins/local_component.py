"""Plain NumPy twins of Local Component Analysis: slow, obvious, in extended precision.

Linear algebra is NumPy's, in float64: it has no wider one.
"""

from __future__ import annotations

import numpy as np

from tests.twins.pairs import WIDE, log_sum_exp, sq_distances


def responsibilities(Z, ref=None, self_index=None):
    """Return lambda (m, n) of the kernel exp(-|z_i - z_j|^2 / 2), and the log sums (m,)."""
    if ref is None:
        ref, self_index = Z, np.arange(len(Z))
    logs = -sq_distances(Z, ref) / 2
    for i, j in enumerate(self_index):
        if j >= 0:
            logs[i, j] = -np.inf
    log_sums = np.array([log_sum_exp(row) for row in logs], WIDE)
    return np.exp(logs - log_sums[:, None]), log_sums


def scatter(weights, W, ref):
    """Return sum_ij weights_ij (w_i - r_j)(w_i - r_j)ᵀ."""
    W, ref = np.asarray(W, WIDE), np.asarray(ref, WIDE)
    total = np.zeros((W.shape[1], W.shape[1]), WIDE)
    for i, w in enumerate(W):
        gaps = w - ref
        total += (gaps * weights[i][:, None]).T @ gaps
    return total


def structured(C, covariance, rank):
    """Return the covariance of the form asked for that fits C best."""
    if covariance == "diag":
        return np.diag(np.diag(C))
    if covariance == "spherical":
        return np.eye(len(C)) * np.trace(C) / len(C)
    if covariance == "low_rank":
        e, V = np.linalg.eigh(C)
        e[:-rank] = e[:-rank].mean()
        return (V * e) @ V.T
    return C


def root_inverse(C):
    """Return C^{-1/2}."""
    e, V = np.linalg.eigh(C)
    return (V / np.sqrt(e)) @ V.T


def log_likelihood(X, B_local, B_gaussian):
    """Return the log densities (n,) of rows, each left out of its own kernels [LOC-5]; columns."""
    n, D = X.shape
    centred = X - X.mean(axis=0)
    _, log_sums = responsibilities(centred @ B_local)
    log_det = np.linalg.slogdet(np.hstack([B_gaussian, B_local]))[1]
    normal = ((centred @ B_gaussian) ** 2).sum(axis=1) / 2
    return log_det - D / 2 * np.log(2 * np.pi) - normal + log_sums - np.log(n - 1)


def em(X, n_iter, nu=0.0, covariance="full", rank=None, gaussian=False):
    """Return the local covariance, the columns B_L and B_G, and the mean log-likelihoods.

    Those of the start and after each of `n_iter` iterations.
    """
    X = np.asarray(X, np.float64)
    n, D = X.shape
    centred = X - X.mean(axis=0)
    total = centred.T @ centred / n + nu * np.eye(D)
    local = structured(total, covariance, rank)
    B_local, B_gaussian = root_inverse(local), np.empty((D, 0))
    values = [log_likelihood(X, B_local, B_gaussian).mean()]
    for _ in range(n_iter):
        weights, _ = responsibilities(centred @ B_local)
        C = np.asarray(scatter(weights, centred, centred) / n, np.float64) + nu * np.eye(D)
        local = structured(C, covariance, rank)
        B_local = root_inverse(local)
        if gaussian:
            half = root_inverse(total)
            e, U = np.linalg.eigh(half @ C @ half)
            B_local, B_gaussian = half @ (U[:, e < 1] / np.sqrt(e[e < 1])), half @ U[:, e >= 1]
        values.append(log_likelihood(X, B_local, B_gaussian).mean())
    return local, B_local, B_gaussian, np.array(values, np.float64)


def em_each(X, common, smoothing, n_iter):
    """Return one covariance per row (n, D, D), smoothed towards a common one, and likelihoods."""
    n = len(X)
    covariances = np.array([common] * n)
    values = []
    for k in range(n_iter + 1):
        logs = np.full((n, n), -np.inf, WIDE)  # of row i under the kernel of row j
        for j, C in enumerate(covariances):
            gaps = X - X[j]
            squares = np.einsum("ij,jk,ik->i", gaps, np.linalg.inv(C), gaps)
            logs[:, j] = -squares / 2 - np.linalg.slogdet(2 * np.pi * C)[1] / 2
            logs[j, j] = -np.inf
        log_sums = np.array([log_sum_exp(row) for row in logs], WIDE)
        values.append(float(log_sums.mean()) - np.log(n - 1))
        if k == n_iter:
            return covariances, np.array(values)
        shares = np.exp(logs - log_sums[:, None]).astype(float)
        for j in range(n):
            gaps = X - X[j]
            C = (gaps * shares[:, j : j + 1]).T @ gaps + smoothing * common
            covariances[j] = C / (shares[:, j].sum() + smoothing)
    return covariances, np.array(values)
