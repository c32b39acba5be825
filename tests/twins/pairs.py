"""Plain NumPy twins of kernels and sums over pairs: slow, obvious, sharing no code.

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


def pair_scatter(weights, query, ref):
    """Return sum_j w_ij (q_i - r_j), (m, d), and -sum_i w_ij (q_i - r_j), (n, d)."""
    gaps = np.asarray(query, WIDE)[:, None, :] - np.asarray(ref, WIDE)[None, :, :]
    terms = np.asarray(weights, WIDE)[:, :, None] * gaps
    return terms.sum(axis=1), -terms.sum(axis=0)
