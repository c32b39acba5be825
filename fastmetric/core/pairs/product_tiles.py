"""Sums of Gaussians over tiles of products of points, with terms that count by differences.

Rows are centred and scaled so that the exponent of a pair is t = |y_i - y_j|^2 / 2, of which the
products give |y_i|^2 / 2 + |y_j|^2 / 2 - y_i . y_j. That is off by at most `unit` times the sum of
the two halves, whatever t is [SUM-12]. Where this is more than a sum may lose, the few terms that
make up the sum are listed, and their exponents computed again by differences of the given rows.

Terms beyond `FARTHEST` are left out: they are negligible where the largest term is not beyond half
of it, and elsewhere the sum is to be given up.

A sum is (totals + carries) exp(-STEP shifts), with whole numbers as shifts: a nearer point changes
the total by a power of two, which rounds nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, jit_in_order
from fastmetric.core.pairs.pair_tiles import smallest
from fastmetric.core.vector.compensated_sums import add_to, whole_vectors_sum
from fastmetric.core.vector.exp import exp, exp64
from fastmetric.core.vector.register_blocks import VECTOR_BYTES

UNLISTED = 0.9  # of what a sum may lose, by tiles of which no term is listed
LISTED = 64  # terms of a row in a block that may be listed
_SEARCHED = 64  # terms of which the least is compared first, in vectors
_FEWER = LISTED * 3 // 4  # after a list that was full has been looked through

# 32 ln 2 in two parts, the first of 32 bits: its multiples are exact up to 2^20.
DOUBLINGS = 32
STEP = DOUBLINGS * 0.6931471803691238
STEP_REST = DOUBLINGS * 1.9082149292705877e-10
FARTHEST = 2.0e7  # 2^20 STEP is more; terms beyond are left out

EMPTY = 1 << 40  # the shift of a sum without terms

_LANES = 8
_PER_LANE = 4  # squares that a lane adds before its carry is taken
CHUNK = _LANES * _PER_LANE  # rows by differences are padded to a multiple of it


class Accuracy(NamedTuple):
    """How far exponents out of products are off, and what a sum may lose by that."""

    unit: float  # the error of an exponent, relative to the sum of the halves
    constant: float  # and in any case
    allowed: float  # the relative error of a sum by terms that are not listed
    log_number: float  # of the terms of a sum, at most
    reach: float  # beyond the nearest exponent: from there on terms are negligible


class Side(NamedTuple):
    """The sums at the rows of one side of a block so far, and the terms that are listed."""

    halves: np.ndarray  # (k,): |y|^2 / 2, in the precision of the products
    selves: np.ndarray  # (k,): the row of the other side that is left out, or -1
    nearest: np.ndarray  # (k,): what the least exponent is at most
    shifts: np.ndarray  # (k,)
    totals: np.ndarray  # (k,)
    carries: np.ndarray  # (k,)
    listed: np.ndarray  # (k, LISTED): rows of the other side
    exponents: np.ndarray  # (k, LISTED): out of products
    counts: np.ndarray  # (k,): how many are listed; -1: too many, the sum is given up


@jit
def exponents_of(tile, row_halves, col_halves, least, col_least):
    """Turn products (m, n) into exponents in place; write the least one of every row (m,).

    `col_least` (n,), if it is not empty, takes those of the columns.
    """
    zero = tile.dtype.type(0)
    col_least[:] = np.inf
    for r in range(tile.shape[0]):
        row, half = tile[r], row_halves[r]
        if col_least.size > 0:
            for c in range(row.size):
                t = max((half + col_halves[c]) - row[c], zero)
                row[c] = t
                col_least[c] = min(col_least[c], t)
        else:
            for c in range(row.size):
                row[c] = max((half + col_halves[c]) - row[c], zero)
        least[r] = smallest(row)


@jit
def transposed(tile, out):
    """Write the transpose of a tile (m, n) into `out` (n, m)."""
    for c0 in range(0, tile.shape[1], 16):
        c1 = min(c0 + 16, tile.shape[1])
        for r in range(tile.shape[0]):
            for c in range(c0, c1):
                out[c, r] = tile[r, c]


@jit_in_order
def _error_of(accuracy, half, most):
    """Return the error of the exponents of a row; `most` is the largest half of the others."""
    return accuracy.unit * (np.float64(half) + most) + accuracy.constant


@jit_in_order
def listed_within(accuracy, error):
    """Return how far beyond the nearest exponent terms are listed; -inf: none.

    A term that is not listed is at most exp(-within) of the sum, and off by exp(error) - 1. A sum
    may have terms of both kinds, from tiles whose errors differ: each has its part of what is
    allowed.
    """
    loss = np.expm1(error)
    if loss <= UNLISTED * accuracy.allowed:
        return -np.inf
    return accuracy.log_number + np.log(loss / ((1 - UNLISTED) * accuracy.allowed))


@jit
def some_count(least, side, first, accuracy, most):
    """Return whether any of the rows first.. has a term that is not negligible."""
    for r in range(least.size):
        near = np.float64(least[r]) - _error_of(accuracy, side.halves[first + r], most)
        if side.counts[first + r] >= 0 and near <= side.nearest[first + r] + accuracy.reach:
            return True
    return False


@jit_in_order
def _shift_to(side, i, exponent):
    """Let an exponent be no less than the shift of sum i, in steps."""
    step = np.int64(np.floor(exponent / STEP))
    if step < side.shifts[i]:
        factor = np.ldexp(1.0, max(DOUBLINGS * (step - side.shifts[i]), -2000))
        side.totals[i] *= factor
        side.carries[i] *= factor
        side.shifts[i] = step


@jit_in_order
def _add_term(side, i, exponent, weight):
    """Add weight exp(-exponent) to sum i."""
    shift = np.float64(side.shifts[i])
    gap = (shift * STEP - exponent) + shift * STEP_REST
    add_to(side.totals, side.carries, i, weight * exp64(gap))


@jit
def _look_through(side, i, cut):
    """Keep the listed terms of row i below `cut`; add the others as they are."""
    kept = 0
    for k in range(side.counts[i]):
        t = side.exponents[i, k]
        if t < cut:
            side.listed[i, kept], side.exponents[i, kept] = side.listed[i, k], t
            kept += 1
        else:
            _shift_to(side, i, t)
            _add_term(side, i, t, 1.0)
    side.counts[i] = kept


@jit
def _list_terms(row, side, i, first, cut):
    """List the terms of a row of a tile below `cut`, and leave them out of the tile.

    Return whether there was room; if not, the sum is given up.
    """
    for start in range(0, row.size, _SEARCHED):
        stop = min(start + _SEARCHED, row.size)
        if smallest(row[start:stop]) >= cut:
            continue
        for c in range(start, stop):
            if row[c] < cut:
                if side.counts[i] == LISTED:
                    _look_through(side, i, cut)
                    if side.counts[i] > _FEWER:
                        side.counts[i] = -1
                        return False
                side.listed[i, side.counts[i]] = first + c
                side.exponents[i, side.counts[i]] = row[c]
                side.counts[i] += 1
                row[c] = np.inf
    return True


@jit
def add_tile(tile, least, side, corner, accuracy, most, ones):
    """Add a tile of exponents to the sums of its rows; the tile is overwritten.

    Its `corner` (2,): the first row and column. `most` is the largest half of the columns, `ones`
    are at least as many as there are columns.
    """
    i0, j0 = corner
    lanes = VECTOR_BYTES // tile.itemsize
    number, count = tile.dtype.type, tile.shape[1] // lanes
    for r in range(tile.shape[0]):
        i, row, near = i0 + r, tile[r], np.float64(least[r])
        if side.counts[i] < 0:
            continue
        own = side.selves[i] - j0
        if 0 <= own < row.size:
            row[own] = np.inf
            near = np.float64(smallest(row))
        error = _error_of(accuracy, side.halves[i], most)
        if near - error > side.nearest[i] + accuracy.reach or near == np.inf:
            continue
        if near > FARTHEST:
            if error > FARTHEST / 4:
                side.counts[i] = -1
            continue
        side.nearest[i] = min(side.nearest[i], near + error)
        within = listed_within(accuracy, error)
        cut = side.nearest[i] + within
        if near < cut:
            if not _list_terms(row, side, i, j0, cut):
                continue
            near = np.float64(smallest(row))
            if near - error > side.nearest[i] + accuracy.reach or near > FARTHEST:
                continue
        _shift_to(side, i, near)
        shift = number(side.shifts[i] * STEP + side.shifts[i] * STEP_REST)
        for c in range(row.size):
            row[c] = exp(shift - row[c])
        add_to(side.totals, side.carries, i, whole_vectors_sum(row, ones, count))
        for c in range(count * lanes, row.size):
            add_to(side.totals, side.carries, i, np.float64(row[c]))


class Differences(NamedTuple):
    """Rows as they are given, for exponents by differences."""

    rows: np.ndarray  # (m, d): those of a side
    numbers: np.ndarray  # which of the rows belong to the side, in its order
    others: np.ndarray  # (n, d): those of the other side
    other_numbers: np.ndarray
    weights: np.ndarray  # of all others, or (1,) if all are equal
    unit: float  # a power of two: differences times it do not overflow when they are squared
    factor: float  # exponents are `factor` times squares of these


@jit
def add_listed(side, given, accuracy, most):
    """Add the listed terms that count, their exponents by differences, and the others as they are.

    `most` is the largest half of the other side.
    """
    memory = np.empty((3, _LANES))
    for i in range(side.counts.size):
        if side.counts[i] < 0:
            continue
        error = _error_of(accuracy, side.halves[i], most)
        _look_through(side, i, side.nearest[i] + listed_within(accuracy, error))
        for k in range(side.counts[i]):
            j = given.other_numbers[side.listed[i, k]]
            x, z = given.rows[given.numbers[i]], given.others[j]
            t = given.factor * _sq_distance(x, z, given.unit, memory)
            w = given.weights[j] if given.weights.size > 1 else 1.0
            _shift_to(side, i, t - np.log(w))
            _add_term(side, i, t, w)


@jit_in_order
def _sq_distance(x, z, unit, memory):
    """Return |x - z|^2 unit^2 (d,), off by at most ten units in any dimension.

    Two units are those of a difference that is squared, _PER_LANE those of a chunk in a lane, two
    those of carry and total, and two of the lanes, whose carries are added to each other first.
    """
    totals, carries, parts = memory
    totals[:] = 0.0
    carries[:] = 0.0
    d = x.size
    whole = d // CHUNK * CHUNK
    for first in range(0, whole, CHUNK):
        parts[:] = 0.0
        for k in range(first, first + CHUNK, _LANES):
            for lane in range(_LANES):
                gap = (np.float64(x[k + lane]) - np.float64(z[k + lane])) * unit
                parts[lane] += gap * gap
        for lane in range(_LANES):
            _two_sum(totals, carries, lane, parts[lane])
    for k in range(whole, d):
        gap = (np.float64(x[k]) - np.float64(z[k])) * unit
        _two_sum(totals, carries, k % _LANES, gap * gap)
    for lane in range(1, _LANES):
        _two_sum(totals, carries, 0, totals[lane])
        carries[0] += carries[lane]
    return totals[0] + carries[0]


@jit_in_order
def _two_sum(totals, carries, lane, value):
    """Add a value to totals[lane], and what is lost by rounding to carries[lane]."""
    before = totals[lane]
    total = before + value
    added = total - before
    carries[lane] += (before - (total - added)) + (value - added)
    totals[lane] = total


@jit_in_order
def centred_rows(X, center, scale, unit, out):
    """Write (X unit - center) scale (m, d) to `out`; return half the squares of its rows (m,).

    The halves are within ten units of those of the rows written.
    """
    halves = np.empty(X.shape[0])
    memory = np.empty((3, _LANES))
    origin = np.zeros(X.shape[1], out.dtype)
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            out[i, k] = (np.float64(X[i, k]) * unit - center[k]) * scale
        halves[i] = 0.5 * _sq_distance(out[i], origin, 1.0, memory)
    return halves
