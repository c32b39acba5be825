"""Exact sums over all pairs, block against block: class sums and the pair scatter [CCK-6].

Rows are sorted by class, so that the own class of row i is the slice starts[i]:stops[i] and
no inner loop compares labels. Two families:

* `symmetric_*`: a block of the points against a block of the same points, each unordered
  pair once, kernels unshifted. The fast way, for rows whose sum does not underflow.
* `row_*`: some rows against a block of reference points, each row relative to its own nearest
  neighbour or total: safe in logs at any scale. For a subset of rows, for rows that the
  fast way cannot represent, and for prediction.

Every function returns partial results of one block, in float64; adding them up is the
caller's business.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.kernels import GAUSSIAN, smooth_fall, smooth_value
from fastmetric.core.pairs.pair_tiles import (
    TILE_COLS,
    TILE_ROWS,
    empty_gradient,
    gradient_from,
    gradient_of_few,
    padded,
    smallest,
    tile_gradient,
)
from fastmetric.core.shifted_sums import empty_sums, log_sum, shifted_to
from fastmetric.core.vector.exp import LOWEST, exp
from fastmetric.core.vector.register_blocks import sq_distances

FEW = 16  # a row with fewer than one nonzero weight in so many is scattered pair by pair


class Block(NamedTuple):
    """A range of query rows against a range of reference rows; i0 and j0 multiples of ALIGN."""

    i0: int
    i1: int
    j0: int
    j1: int


class QuerySegments(NamedTuple):
    """Where the rows of a query stand among the class-sorted reference points."""

    starts: np.ndarray  # the own class of row i is starts[i]:stops[i]
    stops: np.ndarray
    self_index: np.ndarray  # row i is the reference point self_index[i], left out (-1: none)


@jit
def _clip(x, lo, hi):
    """Return x moved into lo..hi."""
    return min(max(x, lo), hi)


@jit
def _tile_buffer(points):
    """Return memory for the largest tile."""
    return np.empty(TILE_ROWS * TILE_COLS, points.rows.dtype)


@jit
def _distance_tile(buffer, query, i0, i1, ref, j0, j1):
    """Return the squared distances of query rows i0:i1 to reference points j0:j1, padded."""
    height, width = padded(i1 - i0), padded(j1 - j0)
    tile = buffer[: height * width].reshape(height, width)
    sq_distances(query.strips, i0, ref.panels, j0, tile)
    return tile


@jit
def _symmetric_tile(buffer, points, i0, i1, j0, j1):
    """Return the distance tile of i0:i1 and j0:j1 with every pair j <= i left out."""
    tile = _distance_tile(buffer, points, i0, i1, points, j0, j1)
    for i in range(max(i0, j0), i1):
        tile[i - i0, : min(i + 1, j1) - j0] = np.inf
    return tile


@jit
def _row_tile(buffer, query, ref, block, self_index):
    """Return the distance tile of a block with the points themselves left out."""
    i0, i1, j0, j1 = block
    tile = _distance_tile(buffer, query, i0, i1, ref, j0, j1)
    for i in range(i0, i1):
        if j0 <= self_index[i] < j1:
            tile[i - i0, self_index[i] - j0] = np.inf
    return tile


@jit
def _clear_padding(tile, n_rows, n_cols):
    """Set the weights of padding rows and columns to zero."""
    tile[n_rows:] = 0
    tile[:, n_cols:] = 0


@jit
def _add_kernel(code, s, weight, weights, col_sums):
    """Return sum weights * k(s) and add weight * k(s) to `col_sums`, all (m,)."""
    total = s.dtype.type(0)
    for c in range(s.size):
        k = smooth_value(code, s[c])
        total += weights[c] * k
        col_sums[c] += weight * k
    return total


@jit
def symmetric_sums(points, starts, stops, block, code):
    """Return the kernel sums of one block: own and other class, seen from i and from j.

    Returns own_i, other_i (i1 - i0,) and own_j, other_j (j1 - j0,): sums of k(s_ij) over the
    pairs i < j of the block, times the weight of the other point.
    """
    i0, i1, j0, j1 = block
    own_i, other_i = np.zeros(i1 - i0), np.zeros(i1 - i0)
    own_j, other_j = np.zeros(j1 - j0), np.zeros(j1 - j0)
    buffer = _tile_buffer(points)
    col_own, col_other = np.empty(TILE_COLS, buffer.dtype), np.empty(TILE_COLS, buffer.dtype)
    for ti in range(i0, i1, TILE_ROWS):
        for tj in range(max(j0, ti), j1, TILE_COLS):
            i_end, j_end = min(ti + TILE_ROWS, i1), min(tj + TILE_COLS, j1)
            tile = _symmetric_tile(buffer, points, ti, i_end, tj, j_end)
            n_cols, weights = j_end - tj, points.weights[tj:j_end]
            col_own[:] = 0
            col_other[:] = 0
            for i in range(ti, i_end):
                s, at, w = tile[i - ti], i - i0, points.weights[i]
                lo, hi = _clip(starts[i] - tj, 0, n_cols), _clip(stops[i] - tj, 0, n_cols)
                other_i[at] += _add_kernel(code, s[:lo], w, weights[:lo], col_other[:lo])
                own_i[at] += _add_kernel(code, s[lo:hi], w, weights[lo:hi], col_own[lo:hi])
                other_i[at] += _add_kernel(
                    code, s[hi:n_cols], w, weights[hi:n_cols], col_other[hi:n_cols]
                )
            for c in range(n_cols):
                own_j[tj - j0 + c] += col_own[c]
                other_j[tj - j0 + c] += col_other[c]
    return own_i, other_i, own_j, other_j


@jit
def _weigh(code, s, weight, weights, factor, factors):
    """Turn the distances `s` into -k'(s) (factor * weights + factors * weight), in place."""
    for c in range(s.size):
        s[c] = smooth_fall(code, s[c]) * (factor * weights[c] + factors[c] * weight)


@jit
def symmetric_gradient(points, starts, stops, own_weights, other_weights, block, code):
    """Return the pair scatter of one block [CCK-6], seen from i (i1 - i0, d) and from j.

    The weight of a pair is -k'(s_ij) (p_i w_j + p_j w_i), w the points' weights, p = own_weights
    (n,) within a class and other_weights (n,) between classes: [NCA-1] with other_weights = a,
    own_weights = a - b, w = 1.
    """
    i0, i1, j0, j1 = block
    to_i, to_j = empty_gradient(i1 - i0, points), empty_gradient(j1 - j0, points)
    buffer = _tile_buffer(points)
    for ti in range(i0, i1, TILE_ROWS):
        for tj in range(max(j0, ti), j1, TILE_COLS):
            i_end, j_end = min(ti + TILE_ROWS, i1), min(tj + TILE_COLS, j1)
            tile = _symmetric_tile(buffer, points, ti, i_end, tj, j_end)
            n_cols, weights = j_end - tj, points.weights[tj:j_end]
            own, other = own_weights[tj:j_end], other_weights[tj:j_end]
            for i in range(ti, i_end):
                s, w = tile[i - ti, :n_cols], points.weights[i]
                lo, hi = _clip(starts[i] - tj, 0, n_cols), _clip(stops[i] - tj, 0, n_cols)
                _weigh(code, s[:lo], w, weights[:lo], other_weights[i], other[:lo])
                _weigh(code, s[lo:hi], w, weights[lo:hi], own_weights[i], own[lo:hi])
                _weigh(code, s[hi:], w, weights[hi:], other_weights[i], other[hi:])
            _clear_padding(tile, i_end - ti, n_cols)
            tile_gradient(
                tile,
                points,
                ti,
                gradient_from(to_i, ti - i0),
                points,
                tj,
                gradient_from(to_j, tj - j0),
            )
    return to_i, to_j


@jit
def _add_pairs(code, s, weights, shift, total):
    """Add sum weights * k(s) to a sum total * exp(shift); return (shift, total).

    A compact kernel is not shifted.
    """
    nearest = np.float64(smallest(s))
    if code != GAUSSIAN:
        return 0.0, total + (_weighted_sum(code, s, weights) if nearest < 1 else 0.0)
    if nearest == np.inf or shift + nearest > -LOWEST:
        return shift, total
    shift, total = shifted_to(-nearest, shift, total)
    least, part = s.dtype.type(-shift), s.dtype.type(0)
    for c in range(s.size):
        part += weights[c] * exp(least - s[c])
    return shift, total + part


@jit
def _weighted_sum(code, s, weights):
    """Return sum weights * k(s)."""
    total = s.dtype.type(0)
    for c in range(s.size):
        total += weights[c] * smooth_value(code, s[c])
    return total


@jit
def row_log_sums(query, ref, where, block, code):
    """Return the logs of the weighted sums of one block of rows: own and other class.

    Returns two arrays (i1 - i0,); -inf for an empty sum. `where` are the rows' QuerySegments.
    """
    i0, i1, j0, j1 = block
    shift, total = empty_sums((i1 - i0, 2))
    buffer = _tile_buffer(query)
    for ti in range(i0, i1, TILE_ROWS):
        for tj in range(j0, j1, TILE_COLS):
            i_end, j_end = min(ti + TILE_ROWS, i1), min(tj + TILE_COLS, j1)
            tile = _row_tile(buffer, query, ref, Block(ti, i_end, tj, j_end), where.self_index)
            n_cols, weights = j_end - tj, ref.weights[tj:j_end]
            for i in range(ti, i_end):
                s, at = tile[i - ti, :n_cols], i - i0
                lo = _clip(where.starts[i] - tj, 0, n_cols)
                hi = _clip(where.stops[i] - tj, 0, n_cols)
                shift[at, 0], total[at, 0] = _add_pairs(
                    code, s[lo:hi], weights[lo:hi], shift[at, 0], total[at, 0]
                )
                shift[at, 1], total[at, 1] = _add_pairs(
                    code, s[:lo], weights[:lo], shift[at, 1], total[at, 1]
                )
                shift[at, 1], total[at, 1] = _add_pairs(
                    code, s[hi:], weights[hi:], shift[at, 1], total[at, 1]
                )
    own, other = np.empty(i1 - i0), np.empty(i1 - i0)
    for at in range(i1 - i0):
        own[at] = log_sum(shift[at, 0], total[at, 0])
        other[at] = log_sum(shift[at, 1], total[at, 1])
    return own, other


@jit
def row_class_log_sums(query, ref, offsets, block, code):
    """Return the logs of the weighted sums of one block of rows, per class (i1 - i0, C).

    Class c is the slice offsets[c]:offsets[c + 1] of the reference points; -inf where none
    of its points lies in the block.
    """
    i0, i1, j0, j1 = block
    n_classes = offsets.size - 1
    shift, total = empty_sums((i1 - i0, n_classes))
    buffer = _tile_buffer(query)
    for ti in range(i0, i1, TILE_ROWS):
        for tj in range(j0, j1, TILE_COLS):
            i_end, j_end = min(ti + TILE_ROWS, i1), min(tj + TILE_COLS, j1)
            tile = _distance_tile(buffer, query, ti, i_end, ref, tj, j_end)
            first = np.searchsorted(offsets, tj, side="right") - 1
            last = np.searchsorted(offsets, j_end, side="left")
            for i in range(ti, i_end):
                at = i - i0
                for c in range(first, last):
                    lo, hi = max(offsets[c], tj) - tj, min(offsets[c + 1], j_end) - tj
                    shift[at, c], total[at, c] = _add_pairs(
                        code,
                        tile[i - ti, lo:hi],
                        ref.weights[tj + lo : tj + hi],
                        shift[at, c],
                        total[at, c],
                    )
    for at in range(i1 - i0):
        for c in range(n_classes):
            total[at, c] = log_sum(shift[at, c], total[at, c])
    return total


@jit
def _weigh_shifted(code, s, weights, log_total, factor):
    """Turn the distances `s` into factor * weights * -k'(s) / exp(log_total), in place.

    Returns how many of them are not zero.
    """
    nearest = smallest(s)
    if nearest + log_total > -LOWEST if code == GAUSSIAN else nearest >= 1:
        s[:] = 0
        return 0
    live = 0
    if code == GAUSSIAN:
        for c in range(s.size):
            s[c] = factor * weights[c] * exp(-s[c] - log_total)
            live += s[c] != 0
    else:
        strength = factor * exp(-log_total)
        for c in range(s.size):
            s[c] = strength * weights[c] * smooth_fall(code, s[c])
            live += s[c] != 0
    return live


@jit
def row_gradient(query, ref, where, row_weights, block, code):
    """Return the scatter of one block of rows, seen from i (i1 - i0, d) and from j.

    The weight of a pair is that of row i alone [CCK-5]: -k'(s_ij) w_j / exp(log_totals[i]) times
    own[i] within its class and other[i] outside; `row_weights` are log_totals, own and other, (m,)
    each. Where distances are large, all but a few of the weights are zero, and only those few are
    scattered.
    """
    i0, i1, j0, j1 = block
    log_totals, own_weights, other_weights = row_weights
    to_i, to_j = empty_gradient(i1 - i0, query), empty_gradient(j1 - j0, ref)
    buffer = _tile_buffer(query)
    for ti in range(i0, i1, TILE_ROWS):
        for tj in range(j0, j1, TILE_COLS):
            i_end, j_end = min(ti + TILE_ROWS, i1), min(tj + TILE_COLS, j1)
            tile = _row_tile(buffer, query, ref, Block(ti, i_end, tj, j_end), where.self_index)
            n_cols, left = j_end - tj, 0
            weights, to_cols = ref.weights[tj:j_end], gradient_from(to_j, tj - j0)
            for i in range(ti, i_end):
                s = tile[i - ti, :n_cols]
                lo = _clip(where.starts[i] - tj, 0, n_cols)
                hi = _clip(where.stops[i] - tj, 0, n_cols)
                total, own, other = log_totals[i], own_weights[i], other_weights[i]
                live = _weigh_shifted(code, s[:lo], weights[:lo], total, other)
                live += _weigh_shifted(code, s[lo:hi], weights[lo:hi], total, own)
                live += _weigh_shifted(code, s[hi:], weights[hi:], total, other)
                if FEW * live < n_cols:
                    if live > 0:
                        gradient_of_few(s, query, i, gradient_from(to_i, i - i0), ref, tj, to_cols)
                else:
                    left += live
            if left > 0:
                _clear_padding(tile, i_end - ti, n_cols)
                tile_gradient(tile, query, ti, gradient_from(to_i, ti - i0), ref, tj, to_cols)
    return to_i, to_j
