"""Sums of Gaussians, each of its own shape: flat except in a few directions [MAN-1] to [MAN-3].

The queries are the last axis of every array, so that all loops run along them. A grid of shapes is
summed at once: `counts` (Q,), how many directions count, increasing, by S noise variances.
The sums are ShiftedSums (Q, S, m).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.vector.exp import exp

_WIDTH = 64  # queries at a time, by differences


class Shapes(NamedTuple):
    """The shapes of t Gaussians, for every noise variance of a grid."""

    inverse: np.ndarray  # (t, S, q), 1 / variance along each direction
    inverse_noise: np.ndarray  # (S,), 1 / variance across
    log_factors: np.ndarray  # (t, Q, S), float64: minus half the log determinant of 2 pi C


class _Gaussians(NamedTuple):
    """t Gaussians in D dimensions."""

    points: np.ndarray  # (t, D)
    directions: np.ndarray  # (t, q, D)
    shapes: Shapes


@jit
def _add_terms(log_factor, inverse_noise, across, along, shifts, totals):
    """Add exp(log_factor - (across / noise + along) / 2) to each of the sums (w,)."""
    for a in range(across.size):
        quadratic = np.float64(across[a]) * inverse_noise + along[a]
        term = log_factor - 0.5 * quadratic
        gap = term - shifts[a]
        scale = exp(-abs(gap))
        totals[a] = totals[a] * scale + 1.0 if gap > 0 else totals[a] + scale
        shifts[a] = max(shifts[a], term)


class Products(NamedTuple):
    """Products of t Gaussians, around x_i along v_ij, with m queries x."""

    points: np.ndarray  # (t, m), x_i . x
    projections: np.ndarray  # (t q, m), v_ij . x
    offsets: np.ndarray  # (t, q), v_ij . x_i
    norms: np.ndarray  # (t,), |x_i|²
    query_norms: np.ndarray  # (m,), |x|²


@jit
def _sq_distances(products, i, out):
    """Write |x - x_i|² into out (m,)."""
    two = products.points.dtype.type(2)
    for a in range(out.size):
        out[a] = products.norms[i] + products.query_norms[a] - two * products.points[i, a]


@jit
def _take_direction(products, i, j, inverse, across, along, squares):
    """Move the part along direction j from the squares across (m,) to those along (S, m).

    inverse (S, q): 1 / variance.
    """
    row = i * products.offsets.shape[1] + j
    for a in range(across.size):
        p = products.projections[row, a] - products.offsets[i, j]
        squares[a] = p * p
        across[a] -= squares[a]
    for s in range(along.shape[0]):
        for a in range(across.size):
            along[s, a] += squares[a] * inverse[s, j]


@jit
def add_by_products(products, shapes, counts, sums):
    """Add Gaussians to the sums, from products with the queries."""
    dtype, m = products.points.dtype, products.query_norms.size
    zero = dtype.type(0)
    across, squares = np.empty(m, dtype), np.empty(m, dtype)
    along = np.empty((shapes.inverse_noise.size, m), dtype)
    for i in range(products.norms.size):
        _sq_distances(products, i, across)
        along[:] = zero
        done = 0
        for c in range(counts.size):
            for j in range(done, counts[c]):
                _take_direction(products, i, j, shapes.inverse[i], across, along, squares)
            done = counts[c]
            for a in range(m):
                squares[a] = max(across[a], zero)
            for s in range(along.shape[0]):
                _add_terms(
                    shapes.log_factors[i, c, s],
                    np.float64(shapes.inverse_noise[s]),
                    squares,
                    along[s],
                    sums.shifts[c, s],
                    sums.totals[c, s],
                )


class Marginals(NamedTuple):
    """Marginals of t Gaussians in d coordinates, in units of the noise [MAN-5]."""

    rows: np.ndarray  # (t, q + 1, d): w_ij, and last the point y_i
    offsets: np.ndarray  # (t, q), w_ij . y_i
    norms: np.ndarray  # (t,), |y_i|²
    log_factors: np.ndarray  # (t,): twice those of the Gaussians themselves


@jit
def list_pairs(products, marginals, query_norms, floors):
    """Return Gaussians and queries, by number (p,), where a term may exceed the query's floor.

    products (t, q + 1, m) of the marginals' rows with the queries; floors (m,): twice the log.
    """
    t, height, m = products.shape
    two, rest = products.dtype.type(2), np.empty(m, products.dtype)
    # One place more: what is written there is not kept.
    rows, columns, count = np.empty(t * m + 1, np.int32), np.empty(t * m + 1, np.int32), 0
    for i in range(t):
        for a in range(m):
            rest[a] = marginals.norms[i] + query_norms[a] - two * products[i, height - 1, a]
        for j in range(height - 1):
            offset = marginals.offsets[i, j]
            for a in range(m):
                p = products[i, j, a] - offset
                rest[a] -= p * p
        for a in range(m):
            rows[count], columns[count] = i, a
            count += marginals.log_factors[i] - rest[a] >= floors[a]
    return rows[:count], columns[:count]


@jit
def add_pairs(query, X, directions, shapes, rows, columns, sums):
    """Add Gaussian rows[p] to the sum at query[columns[p]] (m, D) for each p.

    For a grid of one shape, where squares may be subtracted; of differences.
    """
    dtype = query.dtype
    gaps, across, along = np.empty(X.shape[1], dtype), np.empty(1, dtype), np.empty(1, dtype)
    for pair in range(rows.size):
        i, a = rows[pair], columns[pair]
        x, y = X[i], query[a]
        for k in range(gaps.size):
            gaps[k] = y[k] - x[k]
        along[0], rest = dtype.type(0), _dot(gaps, gaps)
        for j in range(directions.shape[1]):
            p = _dot(directions[i, j], gaps)
            rest -= p * p
            along[0] += p * p * shapes.inverse[i, 0, j]
        across[0] = max(rest, dtype.type(0))
        _add_terms(
            shapes.log_factors[i, 0, 0],
            np.float64(shapes.inverse_noise[0]),
            across,
            along,
            sums.shifts[0, 0, a : a + 1],
            sums.totals[0, 0, a : a + 1],
        )


@jit
def _dot(u, v):
    """Return u . v (D,)."""
    total = u.dtype.type(0)
    for k in range(u.size):
        total += u[k] * v[k]
    return total


@jit
def add_by_differences(query, X, directions, shapes, counts, sums):
    """Add Gaussians around X (t, D), along directions (t, q, D), to the sums at query (D, m).

    What is left of the difference beside the directions is never subtracted from squares, so
    that no digits cancel, however flat the Gaussians are. In float64 throughout.
    """
    gaussians = _Gaussians(X, directions, shapes)
    for first in range(0, query.shape[1], _WIDTH):
        last = min(first + _WIDTH, query.shape[1])
        for i in range(X.shape[0]):
            _add_one(query[:, first:last], gaussians, i, counts, sums, first)


@jit
def _add_one(query, gaussians, i, counts, sums, first):
    """Add Gaussian i to the sums at query (D, w), the queries from `first` on."""
    x, directions, shapes = gaussians.points[i], gaussians.directions[i], gaussians.shapes
    n_features, w = query.shape
    rest, p, across = np.empty((n_features, w)), np.empty(w), np.empty(w)
    along = np.zeros((shapes.inverse_noise.size, w))
    for k in range(n_features):
        center = np.float64(x[k])
        for a in range(w):
            rest[k, a] = np.float64(query[k, a]) - center
    done = 0
    for c in range(counts.size):
        for j in range(done, counts[c]):
            p[:] = 0.0
            for k in range(n_features):
                v = np.float64(directions[j, k])
                for a in range(w):
                    p[a] += v * rest[k, a]
            for k in range(n_features):
                v = np.float64(directions[j, k])
                for a in range(w):
                    rest[k, a] -= v * p[a]
            for s in range(along.shape[0]):
                for a in range(w):
                    along[s, a] += p[a] * p[a] * shapes.inverse[i, s, j]
        done = counts[c]
        across[:] = 0.0
        for k in range(n_features):
            for a in range(w):
                across[a] += rest[k, a] * rest[k, a]
        for s in range(along.shape[0]):
            _add_terms(
                shapes.log_factors[i, c, s],
                np.float64(shapes.inverse_noise[s]),
                across,
                along[s],
                sums.shifts[c, s, first : first + w],
                sums.totals[c, s, first : first + w],
            )
