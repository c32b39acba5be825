"""The pair scatter [CCK-6] of a group of rows over trees: the gradient of the sums.

The interaction lists are those of `core.walk.summation`, and each node is differentiated in the way
it was summed: pair by pair, by its series (the centroid is one of degree 1), or by the local
expansion of a query cell. A node replaced by a constant is differentiated as its centroid, or not
at all if it is negligible. What groups and cells contribute to a node is collected as the adjoint
of the node's coefficients; at the end the adjoints are passed down the tree and become gradients at
the points of the leaves. The result is the derivative of the approximated sums, except for
constants.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, uncounted
from fastmetric.core.far_field.evaluation import (
    HERMITE,
    TAYLOR,
    add_moments,
    contracted,
    fill,
    half_sq_norms,
    scratch_rows,
)
from fastmetric.core.far_field.expansions import local_to_child, moments_to_local, moments_to_parent
from fastmetric.core.kernels import GAUSSIAN, smooth_fall
from fastmetric.core.tree.node_moments import around
from fastmetric.core.vector.exp import exp
from fastmetric.core.walk.interaction_lists import CENTROID, PAIRS
from fastmetric.core.walk.query_cells import halves, make_query_cells
from fastmetric.core.walk.query_groups import distance_tile, make_group, place


class Sources(NamedTuple):
    """What rows scatter with: a pair weighs strength_i w_j -k'(s_ij) / exp(log_total_i)."""

    log_totals: np.ndarray  # (m,)
    strengths: np.ndarray  # (m,)


class ReplayScratch(NamedTuple):
    """The weights of a group's queries, and the gradient at them."""

    lifts: np.ndarray  # (m,): minus their log totals
    powers: np.ndarray  # (m,): their strengths
    mine: np.ndarray  # (m, d), added to in place


class Targets(NamedTuple):
    """What is scattered to; added to in place."""

    queries: np.ndarray  # (m, d)
    points: np.ndarray  # (d, N)
    adjoints: np.ndarray  # of the nodes' coefficients


@jit
def replay_gradient(queries, ref, cols, rule, sources, targets, lists):
    """Scatter groups along their interaction lists; `cols` (d, N) are the points."""
    queries, ref, cols, sources = uncounted((queries, ref, cols, sources))
    targets, lists = uncounted((targets, lists))
    first, counts, visits, kept = lists
    cells = make_query_cells(queries, first, first + len(kept), counts.size > len(kept))
    moments, used = _gather(queries, ref, rule, sources, cells), 0
    for c in range(counts.size):
        path = visits[used : used + counts[c]]
        used += counts[c]
        if cells.lasts[c] - cells.firsts[c] > 1:
            _replay_cell(cells.centers[c], ref, rule, moments[c], path, targets)
            continue
        g = cells.firsts[c]
        start, stop = queries.starts[g], queries.stops[g]
        scratch = ReplayScratch(
            -sources.log_totals[start:stop],
            sources.strengths[start:stop],
            targets.queries[start:stop],
        )
        group = make_group(queries, cells, c, ref)
        if moments.size > 0 and np.any(kept[g - first][1:]):  # a constant has no slope
            _replay_local(group, ref, rule, cells.centers[c], kept[g - first], scratch)
        _replay_group(group, ref, cols, rule, scratch, path, targets)


@jit
def _replay_cell(center, ref, rule, moments, path, targets):
    """Scatter a query cell to the nodes that it accepted."""
    moments, inverse_h = uncounted(moments), np.sqrt(2 * rule.factor)
    for visit in path:
        node, code = visit[0], visit[1]
        if code >= CENTROID:
            v = (ref.nodes.centers[node] - center) * inverse_h
            targets.adjoints[node] += moments_to_local(ref.series, code, moments, v)


@jit
def _replay_group(group, ref, cols, rule, scratch, path, targets):
    """Scatter a group to the nodes and leaves of its own path."""
    group = uncounted(group)
    for visit in path:
        node, code = visit[0], visit[1]
        if code >= CENTROID:
            _replay_far_field(group, ref, rule, node, code, scratch, targets.adjoints[node])
        elif code == PAIRS:
            _replay_leaf(group, ref, cols, rule, node, scratch, targets.points)


@jit
def _gather(queries, ref, rule, sources, cells):
    """Return the moments of the strengths around the middle of every cell; none if not needed."""
    count, size = cells.firsts.size, ref.nodes.coefficients.shape[1]
    if size == 0 or cells.levels[count - 1] == 0:
        return np.empty((0, 0))
    moments, series, inverse_h = np.zeros((count, size)), ref.series, np.sqrt(2 * rule.factor)
    for c in range(count - 1, -1, -1):
        if cells.lasts[c] - cells.firsts[c] > 1:
            for half in halves(cells, c):
                step = (cells.centers[half] - cells.centers[c]) * inverse_h
                moments_to_parent(series, moments[half], step, moments[c])
            continue
        group = make_group(queries, cells, c, ref)
        g = cells.firsts[c]
        start, stop = queries.starts[g], queries.stops[g]
        weights = _weights(-sources.log_totals[start:stop], sources.strengths[start:stop])
        place(group, rule, cells.centers[c])
        fill(series, series.degree, group.v, TAYLOR, group.scratch)
        add_moments(series, series.degree, weights, TAYLOR, group.scratch, moments[c])
    return moments


@jit
def _weights(lifts, powers):
    """Return powers exp(lifts), 0 where the power is."""
    weights = np.zeros(powers.size)
    for i in range(powers.size):
        if powers[i] != 0:
            weights[i] = powers[i] * exp(lifts[i])
    return weights


@jit
def _replay_local(group, ref, rule, center, local, scratch):
    """Scatter to the queries the local expansion of their cells: minus its slope."""
    place(group, rule, center)
    weights, h = _weights(scratch.lifts, scratch.powers), 1 / np.sqrt(2 * rule.factor)
    series, mine = ref.series, scratch.mine
    fill(series, series.degree, group.v, TAYLOR, group.scratch)
    for k in range(mine.shape[1]):
        slopes = contracted(series, series.degree, local, TAYLOR, k, group.scratch)
        for i in range(weights.size):
            mine[i, k] -= h * weights[i] * slopes[i]


@jit
def _replay_far_field(group, ref, rule, node, degree, scratch, adjoint):
    """Scatter a node by its series: w (q - x) = h w times minus the derivative in q / h."""
    place(group, rule, ref.nodes.centers[node])
    lifts, powers, mine = scratch
    weights = np.empty(powers.size)
    exponents = half_sq_norms(group.v, group.scratch)
    for i in range(powers.size):
        weights[i] = powers[i] * exp(lifts[i] - exponents[i])
    h = 1 / np.sqrt(2 * rule.factor)
    series, coefficients = ref.series, ref.nodes.coefficients[node]
    fill(series, degree + 1, group.v, HERMITE, group.scratch)
    for k in range(mine.shape[1]):
        slopes = contracted(series, degree, coefficients, HERMITE, k, group.scratch)
        for i in range(powers.size):
            mine[i, k] += h * weights[i] * slopes[i]
    add_moments(series, degree, weights, HERMITE, group.scratch, adjoint)


@jit
def _replay_leaf(group, ref, cols, rule, node, scratch, at_points):
    """Scatter a leaf pair by pair, four rows at a time to reuse what is loaded."""
    lifts, powers, mine = scratch
    start, stop = ref.tree.starts[node], ref.tree.stops[node]
    tile = distance_tile(group, ref, start, stop)
    kind, n = tile.dtype.type, stop - start
    live, count = np.empty(powers.size, np.int64), 0
    for i in range(powers.size):
        lift, power, weights = kind(lifts[i]), kind(powers[i]), ref.point_weights[start:stop]
        if power != 0 and _weigh(rule, lift, power, weights, tile[i, :n]) != 0:
            live[count] = i
            count += 1
    fours = count // 4 * 4
    for k in range(cols.shape[0]):
        col, out, z = cols[k, start:stop], at_points[k, start:stop], group.cols[k]
        for at in range(0, fours, 4):
            a, b, c, d = live[at], live[at + 1], live[at + 2], live[at + 3]
            sums = _replay_four(
                (tile[a, :n], tile[b, :n], tile[c, :n], tile[d, :n]),
                (kind(z[a]), kind(z[b]), kind(z[c]), kind(z[d])),
                col,
                out,
            )
            mine[a, k] += sums[0]
            mine[b, k] += sums[1]
            mine[c, k] += sums[2]
            mine[d, k] += sums[3]
        for at in range(fours, count):
            i = live[at]
            mine[i, k] += _replay_one(tile[i, :n], kind(z[i]), col, out)


@jit
def _replay_four(weights, z, col, out):
    """Subtract four rows' terms w (z - col) from `out` (n,); return the sum of each row's."""
    w0, w1, w2, w3 = weights
    z0, z1, z2, z3 = z
    sum0 = sum1 = sum2 = sum3 = col.dtype.type(0)
    for j in range(col.size):
        t0 = w0[j] * (z0 - col[j])
        t1 = w1[j] * (z1 - col[j])
        t2 = w2[j] * (z2 - col[j])
        t3 = w3[j] * (z3 - col[j])
        sum0 += t0
        sum1 += t1
        sum2 += t2
        sum3 += t3
        out[j] -= (t0 + t1) + (t2 + t3)
    return sum0, sum1, sum2, sum3


@jit
def _replay_one(weights, z, col, out):
    """Subtract one row's terms w (z - col) from `out` (n,); return their sum."""
    total = col.dtype.type(0)
    for j in range(col.size):
        t = weights[j] * (z - col[j])
        total += t
        out[j] -= t
    return total


@jit
def _weigh(rule, lift, power, point_weights, x):
    """Turn squared distances x into the weights of one row's pairs, in place; return their sum."""
    kind = x.dtype.type
    factor, total = kind(rule.factor), kind(0)
    if rule.code == GAUSSIAN:
        for j in range(x.size):
            x[j] = power * kind(point_weights[j]) * exp(lift - factor * x[j])
            total += x[j]
    else:
        strength = power * exp(lift)
        for j in range(x.size):
            x[j] = strength * kind(point_weights[j]) * smooth_fall(rule.code, factor * x[j])
            total += x[j]
    return total


@jit
def share_out(ref, rule, adjoints, at_points, first, last):
    """Turn the adjoints of the nodes first:last into gradients at their points, in place.

    None of these nodes has its parent outside: parents come before their children.
    """
    ref, adjoints, at_points = uncounted((ref, adjoints, at_points))
    tree, centers, inverse_h = ref.tree, ref.nodes.centers, np.sqrt(2 * rule.factor)
    series, step = ref.series, np.empty(centers.shape[1])
    for node in range(first, last):
        child, adjoint = tree.children[node], adjoints[node]
        if not np.any(adjoint):
            continue
        if child >= 0:
            for at in (child, child + 1):
                for k in range(step.size):
                    step[k] = (centers[at, k] - centers[node, k]) * inverse_h
                local_to_child(series, adjoint, step, adjoints[at])
            continue
        start, stop = tree.starts[node], tree.stops[node]
        v = around(tree, node, centers[node], inverse_h)
        scratch = np.empty((scratch_rows(series), v.shape[1]))
        fill(series, series.degree, v, TAYLOR, scratch)
        for k in range(step.size):
            slopes = contracted(series, series.degree, adjoint, TAYLOR, k, scratch)
            for j in range(start, stop):
                at_points[k, j] -= ref.point_weights[j] * slopes[j - start] / inverse_h
