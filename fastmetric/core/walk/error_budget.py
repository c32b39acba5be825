"""What decides whether a node is accepted whole, and how: bounds of the error [SUM-1] - [SUM-7].

All of it is compiled in order, and every quantity has slack for its rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit_in_order
from fastmetric.core.far_field.expansions import LOG_FACTORIALS, log_remainder
from fastmetric.core.kernels import GAUSSIAN, curvature_bound, inverse_sq_width, slope_bound
from fastmetric.core.tree.boxes import SLACK, center_distance
from fastmetric.core.tree.node_moments import WIDEST
from fastmetric.core.vector.exp import exp64

OPEN, CONSTANT, CENTROID, SERIES = 0, 1, 2, 3  # what is done with a node
# A node whose radius is WIDEST, but for rounding, has no series.
_WIDEST = WIDEST * (1 - SLACK)
_LEAST_SHARE = 0.005  # of what is left over, for a node of however little weight


class Ledger(NamedTuple):
    """What a group or crowd has taken in so far."""

    spent: float  # the errors of the nodes accepted
    certain: float  # the least that has been summed for any of its queries
    left: float  # the weight of what has not been decided on yet


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
def cheapest_acceptance(group, ref, rule, node, allowed, k_lo, s_lo, s_hi):
    """Return (how, degree, error): the cheapest way to accept a node, or to open it."""
    nodes = ref.nodes
    weight, scatter = nodes.weights[node], nodes.scatters[node]
    if scatter == 0.0:
        return CENTROID, 1, 0.0
    inverse_h2 = inverse_sq_width(rule.code, rule.factor)
    spread = 0.5 * scatter * inverse_h2
    error = spread * curvature_bound(rule.code, s_lo, s_hi, k_lo) * (1 + SLACK)
    if error <= allowed:
        # The centre is rounded: the first moment around it is not quite zero.
        shake = nodes.offsets[node] * np.sqrt(inverse_h2)
        error += weight * shake * slope_bound(rule.code, s_hi, k_lo)
        if error <= allowed:
            return CENTROID, 1, error
    if rule.code != GAUSSIAN or nodes.coefficients.shape[1] == 0:
        return OPEN, 0, 0.0
    inverse_h = np.sqrt(inverse_h2)
    radius = nodes.radii[node] * inverse_h
    if radius > _WIDEST:
        return OPEN, 0, 0.0
    center = center_distance(group.lower, group.upper, nodes.centers[node]) * inverse_h
    r = max(np.sqrt(2 * s_lo), center - radius) * (1 - SLACK)
    # The terms of the series are up to exp(radius * reach + radius^2 / 2) times the field.
    reach = max(center, radius)
    log_terms = group.shift + radius * reach + (radius * radius - reach * reach) / 2
    most = ref.series.indices.shape[0]
    if rule.in_float32 > 0 and ref.tree.children[node] < 0:
        # A term costs as much as a pair in float32.
        most = min(most, ref.tree.stops[node] - ref.tree.starts[node])
    degree, error = _least_degree(
        ref.series, 2, most, 2 * spread, radius, r, group.shift, weight, log_terms, allowed
    )
    return (SERIES if degree > 0 else OPEN), degree, error


@jit_in_order
def cell_degree(cells, c, ref, rule, node, s_lo, allowed):
    """Return (degree, error): the least degree that a crowd takes a node in with; 0: none."""
    nodes, inverse_h2 = ref.nodes, 2 * rule.factor
    inverse_h = np.sqrt(inverse_h2)
    own, radius = cells.radii[c] * inverse_h, nodes.radii[node] * inverse_h
    if radius > _WIDEST or own > _WIDEST:
        return 0, 0.0
    center, sq = nodes.centers[node], 0.0
    for k in range(center.size):
        gap = cells.centers[c, k] - center[k]
        sq += gap * gap
    v, both, weight = np.sqrt(sq) * inverse_h, own + radius, nodes.weights[node]
    r = max(np.sqrt(2 * s_lo), v - both) * (1 - SLACK)
    # The first moment around the centre vanishes, but for its rounding.
    shake = nodes.offsets[node] * inverse_h
    spread = weight * own * (own + 2 * shake) + nodes.scatters[node] * inverse_h2
    log_terms = both * v + (both * both - v * v) / 2
    most = ref.series.indices.shape[0]
    return _least_degree(ref.series, 1, most, spread, both, r, 0.0, weight, log_terms, allowed)


@jit_in_order
def _least_degree(series, lowest, most, spread, radius, r, shift, weight, log_terms, allowed):
    """Return the least degree from `lowest` on that keeps within `allowed`, and its error.

    (0, 0.0) if there is none of at most `most` terms. `spread` is the sum of w |u|^2,
    |u| <= radius, all in h; r is the least distance of a query to a point. log_terms: how large
    the terms are that are rounded.
    """
    if allowed <= 0 or log_terms > 300.0:
        return 0, 0.0
    rounding = 1e-13 * weight * exp64(log_terms)
    if rounding > allowed:
        return 0, 0.0
    log_spread, log_radius, log_allowed = np.log(spread) + shift, np.log(radius), np.log(allowed)
    for p in range(lowest, series.degree + 1):
        if series.term_counts[p] > most:
            break
        log_error = (
            log_spread
            + (p - 1) * log_radius
            - LOG_FACTORIALS[p + 1]
            + log_remainder(series, p + 1, r)
        )
        if log_error <= log_allowed:
            error = exp64(log_error) * (1 + SLACK) + rounding
            if error <= allowed:
                return p, error
    return 0, 0.0
