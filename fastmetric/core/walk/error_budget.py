"""Whether a node is accepted as a whole, and how most cheaply [SUM-4].

The errors are those of `core.error_bounds`. Everything that decides is compiled in order and has
slack for its rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit_in_order
from fastmetric.core.error_bounds import (
    SLACK,
    Expansion,
    centroid_rounding,
    centroid_truncation,
    expansion_rounding,
    log_truncation,
)
from fastmetric.core.kernels import GAUSSIAN, inverse_sq_width
from fastmetric.core.tree.boxes import center_distance
from fastmetric.core.tree.node_moments import WIDEST
from fastmetric.core.vector.exp import exp64
from fastmetric.core.walk.interaction_lists import CENTROID, OPEN

# A node whose radius is WIDEST, up to rounding, has no expansion.
_WIDEST = WIDEST * (1 - SLACK)
_LEAST_SHARE = 0.005  # of what is left over, for a node of however little weight


class Ledger(NamedTuple):
    """What a group or a cell has accepted or summed so far."""

    spent: float  # the errors of the nodes accepted
    certain: float  # the least that has been summed for any of its queries
    left: float  # the weight of what has not been decided on yet


class Bounds(NamedTuple):
    """The least and the largest exponent of a node's pairs, and the kernel there."""

    s_lo: float
    s_hi: float
    k_lo: float  # the kernel at s_lo: the larger of both
    k_hi: float


@jit_in_order
def allowed_error(rule, atol, weight, k_hi, ledger, floor):
    """Return the error that a node may have [SUM-4]; `floor` is certain to be in every sum."""
    least = weight * k_hi
    covered = rule.rtol * max(ledger.certain + least, floor) + atol - ledger.spent
    share = max(_LEAST_SHARE, weight / max(weight, ledger.left))
    return max(0.0, min(covered, rule.rtol * least + covered * share))


@jit_in_order
def is_negligible(weight, k_lo, allowed):
    """Return whether a node might as well have been left out."""
    return weight * k_lo <= 4 * allowed


@jit_in_order
def cheapest_acceptance(group, ref, rule, node, bounds, allowed):
    """Return (code, error): the cheapest way to accept a node, or OPEN."""
    nodes, (s_lo, s_hi, k_lo, _) = ref.nodes, bounds
    weight = nodes.weights[node]
    if nodes.radii[node] == 0.0:
        return CENTROID, 0.0
    inverse_h2 = inverse_sq_width(rule.code, rule.factor)
    spread, inverse_h = nodes.spreads[node] * inverse_h2, np.sqrt(inverse_h2)
    error = weight * centroid_truncation(spread, rule.code, s_lo, s_hi, k_lo)
    if error <= allowed:
        offset = nodes.offsets[node] * inverse_h
        error += centroid_rounding(weight, offset, rule.code, s_hi, k_lo)
        if error <= allowed:
            return CENTROID, error
    if rule.code != GAUSSIAN or nodes.coefficients.shape[1] == 0:
        return OPEN, 0.0
    radius = nodes.radii[node] * inverse_h
    if radius > _WIDEST:
        return OPEN, 0.0
    center = center_distance(group.lower, group.upper, nodes.centers[node]) * inverse_h
    distance = max(np.sqrt(2 * s_lo), center - radius) * (1 - SLACK)
    # The terms of the series are up to exp(radius * reach + radius^2 / 2) times exp(-reach^2 / 2).
    reach = max(center, radius)
    log_terms = group.shift + radius * reach + (radius * radius - reach * reach) / 2
    most = ref.series.indices.shape[0]
    if rule.in_float32 > 0 and ref.tree.children[node] < 0:
        # A term costs as much as a pair in float32.
        most = min(most, ref.tree.stops[node] - ref.tree.starts[node])
    expansion = Expansion(weight, spread, radius, distance, group.shift, log_terms)
    return _least_degree(ref.series, CENTROID + 1, most, expansion, allowed)


@jit_in_order
def cell_degree(cells, c, ref, rule, node, s_lo, allowed):
    """Return (degree, error): the least degree at which a cell accepts a node, or OPEN."""
    nodes, inverse_h2 = ref.nodes, 2 * rule.factor
    inverse_h = np.sqrt(inverse_h2)
    own, radius = cells.radii[c] * inverse_h, nodes.radii[node] * inverse_h
    if radius > _WIDEST or own > _WIDEST:
        return OPEN, 0.0
    center, sq = nodes.centers[node], 0.0
    for k in range(center.size):
        gap = cells.centers[c, k] - center[k]
        sq += gap * gap
    v, both, weight = np.sqrt(sq) * inverse_h, own + radius, nodes.weights[node]
    distance = max(np.sqrt(2 * s_lo), v - both) * (1 - SLACK)
    # The first moment around the centre vanishes, up to the rounding of the centre.
    offset = nodes.offsets[node] * inverse_h
    spread = own * (own + 2 * offset) + nodes.spreads[node] * inverse_h2
    log_terms = both * v + (both * both - v * v) / 2
    expansion = Expansion(weight, spread, both, distance, 0.0, log_terms)
    return _least_degree(ref.series, CENTROID, ref.series.indices.shape[0], expansion, allowed)


@jit_in_order
def _log_product(a, b):
    """Return log(a b) for a, b > 0, which may underflow or overflow."""
    product = a * b
    return np.log(product) if 1e-290 < product < 1e290 else np.log(a) + np.log(b)


@jit_in_order
def _least_degree(series, lowest, most, expansion, allowed):
    """Return the least degree from `lowest` on that keeps within `allowed`, and its error.

    (OPEN, 0.0) if there is none of at most `most` terms.
    """
    rounding = expansion_rounding(expansion)
    if allowed <= 0 or rounding > allowed:
        return OPEN, 0.0
    log_spread = _log_product(expansion.weight, expansion.spread) + expansion.shift
    log_radius = np.log(expansion.radius)
    log_allowed = np.log(allowed)
    for p in range(lowest, series.degree + 1):
        if series.term_counts[p] > most:
            break
        log_error = log_truncation(series, p, log_spread, log_radius, expansion.distance)
        if log_error <= log_allowed:
            error = exp64(log_error) * (1 + SLACK) + rounding
            if error <= allowed:
                return p, error
    return OPEN, 0.0
