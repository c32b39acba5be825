"""Pairs of rows that should coincide, or should not: one block of rows at a time.

Symbols of [COI-1], for a pair of rows x, x' with projections z, z' in R^p: q = |z - z'|^2,
t = 1 / (kappa^2 + 2 sigma^2), P = probability of coinciding, nu = P / (1 - P). The weight of a
pair is omega = gamma / sigma^2 = t if it coincides and -t nu if not: it stays finite as
sigma^2 vanishes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, jit_in_order
from fastmetric.core.tree.heaps import sink

_GOLDEN = 0.3819660112501051  # the smaller part of the golden section
_WIDENINGS, _CUTS = 60, 12  # of the search for a length scale: steps out, steps in
_LN_STEP = math.log(2.0)


class Pairs(NamedTuple):
    """Pairs of n rows, sorted by their first row; and where a row comes second."""

    starts: np.ndarray  # (n + 1,): row i is first in the pairs starts[i]:starts[i + 1]
    seconds: np.ndarray  # (m,): the other row
    coincide: np.ndarray  # (m,) bool: the pair should coincide
    firsts: np.ndarray  # (m,)
    back_starts: np.ndarray  # (n + 1,): row i is second in the pairs back[back_starts[i]:...]
    back: np.ndarray  # (m,)


class LabelledRows(NamedTuple):
    """n rows, and the radius in which rows of other labels are searched for each."""

    Z: np.ndarray  # (n, p)
    norms: np.ndarray  # (n,): squared
    labels: np.ndarray  # (n,)
    reach: np.ndarray  # (n,): squared


class ProductTile(NamedTuple):
    """Products (a, b) of the rows from `row_at` on with those from `col_at` on."""

    products: np.ndarray
    row_at: int
    col_at: int


class FoundPairs(NamedTuple):
    """Room for the pairs that a tile may hold: m = 2 a b."""

    rows: np.ndarray  # (2, m)
    squares: np.ndarray  # (m,): squared distances


@jit
def _log_coincidence(q, kappa_sq, noise, p):
    """Return log P of [COI-1]."""
    return -0.5 * p * math.log1p(2 * noise / kappa_sq) - 0.5 * q / (kappa_sq + 2 * noise)


@jit
def _log_probability(q, coincide, kappa_sq, noise, p):
    """Return the log of the probability of what a pair was seen to do."""
    log_p = _log_coincidence(q, kappa_sq, noise, p)
    return log_p if coincide else math.log(-math.expm1(log_p))


@jit
def weigh(Z, pairs, kappa_sq, noise, rows, q, weights):
    """Write q and omega of the pairs of a range of rows into `q` and `weights` (m,).

    `kappa_sq` (n,) is kappa^2 of each first row. Returns the sums of the log-likelihood, of
    omega, and of omega t q.
    """
    p = Z.shape[1]
    first, last = rows
    log_likelihood = total = moment = 0.0
    for i in range(first, last):
        t = 1 / (kappa_sq[i] + 2 * noise)
        fixed = -0.5 * p * math.log1p(2 * noise / kappa_sq[i])
        for e in range(pairs.starts[i], pairs.starts[i + 1]):
            j = pairs.seconds[e]
            square = 0.0
            for k in range(p):
                gap = Z[i, k] - Z[j, k]
                square += gap * gap
            log_p = fixed - 0.5 * t * square
            if pairs.coincide[e]:
                log_likelihood += log_p
                weight = t
            else:
                # P is near 1 when the points coincide: expm1 keeps the digits of 1 - P.
                log_likelihood += math.log(-math.expm1(log_p))
                weight = -t / math.expm1(-log_p) if log_p > -700 else 0.0
            q[e] = square
            weights[e] = weight
            total += weight
            moment += weight * t * square
    return log_likelihood, total, moment


@jit
def weighted_differences(Z, pairs, weights, first, last, U):
    """Write u_i = sum of omega (z_i - z_j) over all pairs of row i, first or second.

    Of the rows first:last, into U (last - first, p).
    """
    p = Z.shape[1]
    row = np.empty(p)
    for i in range(first, last):
        row[:] = 0
        for e in range(pairs.starts[i], pairs.starts[i + 1]):
            j, weight = pairs.seconds[e], weights[e]
            for k in range(p):
                row[k] += weight * (Z[i, k] - Z[j, k])
        for at in range(pairs.back_starts[i], pairs.back_starts[i + 1]):
            e = pairs.back[at]
            j, weight = pairs.firsts[e], weights[e]
            for k in range(p):
                row[k] += weight * (Z[i, k] - Z[j, k])
        U[i - first] = row


@jit
def _row_log_likelihood(pairs, q, i, kappa_sq, noise, p):
    """Return the log-likelihood of the pairs in which row i is first."""
    total = 0.0
    for e in range(pairs.starts[i], pairs.starts[i + 1]):
        total += _log_probability(q[e], pairs.coincide[e], kappa_sq, noise, p)
    return total


@jit
def _has_both(pairs, i):
    """Return whether row i is first in pairs of either kind."""
    coincide = 0
    for e in range(pairs.starts[i], pairs.starts[i + 1]):
        coincide += pairs.coincide[e]
    return 0 < coincide < pairs.starts[i + 1] - pairs.starts[i]


@jit
def search_scales(pairs, q, kappa_sq, noise, p, first, last):
    """Move kappa^2 of the rows first:last to a maximum of their log-likelihood, with gain >= 0.

    The likelihood of a pair that coincides increases with kappa^2, that of the others decreases: a
    row without both kinds is not changed. Returns the gain.
    """
    gain = 0.0
    for i in range(first, last):
        if not _has_both(pairs, i):
            continue
        before = _row_log_likelihood(pairs, q, i, kappa_sq[i], noise, p)
        # A bracket of the maximum, in log kappa^2: outwards by factors, in the ascending direction.
        best, top = math.log(kappa_sq[i]), before
        step = _LN_STEP
        if _row_log_likelihood(pairs, q, i, math.exp(best + step), noise, p) <= top:
            step = -step
        for _ in range(_WIDENINGS):
            value = _row_log_likelihood(pairs, q, i, math.exp(best + step), noise, p)
            if not value > top:
                break
            best, top = best + step, value
        low, high = best - _LN_STEP, best + _LN_STEP
        for _ in range(_CUTS):  # golden sections
            trial = best + _GOLDEN * (high - best if high - best > best - low else low - best)
            value = _row_log_likelihood(pairs, q, i, math.exp(trial), noise, p)
            if value > top:
                if trial > best:
                    low = best
                else:
                    high = best
                best, top = trial, value
            elif trial > best:
                high = trial
            else:
                low = trial
        if top > before:
            kappa_sq[i] = math.exp(best)
            gain += top - before
    return gain


@jit
def impostors_of_tile(rows, slack, tile, out):
    """Collect pairs of a tile, of different labels, within reach of a row; return their number.

    Pairs i < j are tested. With the squared norms the products give squared distances up to
    rounding, `slack` times the norms: near ones are computed again, from differences. The pair
    (i, j) is found if its squared distance is less than reach[i], (j, i) if it is less than
    reach[j]. Row numbers and squared distances are written to `out`.
    """
    Z, norms, labels, reach = rows
    (products, row_at, col_at), (found, squares) = tile, out
    p, count = Z.shape[1], 0
    for a in range(products.shape[0]):
        i = row_at + a
        for b in range(max(0, i + 1 - col_at), products.shape[1]):
            j = col_at + b
            norm = norms[i] + norms[j]
            if norm - 2 * products[a, b] - slack * norm >= max(reach[i], reach[j]):
                continue
            if labels[i] == labels[j]:
                continue
            square = 0.0
            for k in range(p):
                gap = Z[i, k] - Z[j, k]
                square += gap * gap
            if square < reach[i]:
                found[0, count], found[1, count], squares[count] = i, j, square
                count += 1
            if square < reach[j]:
                found[0, count], found[1, count], squares[count] = j, i, square
                count += 1
    return count


@jit_in_order
def offer_to_heaps(found, squares, best, others, reach):
    """Offer pairs (2, m) to the heaps `best`, `others` (n, K), largest first, of their first rows.

    reach[i] becomes what a pair has to be nearer than from now on.
    """
    for e in range(squares.size):
        i, square = found[0, e], squares[e]
        if square < best[i, 0]:
            sink(best[i], others[i], best.shape[1], square, found[1, e])
            reach[i] = min(reach[i], best[i, 0])
