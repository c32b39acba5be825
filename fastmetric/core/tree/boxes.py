"""Distances of boxes, in two families that must not be mixed.

Search: `least_sq_distance` and `most_sq_distance` are compared with distances of points, and the
comparison must be exact in floating point. They take the same operations in the same order and
precision as `panel_sq_distances`, each rounded by itself, and rounding is monotone
(`core.tree.nearest_search` has the argument).

Sums: all other functions. They are in float64, as one of the boxes or points given is, and may be
fused; whoever compares them adds slack for their rounding, which `box_distances` contains.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit, jit_in_order
from fastmetric.core.error_bounds import SLACK
from fastmetric.core.vector.panel_scan import plus_square


@jit_in_order
def least_sq_distance(tree, node, point):
    """Return a lower bound of the squared distances of a node's points to `point`."""
    lower, upper = tree.lower[node], tree.upper[node]
    zero = point.dtype.type(0)
    total = zero
    for k in range(point.size):
        gap = max(lower[k] - point[k], point[k] - upper[k])
        total = plus_square(total, max(gap, zero))
    return total


@jit_in_order
def most_sq_distance(tree, node, point):
    """Return an upper bound of the squared distances of a node's points to `point`."""
    lower, upper = tree.lower[node], tree.upper[node]
    total = point.dtype.type(0)
    for k in range(point.size):
        total = plus_square(total, max(point[k] - lower[k], upper[k] - point[k]))
    return total


@jit_in_order
def box_distances(low, high, lower, upper):
    """Return bounds of the squared distances between two boxes."""
    near, far = 0.0, 0.0
    for k in range(lower.size):
        gap = max(0.0, lower[k] - high[k], low[k] - upper[k])
        span = max(upper[k] - low[k], high[k] - lower[k])
        near += gap * gap
        far += span * span
    return near * (1 - SLACK), far * (1 + SLACK)


@jit_in_order
def box_gap(low, high, lower, upper):
    """Return the least squared distance between two boxes, without slack."""
    near = 0.0
    for k in range(lower.size):
        gap = max(0.0, lower[k] - high[k], low[k] - upper[k])
        near += gap * gap
    return near


@jit_in_order
def center_distance(low, high, center):
    """Return the least distance of a box to a point."""
    near = 0.0
    for k in range(center.size):
        gap = max(0.0, center[k] - high[k], low[k] - center[k])
        near += gap * gap
    return np.sqrt(near)


@jit
def middle_gap(low, high, lower, upper):
    """Return the squared distance between the middles of two boxes, times four."""
    total = 0.0
    for k in range(low.size):
        gap = lower[k] + upper[k] - low[k] - high[k]
        total += gap * gap
    return total


@jit
def corner_distance(tree, node, center):
    """Return the distance of the centre to the farthest corner of the box."""
    sq = 0.0
    for k in range(center.size):
        gap = max(tree.upper[node, k] - center[k], center[k] - tree.lower[node, k])
        sq += gap * gap
    return np.sqrt(sq)
