"""Points laid out for the loops, and the gradient of a tile of pairs.

A tile holds a few dozen query points against a few hundred reference points: squared
distances are written into it, turned into kernels or pair weights in place, and scattered
out of it as weighted differences. A pair that must not count (a point with itself, the
mirrored half of a symmetric block) is given an infinite distance, where every kernel is zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.error_bounds import PAIR_GRADIENTS
from fastmetric.core.vector.exp import bits_float, float_bits
from fastmetric.core.vector.register_blocks import (
    ROWS,
    VECTOR_BYTES,
    add_weighted_sums,
    make_panels,
    panel_width,
)

ALIGN = 48  # a multiple of the register blocks' rows and of both panel widths
TILE_ROWS = ALIGN
TILE_COLS = 12 * ALIGN

# From this dimension on taking the scatter apart into products pays.
_PRODUCTS_FROM = 8


class Points(NamedTuple):
    """Points, padded with zeros to a multiple of ALIGN, in the layouts that the loops read."""

    size: int  # n, without padding
    width: int  # d, the coordinates that are scattered, without padding
    products: bool  # whether scatter may use products
    weights: np.ndarray  # (N,): what a point's kernel counts for in a sum
    rows: np.ndarray  # (N, d), for products (N, d') with d' padded to whole vectors
    strips: np.ndarray  # (N / ROWS, q, ROWS), of the first q coordinates: those of distances
    panels: np.ndarray  # (N / panel width, q, panel width)
    cols: np.ndarray  # (d, N), for products (0, 0)


@jit
def padded(n):
    """Return n rounded up to a multiple of ALIGN."""
    return (n + ALIGN - 1) // ALIGN * ALIGN


def make_points(
    Z: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    products: bool | None = None,
    near: int | None = None,
) -> Points:
    """Return the layouts of the points `Z` (n, d), with weights (n,), None: 1.

    `products` None: where they are safe. Query and reference points of one scatter must agree
    on them. Distances are taken in the first `near` coordinates, None: in all.
    """
    n, d = Z.shape
    near = d if near is None else near
    products = products_are_safe(Z) if products is None else products
    spare = -d % (VECTOR_BYTES // Z.itemsize) if products else 0
    rows = np.zeros((n + -n % ALIGN, d + spare), Z.dtype)
    rows[:n, :d] = Z
    strips, panels = make_panels(rows, near, ROWS), make_panels(rows, near, panel_width(Z.dtype))
    cols = np.empty((0, 0), Z.dtype) if products else np.ascontiguousarray(rows.T)
    padded_weights = np.zeros(len(rows), Z.dtype)
    padded_weights[:n] = 1 if weights is None else weights
    return Points(n, d, products, padded_weights, rows, strips, panels, cols)


def products_are_safe(Z: np.ndarray) -> bool:
    """Return whether w (q - r) may be taken apart into w q - w r, and doing so pays.

    That loses about eps |q|; `Z` should be centred.
    """
    longest = np.sqrt(np.einsum("ij,ij->i", Z, Z).max())
    return Z.shape[1] >= _PRODUCTS_FROM and PAIR_GRADIENTS.allows(longest, Z.dtype)


@jit
def smallest(s):
    """Return the smallest of the numbers `s`, all >= 0; infinity if there are none.

    Through the bits, which order non-negative floats: an integer minimum vectorises.
    """
    least = float_bits(s.dtype.type(np.inf))
    for j in range(s.size):
        least = min(least, float_bits(s[j]))
    return bits_float(least)


class PairGradient(NamedTuple):
    """What has been scattered to some points z so far: u = weights z - sums."""

    sums: np.ndarray  # (N, width of rows), float64
    weights: np.ndarray  # (N,), float64


@jit
def empty_gradient(n, points):
    """Return the gradient at n points before anything is scattered."""
    return PairGradient(np.zeros((padded(n), points.rows.shape[1])), np.zeros(padded(n)))


@jit
def gradient_from(gradient, start):
    """Return the gradient at the points from `start` on."""
    return PairGradient(gradient.sums[start:], gradient.weights[start:])


def add_gradient(total: PairGradient, part: PairGradient, where: slice | np.ndarray) -> None:
    """Add the gradient at the points `where`, a slice or distinct numbers, to that at all."""
    n = len(total.weights[where])
    total.sums[where] += part.sums[:n]
    total.weights[where] += part.weights[:n]


def gradient_rows(gradient: PairGradient, points: Points) -> np.ndarray:
    """Return u (n, d), what was scattered to the points."""
    n, d = points.size, points.width
    return gradient.weights[:n, None] * points.rows[:n, :d] - gradient.sums[:n, :d]


@jit
def tile_gradient(tile, query, i0, to_query, ref, j0, to_ref):
    """Add the weighted differences of a tile of weights w to the gradients of both sides [CCK-6].

    u_r += sum_c w_rc (q_r - r_c) for the query points and u_c -= sum_r w_rc (q_r - r_c) for
    the reference points.
    """
    if ref.products:
        _gradient_by_products(tile, query, i0, to_query, ref, j0, to_ref)
    else:
        _gradient_by_differences(tile, query, i0, to_query, ref, j0, to_ref)


@jit
def _gradient_by_products(tile, query, i0, to_query, ref, j0, to_ref):
    """Scatter with w (q - r) = w q - w r: two matrix products and the sums of the weights."""
    n_rows, n_cols = tile.shape
    add_weighted_sums(tile, n_cols, 1, n_cols, ref.rows, j0, to_query.sums[:n_rows])
    add_weighted_sums(tile, 1, n_cols, n_rows, query.rows, i0, to_ref.sums[:n_cols])
    col_weights = to_ref.weights[:n_cols]
    for r in range(n_rows):
        row, row_sum = tile[r], tile.dtype.type(0)
        for c in range(n_cols):
            row_sum += row[c]
            col_weights[c] += row[c]
        to_query.weights[r] += row_sum


@jit
def _gradient_by_differences(tile, query, i0, to_query, ref, j0, to_ref):
    """Scatter one coordinate after the other, four rows at a time to reuse what is loaded."""
    n_rows, n_cols = tile.shape
    gathered = np.empty(n_cols, tile.dtype)
    for k in range(ref.cols.shape[0]):
        col = ref.cols[k, j0 : j0 + n_cols]
        gathered[:] = 0
        for r in range(0, n_rows, 4):
            w0, w1, w2, w3 = tile[r], tile[r + 1], tile[r + 2], tile[r + 3]
            z0, z1 = query.rows[i0 + r, k], query.rows[i0 + r + 1, k]
            z2, z3 = query.rows[i0 + r + 2, k], query.rows[i0 + r + 3, k]
            sum0 = sum1 = sum2 = sum3 = tile.dtype.type(0)
            for c in range(n_cols):
                t0 = w0[c] * (z0 - col[c])
                t1 = w1[c] * (z1 - col[c])
                t2 = w2[c] * (z2 - col[c])
                t3 = w3[c] * (z3 - col[c])
                sum0 += t0
                sum1 += t1
                sum2 += t2
                sum3 += t3
                gathered[c] += (t0 + t1) + (t2 + t3)
            to_query.sums[r, k] -= sum0
            to_query.sums[r + 1, k] -= sum1
            to_query.sums[r + 2, k] -= sum2
            to_query.sums[r + 3, k] -= sum3
        for c in range(n_cols):
            to_ref.sums[c, k] += gathered[c]


@jit
def gradient_of_few(weights, query, i, to_query, ref, j0, to_ref):
    """Scatter a row of weights that are nearly all zero, pair by pair, and clear it."""
    d = query.width
    for c in range(weights.size):
        w = weights[c]
        if w != 0:
            for k in range(d):
                t = w * (query.rows[i, k] - ref.rows[j0 + c, k])
                to_query.sums[0, k] -= t
                to_ref.sums[c, k] += t
    weights[:] = 0
