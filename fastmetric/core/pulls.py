"""The pair scatter [CCK-6] of a group of rows over trees: the gradient of the sums.

The walk is that of `core.sums`, and a node is scattered in the way it was summed: pair by
pair, or as one point at its centre, whose pull is shared by its points in the end; a constant
pulls nothing. So the result is the derivative of the sums as they were approximated.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import compiled
from fastmetric.core.exp import exp
from fastmetric.core.groups import make_group
from fastmetric.core.registers import ROWS, sq_distances
from fastmetric.core.sums import CENTROID, OPEN, sum_group


@compiled
def group_pulls(queries, ref, cols, rule, roots, log_totals, strengths, first, last):
    """Return the scatter of the groups first:last over the trees of `roots`.

    The weight of a pair is strengths[i] exp(-s_ij - log_totals[i]). Returns the pulls at the
    queries (m, d), at the reference points (d, N) and at the nodes (nodes, d); `cols` (d, N)
    are the reference points.
    """
    d = queries.rows.shape[1]
    begin = queries.starts[first]
    at_queries = np.zeros((queries.stops[last - 1] - begin, d))
    at_points, at_nodes = np.zeros(cols.shape), np.zeros((ref.tree.starts.size, d))
    visits = np.empty(ref.tree.starts.size, np.int64)
    for g in range(first, last):
        start, stop = queries.starts[g], queries.stops[g]
        group = make_group(queries, g, ref)
        _, count = sum_group(group, ref, rule, roots, visits)
        lifts, powers = -log_totals[start:stop], strengths[start:stop]
        mine = at_queries[start - begin : stop - begin]
        for visit in visits[:count]:
            node, how = visit // 4, visit % 4
            if how == CENTROID:
                _pull_center(group, ref, rule, node, lifts, powers, mine, at_nodes)
            elif how == OPEN:
                _pull_leaf(group, ref, cols, rule, node, lifts, powers, mine, at_points)
    return at_queries, at_points, at_nodes


@compiled
def _pull_center(group, ref, rule, node, lifts, powers, mine, at_nodes):
    """Scatter a node as one point."""
    center, weight = ref.nodes.centers[node], ref.nodes.weights[node]
    for i in range(powers.size):
        if powers[i] == 0:
            continue
        s = 0.0
        for k in range(center.size):
            gap = group.cols[k, i] - center[k]
            s += gap * gap
        w = powers[i] * weight * exp(lifts[i] - rule.factor * s)
        for k in range(center.size):
            t = w * (group.cols[k, i] - center[k])
            mine[i, k] += t
            at_nodes[node, k] -= t


@compiled
def _pull_leaf(group, ref, cols, rule, node, lifts, powers, mine, at_points):
    """Scatter a leaf pair by pair."""
    start, stop = ref.tree.starts[node], ref.tree.stops[node]
    width = ref.panels.shape[2]
    padded = (stop - start + width - 1) // width * width
    height = group.strips.shape[0] * ROWS
    tile = group.tile[: height * padded].reshape(height, padded)
    sq_distances(group.strips, 0, ref.panels, start, tile)
    kind = tile.dtype.type
    for i in range(powers.size):
        if powers[i] == 0:
            continue
        if start <= group.selves[i] < stop:
            tile[i, group.selves[i] - start] = np.inf
        weights = tile[i, : stop - start]
        lift, power, factor = kind(lifts[i]), kind(powers[i]), kind(rule.factor)
        for j in range(weights.size):
            weights[j] = power * exp(lift - factor * weights[j])
        for k in range(cols.shape[0]):
            col, out, z, total = (
                cols[k, start:stop],
                at_points[k, start:stop],
                kind(group.cols[k, i]),
                0.0,
            )
            for j in range(weights.size):
                t = weights[j] * (z - col[j])
                total += t
                out[j] -= t
            mine[i, k] += total


@compiled
def share_out(tree, point_weights, nodes, at_nodes, at_points):
    """Hand the pulls at all nodes down to their points, by weight, in place."""
    for node in range(tree.starts.size):  # parents come before their children
        child, pull = tree.children[node], at_nodes[node] / nodes.weights[node]
        if child >= 0:
            at_nodes[child] += nodes.weights[child] * pull
            at_nodes[child + 1] += nodes.weights[child + 1] * pull
        else:
            for j in range(tree.starts[node], tree.stops[node]):
                for k in range(pull.size):
                    at_points[k, j] += point_weights[j] * pull[k]
