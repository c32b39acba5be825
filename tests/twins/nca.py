"""Plain NumPy twins of everything compiled: slow, obvious, sharing no code with the package.

In extended precision where the machine has it, so that a difference is the package's.
"""

from __future__ import annotations

import math

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


class ClassDensities:
    """Twin of every NCA variant: one density per class of projected rows [CCK-1], [CCK-7].

    All of it goes through complex numbers, too: a derivative is the imaginary part of a step
    along i, which neither cancels nor cares about kinks.
    """

    def __init__(self, A, X, y, *, kernel="gaussian", background=False, beta=None, priors=None):
        """Take what `nca_value_and_grad` takes."""
        self.A = np.asarray(A) if np.iscomplexobj(A) else np.asarray(A, WIDE)
        self.X, self.kernel = np.asarray(X, WIDE), kernel
        self.Z = self.X @ self.A.T
        self.classes, self.y, self.sizes = np.unique(y, return_inverse=True, return_counts=True)
        self.background = background
        self.classic = priors is None and not background
        if isinstance(priors, str):
            priors = np.ones(len(self.classes))
        self.priors = np.asarray(self.sizes if priors is None else priors, WIDE)
        beta = 1 / (WIDE(1) + self.sizes) if beta is None else np.asarray(beta)
        self.beta = np.broadcast_to(beta, self.sizes.shape) * WIDE(1)
        d = len(self.A)
        self.volume = WIDE(np.pi) ** (WIDE(d) / 2)
        if kernel == "biweight":
            self.volume *= 2 / WIDE(math.gamma(d / 2 + 3))

    def is_singular(self, c):
        """Return whether the rows of a class do not span the projected space."""
        rows = self.Z.real[self.y == c].astype(float)
        if len(rows) <= rows.shape[1]:
            return True
        lengths = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
        noise = 1e-13 * np.abs(self.Z).max() * len(rows)
        return bool(lengths[-1] <= max(3e-6 * lengths[0], noise))

    def normal(self, c):
        """Return mean (d,), covariance (d, d) of a class's background; of all rows if singular."""
        rows = self.Z[self.y == c]
        mean = rows.sum(axis=0) / len(rows)
        if not self.is_singular(c):
            return mean, (rows - mean).T @ (rows - mean) / len(rows)
        centred = self.Z - self.Z.sum(axis=0) / len(self.Z)
        T, eye = centred.T @ centred / len(self.Z), np.eye(len(mean))
        return mean, T + (WIDE("1e-6") + WIDE("1e-9") * np.trace(T) / len(T)) * eye

    def backgrounds(self, query):
        """Return N(q | class c), (m, C)."""
        columns = []
        for c in range(len(self.classes)):
            mean, T = self.normal(c)
            inverse, determinant = inverse_and_determinant(T)
            gaps = query - mean
            squares = ((gaps @ inverse) * gaps).sum(axis=1)
            height = (2 * WIDE(np.pi)) ** (-WIDE(len(mean)) / 2) / np.sqrt(determinant)
            columns.append(height * np.exp(-squares / 2))
        return np.stack(columns, axis=1)

    def pair_kernels(self, points, lift=None):
        """Return the kernels of all pairs and their members, (m, n); see `terms`."""
        query = self.Z if points is None else np.asarray(points, WIDE) @ self.A.T
        gaps = query[:, None, :] - self.Z[None, :, :]
        s = (gaps * gaps).sum(axis=-1)
        counted = np.ones(s.shape)
        if points is None:
            np.fill_diagonal(counted, 0)
        if lift is not None:
            s = np.maximum(s + lift, 0)
        if self.kernel == "gaussian":
            return counted * np.exp(-s), counted, query
        return counted * np.where(s.real < 1, (1 - s) ** 2, 0), counted, query

    def terms(self, points=None, lift=None):
        """Return pi_c times the kernels' and the background's part of g_ic, (m, C) each.

        Of new points, or of the rows themselves, each left out of its own class; with `lift`
        added to all squared distances.
        """
        k, counted, query = self.pair_kernels(points, lift)
        member = (self.y[:, None] == np.arange(len(self.classes))).astype(WIDE)
        sums, numbers = k @ member, counted @ member
        if self.classic:
            return sums, np.zeros(sums.shape, WIDE)
        means = self.priors * sums / np.maximum(numbers, 1)
        if not self.background:
            return means, np.zeros(sums.shape, WIDE)
        normals = self.backgrounds(query)
        return (1 - self.beta) / self.volume * means, self.priors * self.beta * normals

    def probabilities(self):
        """Return P_i (n,) of the rows' own classes [CCK-2]; 0 where nothing is near."""
        g = np.add(*self.terms())
        mine = self.y[:, None] == np.arange(len(self.classes))
        own, other = (g * mine).sum(axis=1), (g * ~mine).sum(axis=1)
        # By the smaller over the larger one: own / total would round what is left of 1 - P.
        larger, smaller = np.where(own.real > other.real, [own, other], [other, own])
        ratio = smaller / np.where(larger == 0, 1, larger)
        return np.where(own.real > other.real, 1, ratio) / (1 + ratio)

    def posterior(self, points):
        """Return the posterior of every class at new points, (m, C); the priors if none is near."""
        g = np.add(*self.terms(points))
        empty = g.sum(axis=1) == 0
        g[empty] = self.priors
        return g / g.sum(axis=1, keepdims=True)


def inverse_and_determinant(T):
    """Return both of a symmetric positive definite matrix, by elimination."""
    T, inverse, determinant = T.copy(), np.eye(len(T)).astype(T.dtype), T.dtype.type(1)
    for k in range(len(T)):
        determinant *= T[k, k]
        inverse[k], T[k] = inverse[k] / T[k, k], T[k] / T[k, k]
        for i in range(len(T)):
            if i != k:
                inverse[i], T[i] = inverse[i] - T[i, k] * inverse[k], T[i] - T[i, k] * T[k]
    return inverse, determinant


def variant_value(A, X, y, rows=None, **variant):
    """Return the sum of P_i over `rows`, of any NCA variant."""
    P = ClassDensities(A, X, y, **variant).probabilities()
    return P.sum() if rows is None else P[np.asarray(rows)].sum()


def variant_gradient(A, X, y, rows=None, **variant):
    """Return its gradient (d, D): a step along i for every entry of A."""
    step = WIDE("1e-60")
    gradient = np.zeros(np.shape(A), WIDE)
    for entry in np.ndindex(gradient.shape):
        moved = np.asarray(A, np.clongdouble).copy()
        moved[entry] += 1j * step
        gradient[entry] = variant_value(moved, X, y, rows, **variant).imag / step
    return gradient


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
    raise RuntimeError("The naive climb did not end.")


def log_density(X, query, h=1.0):
    """Return the log of the Gaussian kernel density, (m,)."""
    n, d = np.shape(X)
    logs = [log_sum_exp(-row) for row in sq_distances(query, X) / (2 * WIDE(h) ** 2)]
    return np.array(logs) - np.log(WIDE(n)) - d * np.log(WIDE(h) * np.sqrt(2 * WIDE(np.pi)))
