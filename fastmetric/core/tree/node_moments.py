"""What a sum over a node needs to know of its points: weight, centre, spread, moments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, uncounted
from fastmetric.core.error_bounds import SLACK, center_offset
from fastmetric.core.far_field.evaluation import TAYLOR, add_moments, fill, scratch_rows
from fastmetric.core.far_field.expansions import moments_to_parent
from fastmetric.core.tree.boxes import corner_distance
from fastmetric.core.vector.compensated_sums import add_to

WIDEST = 3.0  # a series is not worth having around a node of a larger radius, in h


class Nodes(NamedTuple):
    """Weighted summaries of the m nodes of a tree, float64.

    A mean of squares is kept, not their weighted sum: in units of the bandwidth it underflows only
    where points are closer than anything that a kernel resolves, whatever the weights.
    """

    weights: np.ndarray  # (m,), rounded once
    carries: np.ndarray  # (m,): what the weights have lost by rounding
    centers: np.ndarray  # (m, d), weighted centroids
    spreads: np.ndarray  # (m,): the mean of |x - c|^2
    radii: np.ndarray  # (m,): an upper bound of |x - c|; 0: all points are in one place
    offsets: np.ndarray  # (m,): an upper bound of the rounding of the centre
    coefficients: np.ndarray  # (m, C) of the series [SUM-6]; C = 0: none


def empty_nodes(m: int, d: int, n_coefficients: int) -> Nodes:
    """Return memory for the summaries of m nodes."""
    return Nodes(
        np.empty(m),
        np.empty(m),
        np.empty((m, d)),
        np.empty(m),
        np.empty(m),
        np.empty(m),
        np.empty((m, n_coefficients)),
    )


@jit
def locate_nodes(tree, point_weights, nodes, first, last):
    """Fill in all but the coefficients of the nodes first:last, which contain all their children.

    From the leaves up: children come after their parents.
    """
    tree, point_weights, nodes = uncounted((tree, point_weights, nodes))
    for node in range(last - 1, first - 1, -1):
        _locate(tree, point_weights, nodes, node)


@jit
def expand_nodes(tree, point_weights, series, inverse_h, nodes, first, last):
    """Fill in the coefficients of nodes that have been located, as `locate_nodes`."""
    tree, point_weights, series, nodes = uncounted((tree, point_weights, series, nodes))
    u = np.empty(tree.rows.shape[1])
    for node in range(last - 1, first - 1, -1):
        coefficients = nodes.coefficients[node]
        coefficients[:] = 0
        if nodes.radii[node] * inverse_h > WIDEST:
            coefficients[0] = nodes.weights[node]  # the centroid
            continue
        child = tree.children[node]
        if child < 0:
            start, stop = tree.starts[node], tree.stops[node]
            v = around(tree, node, nodes.centers[node], inverse_h)
            scratch = np.empty((scratch_rows(series), v.shape[1]))
            fill(series, series.degree, v, TAYLOR, scratch)
            weights = point_weights[start:stop]
            add_moments(series, series.degree, weights, TAYLOR, scratch, coefficients)
        else:
            for at in (child, child + 1):
                for k in range(u.size):
                    u[k] = (nodes.centers[at, k] - nodes.centers[node, k]) * inverse_h
                moments_to_parent(series, nodes.coefficients[at], u, coefficients)


@jit
def around(tree, node, center, inverse_h):
    """Return the points of a node around a centre (d,), in units of h (d, m), float64."""
    start, stop = tree.starts[node], tree.stops[node]
    v = np.empty((center.size, stop - start))
    for k in range(center.size):
        for i in range(start, stop):
            v[k, i - start] = (tree.rows[i, k] - center[k]) * inverse_h
    return v


@jit
def _locate(tree, point_weights, nodes, node):
    """Fill in weight, centre, spread and radius of one node from its points or children."""
    start, stop = tree.starts[node], tree.stops[node]
    center = nodes.centers[node]
    d, child = center.size, tree.children[node]
    center[:] = 0
    nodes.weights[node], nodes.carries[node] = 0.0, 0.0
    if child < 0:
        for i in range(start, stop):
            add_to(nodes.weights, nodes.carries, node, point_weights[i])
            for k in range(d):
                # In float64: `center_offset` knows of no other rounding.
                gap = np.float64(tree.rows[i, k]) - np.float64(tree.lower[node, k])
                center[k] += point_weights[i] * gap
        for k in range(d):
            center[k] = tree.lower[node, k] + center[k] / nodes.weights[node]
    else:
        for at in (child, child + 1):
            add_to(nodes.weights, nodes.carries, node, nodes.weights[at])
            add_to(nodes.weights, nodes.carries, node, nodes.carries[at])
        for k in range(d):
            a, b = nodes.centers[child, k], nodes.centers[child + 1, k]
            center[k] = a + (b - a) * (nodes.weights[child + 1] / nodes.weights[node])
    weight = nodes.weights[node]
    spread, farthest = 0.0, 0.0
    if child < 0:
        for i in range(start, stop):
            sq = 0.0
            for k in range(d):
                gap = tree.rows[i, k] - center[k]
                sq += gap * gap
            spread += point_weights[i] * sq
            farthest = max(farthest, sq)
        spread, farthest = spread / weight, np.sqrt(farthest)
    else:
        for at in (child, child + 1):
            sq = 0.0
            for k in range(d):
                gap = nodes.centers[at, k] - center[k]
                sq += gap * gap
            spread += (nodes.weights[at] / weight) * (nodes.spreads[at] + sq)
            farthest = max(farthest, nodes.radii[at] + np.sqrt(sq))
        farthest = min(farthest, corner_distance(tree, node, center))
        # Never below its children's: a node has a series only if both of them have one.
        farthest = max(farthest, nodes.radii[child], nodes.radii[child + 1])
    largest, widest = 0.0, 0.0
    for k in range(d):
        low, high = np.float64(tree.lower[node, k]), np.float64(tree.upper[node, k])
        largest, widest = max(largest, abs(low), abs(high)), max(widest, high - low)
    if child < 0:
        nodes.offsets[node] = center_offset(stop - start, widest, largest, d)
    else:
        below = max(nodes.offsets[child], nodes.offsets[child + 1])
        nodes.offsets[node] = below + center_offset(2, widest, largest, d)
    nodes.spreads[node] = spread
    nodes.radii[node] = farthest * (1 + SLACK)  # an upper bound, whatever the rounding
