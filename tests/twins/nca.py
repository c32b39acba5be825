"""Plain NumPy twins of NCA and its variants, in extended precision."""

from __future__ import annotations

import math

import numpy as np

from tests.twins.pairs import WIDE, sq_distances


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
