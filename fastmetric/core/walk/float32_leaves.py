"""Leaves summed in float32, where the tolerance is far above its rounding [SUM-8].

Twice as many pairs fit into a vector, and the exponential is shorter. `core.error_bounds` has the
error.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.error_bounds import FLOAT32_RADIUS, float32_tail_error
from fastmetric.core.kernels import GAUSSIAN, apply_kernel
from fastmetric.core.tree.node_moments import around
from fastmetric.core.vector.compensated_sums import add_to
from fastmetric.core.vector.register_blocks import ROWS, panel_width, sq_distances
from fastmetric.core.walk.query_groups import empty_tile, leave_out_selves, place

WIDTH = panel_width(np.dtype(np.float32))


@jit
def write_float32(ref, inverse_h, panels, first, last):
    """Write the leaves among the nodes first:last into panels (N / WIDTH, d, WIDTH)."""
    tree = ref.tree
    for node in range(first, last):
        if tree.children[node] < 0:
            start, v = tree.starts[node], around(tree, node, ref.nodes.centers[node], inverse_h)
            for k in range(v.shape[0]):
                for i in range(v.shape[1]):
                    panels[(start + i) // WIDTH, k, (start + i) % WIDTH] = v[k, i]


@jit
def float32_tail(group, ref, rule, node, s_hi):
    """Return the error of a leaf in float32 beyond its rounding; infinity if it does not apply."""
    if rule.in_float32 == 0 or group.shift != 0:
        return np.inf
    if ref.nodes.radii[node] * np.sqrt(2 * rule.factor) > FLOAT32_RADIUS:
        return np.inf
    return float32_tail_error(ref.nodes.weights[node], s_hi)


@jit
def add_float32_leaf(group, ref, rule, node):
    """Add a leaf pair by pair; for the Gaussian, not shifted."""
    place(group, rule, ref.nodes.centers[node])
    strips = group.float32_strips
    for k in range(group.v.shape[0]):
        row = group.v[k]
        for i in range(row.size):
            strips[i // ROWS, k, i % ROWS] = row[i]
    start, stop = ref.tree.starts[node], ref.tree.stops[node]
    panels = ref.float32_panels
    tile = empty_tile(strips, panels, start, stop, group.tile.view(np.float32))
    sq_distances(strips, 0, panels, start, tile)
    leave_out_selves(group, start, stop, tile)
    apply_kernel(GAUSSIAN, tile.reshape(tile.size), 0.5, 0.0)
    weights, sums = ref.point_weights[start:stop], group.v[0]
    for i in range(sums.size):
        sums[i] = _weighted_sum(tile[i, : weights.size], weights)
    for i in range(sums.size):
        add_to(group.totals, group.carries, i, sums[i])


@jit
def _weighted_sum(values, weights):
    """Return sum w v in float32, in any order."""
    total = values.dtype.type(0)
    for j in range(values.size):
        total += values.dtype.type(weights[j]) * values[j]
    return np.float64(total)
