"""Certified sums of kernels: a group of queries against a tree [SUM-4].

The tree is walked depth first, near nodes first, for a few dozen neighbouring queries at
once. A node is accepted whole if its error is covered, else opened; a leaf that is not
accepted is summed pair by pair. What covers an error:

* `rtol` times the least that the node itself contributes to any query of the group;
* the node's share, by weight, of what earlier nodes have left over: `rtol` times the least
  that is certain to have been summed so far, less the errors already spent;
* the node's share of `atol`.

So the errors never exceed rtol times what is certainly there, for every query of the group,
whatever the data. A node that holds one of the queries itself is opened in any case if that
query is to be left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import compiled, exact_order
from fastmetric.core.exp import exp, exp64
from fastmetric.core.expansion import LOG_FACTORIALS, add_series, log_remainder
from fastmetric.core.kernels import (
    BIWEIGHT,
    COSINE,
    EPANECHNIKOV,
    EXPONENTIAL,
    GAUSSIAN,
    LINEAR,
    exponent,
    has_tails,
    kernel_value,
)
from fastmetric.core.registers import ROWS, sq_distances
from fastmetric.core.tree import DEEPEST

LONGEST = 576  # the largest leaf; a multiple of UNIT
GROUP = 48  # the largest group of queries; a multiple of ROWS

# Relative slack on every quantity that decides: far above the rounding of a few dozen
# operations, far below what it costs.
_SLACK = 1e-12

_OPEN, _CONSTANT, _CENTROID, _SERIES = 0, 1, 2, 3


class Reference(NamedTuple):
    """The points that are summed over, as a tree."""

    tree: tuple  # Tree
    panels: np.ndarray  # (N / width, d, width), the tree's points
    point_weights: np.ndarray  # (N,), float64, in tree order, 0 for padding
    nodes: tuple  # Nodes
    series: tuple  # Series


class Rule(NamedTuple):
    """Which kernel, and how exact."""

    code: int
    factor: float  # s = factor * squared distance
    rtol: float
    atol: float


class Queries(NamedTuple):
    """Query points in an order in which neighbours are near."""

    rows: np.ndarray  # (m, d)
    selves: np.ndarray  # (m,): the point of the tree that is the query itself; -1: none
    starts: np.ndarray  # (groups,): a group is a range of at most GROUP queries
    stops: np.ndarray
    shifts: np.ndarray  # (groups,): sums are times exp(shift)


class _Group(NamedTuple):
    """One group at work."""

    lower: np.ndarray  # (d,), its box
    upper: np.ndarray
    first_self: int  # the range of its own points among the reference points
    last_self: int
    cols: np.ndarray  # (d, m): the queries, float64
    strips: np.ndarray  # (GROUP / ROWS, d, ROWS)
    selves: np.ndarray  # (m,)
    shift: float
    totals: np.ndarray  # (m,): the sums so far
    tile: np.ndarray  # scratch
    scratch: np.ndarray
    v: np.ndarray  # (d, m)


@compiled
def _make_group(queries, g, ref):
    """Return group g, nothing summed yet."""
    start, stop = queries.starts[g], queries.stops[g]
    m, d = stop - start, queries.rows.shape[1]
    rows = queries.rows[start:stop]
    lower, upper = np.empty(d), np.empty(d)
    cols = np.empty((d, m))
    strips = np.zeros(((m + ROWS - 1) // ROWS, d, ROWS), queries.rows.dtype)
    for k in range(d):
        lower[k], upper[k] = rows[0, k], rows[0, k]
        for i in range(m):
            x = rows[i, k]
            cols[k, i] = x
            strips[i // ROWS, k, i % ROWS] = x
            lower[k], upper[k] = min(lower[k], x), max(upper[k], x)
    selves = queries.selves[start:stop]
    first, last = np.int64(2**62), np.int64(-1)
    for i in range(m):
        if selves[i] >= 0:
            first, last = min(first, selves[i]), max(last, selves[i])
    series = ref.series
    scratch = np.empty((series.degree + 1 + series.prefix_degrees.shape[1], m))
    tile = np.empty(GROUP * LONGEST, queries.rows.dtype)
    return _Group(
        lower,
        upper,
        first,
        last,
        cols,
        strips,
        selves,
        queries.shifts[g],
        np.zeros(m),
        tile,
        scratch,
        np.empty((d, m)),
    )


@exact_order
def _box_distances(group, lower, upper):
    """Return bounds of the squared distances between the group's box and another."""
    near, far = 0.0, 0.0
    for k in range(lower.size):
        gap = max(0.0, lower[k] - group.upper[k], group.lower[k] - upper[k])
        span = max(upper[k] - group.lower[k], group.upper[k] - lower[k])
        near += gap * gap
        far += span * span
    return near * (1 - _SLACK), far * (1 + _SLACK)


@exact_order
def _center_distance(group, center):
    """Return the least distance of the group's box to a point."""
    near = 0.0
    for k in range(center.size):
        gap = max(0.0, center[k] - group.upper[k], group.lower[k] - center[k])
        near += gap * gap
    return np.sqrt(near)


@exact_order
def _shifted_kernel(code, s, shift):
    """Return exp(shift) k(s), float64; the shift is 0 unless the kernel has tails."""
    if has_tails(code):
        return exp64(shift - exponent(code, s))
    return np.float64(kernel_value(code, s))


@exact_order
def _curvature(code, s_lo, s_hi, k_lo):
    """Return exp(shift) times a bound of the kernel's Hessian in q/h over s_lo..s_hi.

    Infinity where there is none; k_lo = exp(shift) k(s_lo) [SUM-2], [SUM-2b].
    """
    if code == GAUSSIAN:  # s = r^2 / 2
        t = min(max(3.0, 2 * s_lo), 2 * s_hi)
        at_top = (t - 1) * exp64(s_lo - t / 2)
        return k_lo * max(1.0, abs(2 * s_lo - 1), at_top)
    if code == EXPONENTIAL:
        r = np.sqrt(s_lo)
        return k_lo * max(1.0, 1 / r) if r > 0 else np.inf
    if s_hi >= 1:
        return np.inf
    if code == BIWEIGHT:
        return max(4 * (1 - s_lo), 12 * s_hi - 4)
    if code == COSINE:
        return np.pi**2 / 4
    if code == LINEAR:
        return 1 / np.sqrt(s_lo) if s_lo > 0 else np.inf
    return 0.0  # tophat is constant; the Epanechnikov kernel's is exact by the scatter


@exact_order
def _judge(group, ref, rule, node, allowed, k_lo, s_lo, s_hi):
    """Return (how, degree, error): the cheapest way to accept a node, or to open it."""
    nodes = ref.nodes
    weight, scatter = nodes.weights[node], nodes.scatters[node]
    if scatter == 0.0:
        return _CENTROID, 1, 0.0
    inverse_h2 = 2 * rule.factor if rule.code == GAUSSIAN else rule.factor
    spread = 0.5 * scatter * inverse_h2
    error = spread * _curvature(rule.code, s_lo, s_hi, k_lo) * (1 + _SLACK)
    if error <= allowed:
        return _CENTROID, 1, error
    if rule.code != GAUSSIAN or nodes.coefficients.shape[1] == 0:
        return _OPEN, 0, 0.0
    inverse_h = np.sqrt(inverse_h2)
    radius = nodes.radii[node] * inverse_h
    if radius > 3.0:
        return _OPEN, 0, 0.0
    center = _center_distance(group, nodes.centers[node]) * inverse_h
    r = max(np.sqrt(2 * s_lo), center - radius) * (1 - _SLACK)
    highest = ref.series.degree
    log_spread = np.log(2 * spread) + group.shift
    log_radius = np.log(radius)
    log_allowed = np.log(allowed) if allowed > 0 else -np.inf
    # The series adds and subtracts terms of up to exp(radius * r) of the field's size.
    reach = max(center, radius)
    rounding = 1e-14 * weight * exp64(group.shift + min(600.0, radius * reach - reach * reach / 2))
    for p in range(2, highest + 1):
        log_error = (
            log_spread
            + (p - 1) * log_radius
            - LOG_FACTORIALS[p + 1]
            + log_remainder(ref.series, p + 1, r)
        )
        if log_error <= log_allowed:
            error = exp64(log_error) * (1 + _SLACK) + rounding
            if error <= allowed:
                return _SERIES, p, error
    return _OPEN, 0, 0.0


@compiled
def _add_leaf(group, ref, rule, start, stop):
    """Add the points start:stop of the tree, pair by pair."""
    width = ref.panels.shape[2]
    padded = (stop - start + width - 1) // width * width
    n_strips = group.strips.shape[0]
    tile = group.tile[: n_strips * ROWS * padded].reshape(n_strips * ROWS, padded)
    sq_distances(group.strips, 0, ref.panels, start, tile)
    if start <= group.last_self and group.first_self < stop:
        for i in range(group.selves.size):
            if start <= group.selves[i] < stop:
                tile[i, group.selves[i] - start] = np.inf
    _apply_kernel(rule.code, group.tile[: tile.size], rule.factor, group.shift)
    weights = ref.point_weights[start:stop]
    for i in range(group.totals.size):
        group.totals[i] += _weighted_sum(tile[i, : stop - start], weights)


@compiled
def _apply_kernel(code, x, factor, shift):
    """Turn squared distances x into exp(shift) k(factor * x), in place.

    A whole tile in one loop: rows of a few dozen would not fill the pipeline of exp.
    """
    scale, lift = x.dtype.type(factor), x.dtype.type(shift)
    if code == GAUSSIAN:
        for j in range(x.size):
            x[j] = exp(lift - scale * x[j])
    elif code == EXPONENTIAL:
        for j in range(x.size):
            x[j] = exp(lift - np.sqrt(scale * x[j]))
    else:
        for j in range(x.size):
            x[j] = kernel_value(code, scale * x[j])


@compiled
def _weighted_sum(values, weights):
    """Return sum w v, in the precision of the values."""
    total = values.dtype.type(0)
    for j in range(values.size):
        total += values.dtype.type(weights[j]) * values[j]
    return total


@compiled
def _add_centroid(group, ref, rule, node):
    """Add a node as if all its weight sat at its centre (Epanechnikov: exactly)."""
    center, weight, cols = ref.nodes.centers[node], ref.nodes.weights[node], group.cols
    s = group.v[0]
    s[:] = 0
    for k in range(center.size):
        x, row = center[k], cols[k]
        for i in range(s.size):
            s[i] += (row[i] - x) * (row[i] - x)
    totals, factor, shift = group.totals, rule.factor, group.shift
    if rule.code == GAUSSIAN:
        for i in range(s.size):
            totals[i] += weight * exp(shift - factor * s[i])
        return
    correction = ref.nodes.scatters[node] * factor if rule.code == EPANECHNIKOV else 0.0
    for i in range(s.size):
        totals[i] += weight * _shifted_kernel(rule.code, factor * s[i], shift) - correction


@compiled
def _add_field(group, ref, rule, node, degree):
    """Add a node by its series."""
    center, inverse_h = ref.nodes.centers[node], np.sqrt(2 * rule.factor)
    for k in range(center.size):
        x, row, out = center[k], group.cols[k], group.v[k]
        for i in range(out.size):
            out[i] = (row[i] - x) * inverse_h
    add_series(
        ref.series,
        degree,
        ref.nodes.coefficients[node],
        group.v,
        group.shift,
        group.scratch,
        group.totals,
    )


@compiled
def _least(totals):
    """Return the smallest total."""
    least = totals[0]
    for i in range(1, totals.size):
        least = min(least, totals[i])
    return least


@exact_order
def _sum_group(group, ref, rule):
    """Sum a group over the whole tree; return the error that each of its sums may have."""
    tree, nodes = ref.tree, ref.nodes
    stack = np.empty(DEEPEST, np.int64)
    stack[0], height = 0, 1
    spent, certain, left = 0.0, 0.0, nodes.weights[0]
    atol = rule.atol * exp64(min(group.shift, 700.0))
    while height > 0:
        height -= 1
        node = stack[height]
        weight = nodes.weights[node]
        sq_lo, sq_hi = _box_distances(group, tree.lower[node], tree.upper[node])
        s_lo, s_hi = rule.factor * sq_lo, rule.factor * sq_hi
        first = tree.children[node]
        start, stop = tree.starts[node], tree.stops[node]
        holds_self = start <= group.last_self and group.first_self < stop
        if s_lo >= 1 and not has_tails(rule.code):
            left -= weight
            continue
        how = _OPEN
        if not holds_self:
            k_lo = _shifted_kernel(rule.code, s_lo, group.shift)
            k_hi = _shifted_kernel(rule.code, s_hi, group.shift)
            saved = max(0.0, rule.rtol * certain + atol - spent)
            allowed = rule.rtol * weight * k_hi + saved * min(1.0, weight / left)
            error = 0.5 * weight * (k_lo - k_hi) * (1 + _SLACK)
            if error <= allowed:
                how = _CONSTANT
                for i in range(group.totals.size):
                    group.totals[i] += 0.5 * weight * (k_lo + k_hi)
            else:
                how, degree, error = _judge(group, ref, rule, node, allowed, k_lo, s_lo, s_hi)
                if how == _CENTROID:
                    _add_centroid(group, ref, rule, node)
                elif how == _SERIES:
                    _add_field(group, ref, rule, node, degree)
            if how != _OPEN:
                spent += error
                certain += weight * k_hi * (1 - _SLACK)
                left -= weight
        if how == _OPEN and first >= 0:
            height = _push(stack, height, group, tree, first)
            continue
        if how == _OPEN:
            _add_leaf(group, ref, rule, start, stop)
            left -= weight
        certain = max(certain, _least(group.totals) * (1 - _SLACK) - spent)
    return spent


@compiled
def _push(stack, height, group, tree, first):
    """Put two children on the stack, the nearer one on top; return the new height."""
    a, _ = _box_distances(group, tree.lower[first], tree.upper[first])
    b, _ = _box_distances(group, tree.lower[first + 1], tree.upper[first + 1])
    if a == b:
        a = _center_gap(group, tree, first)
        b = _center_gap(group, tree, first + 1)
    if a <= b:
        stack[height], stack[height + 1] = first + 1, first
    else:
        stack[height], stack[height + 1] = first, first + 1
    return height + 2


@compiled
def _center_gap(group, tree, node):
    """Return the squared distance between the middles of two boxes, times four."""
    total = 0.0
    for k in range(group.lower.size):
        gap = tree.lower[node, k] + tree.upper[node, k] - group.lower[k] - group.upper[k]
        total += gap * gap
    return total


@compiled
def group_sums(queries, ref, rule, exact, first, last):
    """Return the sums of the groups first:last (m,) and the error of each group.

    `exact`: every pair is summed.
    """
    sums = np.empty(queries.stops[last - 1] - queries.starts[first])
    errors = np.zeros(last - first)
    for g in range(first, last):
        group = _make_group(queries, g, ref)
        if exact:
            for start in range(0, ref.tree.rows.shape[0], LONGEST):
                stop = min(start + LONGEST, ref.tree.rows.shape[0])
                _add_leaf(group, ref, rule, start, stop)
        else:
            errors[g - first] = _sum_group(group, ref, rule)
        at = queries.starts[g] - queries.starts[first]
        sums[at : at + group.totals.size] = group.totals
    return sums, errors


@compiled
def largest_exponents(queries, ref, rule, log_weights):
    """Return max_j (log w_j - t_j) with k = exp(-t), over the points but the query, (m,)."""
    largest = np.empty(queries.rows.shape[0])
    for i in range(largest.size):
        largest[i] = _largest_exponent(ref, rule, queries.rows[i], queries.selves[i], log_weights)
    return largest


@compiled
def _largest_exponent(ref, rule, q, self_index, log_weights):
    """Return max_j (log w_j - t_j) over the points but `self_index`.

    Depth first, near nodes first; a node cannot beat its weight at its nearest corner.
    """
    tree, best = ref.tree, -np.inf
    stack = np.empty(DEEPEST, np.int64)
    stack[0], height = 0, 1
    while height > 0:
        height -= 1
        node = stack[height]
        bound = np.log(ref.nodes.weights[node]) - exponent(
            rule.code, rule.factor * _point_distance(tree, node, q)
        )
        if bound < best:
            continue
        first = tree.children[node]
        if first >= 0:
            a, b = _point_distance(tree, first, q), _point_distance(tree, first + 1, q)
            near = first if a <= b else first + 1
            stack[height], stack[height + 1] = 2 * first + 1 - near, near
            height += 2
            continue
        for j in range(tree.starts[node], tree.stops[node]):
            if j != self_index:
                sq = 0.0
                for k in range(q.size):
                    gap = np.float64(q[k]) - np.float64(tree.rows[j, k])
                    sq += gap * gap
                best = max(best, log_weights[j] - exponent(rule.code, rule.factor * sq))
    return best


@compiled
def _point_distance(tree, node, q):
    """Return the squared distance of a point to a node's box, rounded down."""
    total = 0.0
    for k in range(q.size):
        gap = max(
            0.0, np.float64(tree.lower[node, k]) - q[k], q[k] - np.float64(tree.upper[node, k])
        )
        total += gap * gap
    return total * (1 - _SLACK)
