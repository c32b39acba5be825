"""Sums of Gaussians together with their first moments: the step of mean shift [SHI-1].

The interaction list of a group is that of `core.walk.summation`, and a node is added in the way it
was summed: pair by pair, by its series, as its centroid, or in the local expansion of a query cell.
The step is therefore the gradient of the approximated sums, except for constants that are
negligible.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit, uncounted
from fastmetric.core.far_field.evaluation import HERMITE, TAYLOR, contracted, fill, half_sq_norms
from fastmetric.core.vector.compensated_sums import add_to
from fastmetric.core.vector.exp import exp
from fastmetric.core.walk.interaction_lists import CENTROID, PAIRS
from fastmetric.core.walk.query_cells import make_query_cells
from fastmetric.core.walk.query_groups import (
    add_far_field,
    add_leaf,
    add_local,
    make_group,
    total_of,
)


@jit
def replay_mean_shift(queries, walk, lists):
    """Return sum_j w_j k_j (x_j - q) / sum_j w_j k_j (m, d) of groups, along their lists."""
    queries, walk, lists = uncounted((queries, walk, lists))
    ref, rule = walk.ref, walk.rule
    first, counts, visits, kept = lists
    last, used = first + len(kept), 0
    begin, end = queries.starts[first], queries.stops[last - 1]
    steps = np.zeros((end - begin, queries.rows.shape[1]))
    cells = make_query_cells(queries, first, last, counts.size > len(kept))
    for c in range(counts.size):
        path, g = visits[used : used + counts[c]], cells.firsts[c]
        used += counts[c]
        if cells.lasts[c] - g > 1:
            continue
        group = make_group(queries, cells, c, ref)
        moments = np.zeros(group.cols.shape)
        local = kept[g - first]
        if np.any(local[1:]):
            _mean_shift_local(group, ref, rule, cells.centers[c], local, moments)
        else:
            group.totals[:] += local[0]
        _mean_shift_path(group, ref, rule, path, moments)
        write_steps(group, moments, steps, queries.starts[g] - begin)
    return steps


@jit
def write_steps(group, moments, steps, at):
    """Write the steps of a group from its sums and moments (d, m) to steps[at:]."""
    for i in range(group.totals.size):
        total = total_of(group, i)
        if total > 0:  # else the sum underflowed: the query is repeated alone
            for k in range(steps.shape[1]):
                steps[at + i, k] = moments[k, i] / total


@jit
def _mean_shift_path(group, ref, rule, path, moments):
    """Add the nodes of the group's own interaction list."""
    group = uncounted(group)
    for visit in path:
        node, code = visit[0], visit[1]
        if code == PAIRS:
            start, stop = ref.tree.starts[node], ref.tree.stops[node]
            add_mean_shift_leaf(group, ref, rule, start, stop, moments)
        elif code == CENTROID:
            _mean_shift_centroid(group, ref, rule, node, moments)
        elif code > CENTROID:
            _mean_shift_far_field(group, ref, rule, node, code, moments)


@jit
def _mean_shift_local(group, ref, rule, center, local, moments):
    """Add the local expansion inherited from cells, and h times its slope."""
    add_local(group, ref, rule, center, local)  # the basis stays in the scratch
    h, series = 1 / np.sqrt(2 * rule.factor), ref.series
    for k in range(moments.shape[0]):
        slopes = contracted(series, series.degree, local, TAYLOR, k, group.scratch)
        for i in range(slopes.size):
            moments[k, i] += h * slopes[i]


@jit
def add_mean_shift_leaf(group, ref, rule, start, stop, moments):
    """Add the points start:stop of the tree, pair by pair."""
    add_leaf(group, ref, rule, start, stop)
    # The kernels are left behind in the tile.
    n, width, d = stop - start, ref.panels.shape[2], moments.shape[0]
    padded = (n + width - 1) // width * width
    points, weights = ref.tree.rows[start:stop], ref.point_weights[start:stop]
    cols = np.empty((d, n), points.dtype)  # contiguous, for all queries
    for k in range(d):
        for j in range(n):
            cols[k, j] = points[j, k]
    for i in range(group.totals.size):
        shares = group.tile[i * padded : i * padded + n]
        for j in range(n):
            shares[j] *= shares.dtype.type(weights[j])
        for k in range(d):
            moments[k, i] += _moment(shares, cols[k], group.cols[k, i])


@jit
def _moment(shares, x, q):
    """Return sum_j share_j (x_j - q) of one coordinate, in the precision of the shares."""
    total, here = shares.dtype.type(0), shares.dtype.type(q)
    for j in range(shares.size):
        total += shares[j] * (x[j] - here)
    return total


@jit
def _mean_shift_centroid(group, ref, rule, node, moments):
    """Add a node as if all its weight were at its centre."""
    center, weight = ref.nodes.centers[node], ref.nodes.weights[node]
    for i in range(group.totals.size):
        sq = 0.0
        for k in range(center.size):
            gap = center[k] - group.cols[k, i]
            sq += gap * gap
        share = weight * exp(group.shift - rule.factor * sq)
        add_to(group.totals, group.carries, i, share)
        for k in range(center.size):
            moments[k, i] += share * (center[k] - group.cols[k, i])


@jit
def _mean_shift_far_field(group, ref, rule, node, degree, moments):
    """Add a node by its series: w k (x - q) = h w times the derivative of k in q / h."""
    add_far_field(group, ref, rule, node, degree)
    h = 1 / np.sqrt(2 * rule.factor)
    lifts = np.empty(group.totals.size)
    exponents = half_sq_norms(group.v, group.scratch)
    for i in range(lifts.size):
        lifts[i] = h * exp(group.shift - exponents[i])
    series, coefficients = ref.series, ref.nodes.coefficients[node]
    fill(series, degree + 1, group.v, HERMITE, group.scratch)
    for k in range(moments.shape[0]):
        slopes = contracted(series, degree, coefficients, HERMITE, k, group.scratch)
        for i in range(lifts.size):
            moments[k, i] -= lifts[i] * slopes[i]
