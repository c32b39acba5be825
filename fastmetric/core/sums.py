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
query is to be left out. Without any tolerance only nodes beyond a compact kernel's reach are
left out, and all else is summed pair by pair.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import compiled, exact_order
from fastmetric.core.exp import exp64
from fastmetric.core.expansion import LOG_FACTORIALS, log_remainder
from fastmetric.core.groups import (
    LONGEST,
    SLACK,
    add_centroid,
    add_field,
    add_leaf,
    box_distances,
    center_distance,
    make_group,
    shifted_kernel,
)
from fastmetric.core.kernels import (
    BIWEIGHT,
    COSINE,
    EXPONENTIAL,
    GAUSSIAN,
    LINEAR,
    TOPHAT,
    exponent,
    has_tails,
)
from fastmetric.core.nodes import WIDEST
from fastmetric.core.tree import DEEPEST

_OPEN, _CONSTANT, _CENTROID, _SERIES = 0, 1, 2, 3  # what is done with a node
_LEAST_SHARE = 0.005  # of what is left over, for a node of however little weight


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
def _steepness(code, s_hi, k_lo):
    """Return exp(shift) times a bound of the kernel's gradient in q/h up to s_hi."""
    if code == GAUSSIAN:
        return k_lo * np.sqrt(2 * s_hi)
    if code == EXPONENTIAL:
        return k_lo
    return 0.0 if code == TOPHAT else 2.0


@exact_order
def _judge(group, ref, rule, node, allowed, k_lo, s_lo, s_hi):
    """Return (how, degree, error): the cheapest way to accept a node, or to open it."""
    nodes = ref.nodes
    weight, scatter = nodes.weights[node], nodes.scatters[node]
    if scatter == 0.0:
        return _CENTROID, 1, 0.0
    inverse_h2 = 2 * rule.factor if rule.code == GAUSSIAN else rule.factor
    spread = 0.5 * scatter * inverse_h2
    error = spread * _curvature(rule.code, s_lo, s_hi, k_lo) * (1 + SLACK)
    if error <= allowed:
        # The centre is rounded: the first moment around it is not quite zero.
        shake = nodes.offsets[node] * np.sqrt(inverse_h2)
        error += weight * shake * _steepness(rule.code, s_hi, k_lo)
        if error <= allowed:
            return _CENTROID, 1, error
    if rule.code != GAUSSIAN or nodes.coefficients.shape[1] == 0:
        return _OPEN, 0, 0.0
    inverse_h = np.sqrt(inverse_h2)
    radius = nodes.radii[node] * inverse_h
    if radius > WIDEST:
        return _OPEN, 0, 0.0
    center = center_distance(group.lower, group.upper, nodes.centers[node]) * inverse_h
    r = max(np.sqrt(2 * s_lo), center - radius) * (1 - SLACK)
    highest = ref.series.degree
    log_spread = np.log(2 * spread) + group.shift
    log_radius = np.log(radius)
    log_allowed = np.log(allowed) if allowed > 0 else -np.inf
    # The terms of the series are up to exp(radius * r) times as large as the field.
    reach = max(center, radius)
    log_terms = group.shift + radius * reach - reach * reach / 2
    if log_terms > 300.0:
        return _OPEN, 0, 0.0
    rounding = 1e-14 * weight * exp64(log_terms)
    for p in range(2, highest + 1):
        log_error = (
            log_spread
            + (p - 1) * log_radius
            - LOG_FACTORIALS[p + 1]
            + log_remainder(ref.series, p + 1, r)
        )
        if log_error <= log_allowed:
            error = exp64(log_error) * (1 + SLACK) + rounding
            if error <= allowed:
                return _SERIES, p, error
    return _OPEN, 0, 0.0


@compiled
def _least(totals):
    """Return the smallest total."""
    least = totals[0]
    for i in range(1, totals.size):
        least = min(least, totals[i])
    return least


@exact_order
def sum_group(group, ref, rule, roots, visits):
    """Sum a group over the trees of `roots`; return the error that each of its sums may have.

    Returns the number of nodes that were not opened, too, and writes what was done into
    `visits` (m, 2) if it is not empty: the node, and 0 (pair by pair), -1 (a constant that
    is as good as nothing) or the degree of a series.
    """
    tree, nodes, visited = ref.tree, ref.nodes, 0
    stack, height = _first_stack(group, tree, roots)
    spent, certain, left = 0.0, 0.0, nodes.weights[roots].sum()
    atol = rule.atol * exp64(min(group.shift, 700.0))
    while height > 0:
        height -= 1
        node = stack[height]
        weight = nodes.weights[node]
        sq_lo, sq_hi = box_distances(group.lower, group.upper, tree.lower[node], tree.upper[node])
        s_lo, s_hi = rule.factor * sq_lo, rule.factor * sq_hi
        first = tree.children[node]
        start, stop = tree.starts[node], tree.stops[node]
        holds_self = start <= group.last_self and group.first_self < stop
        if s_lo >= 1 and not has_tails(rule.code):
            left -= weight
            continue
        how, degree = _OPEN, 0
        if not holds_self and (rule.rtol > 0 or atol > 0):
            k_lo = shifted_kernel(rule.code, s_lo, group.shift)
            k_hi = shifted_kernel(rule.code, s_hi, group.shift)
            saved = max(0.0, rule.rtol * certain + atol - spent)
            allowed = rule.rtol * weight * k_hi + saved * max(
                _LEAST_SHARE, weight / max(weight, left)
            )
            error = 0.5 * weight * (k_lo - k_hi) * (1 + SLACK)
            if error <= allowed:
                # A constant has no slope. Where the node could not have been left out as well, the
                # slope is the centroid's: a sum may be flat over a node of one place, or nearly so.
                how, degree = _CONSTANT, -1 if weight * k_lo <= 4 * allowed else 1
                for i in range(group.totals.size):
                    group.totals[i] += 0.5 * weight * (k_lo + k_hi)
            else:
                how, degree, error = _judge(group, ref, rule, node, allowed, k_lo, s_lo, s_hi)
                if how == _CENTROID:
                    add_centroid(group, ref, rule, node)
                elif how == _SERIES:
                    add_field(group, ref, rule, node, degree)
            if how != _OPEN:
                spent += error
                certain += weight * k_hi * (1 - SLACK)
                left -= weight
        if how == _OPEN and first >= 0:
            height = _push(stack, height, group.lower, group.upper, tree.lower, tree.upper, first)
            continue
        if how == _OPEN:
            add_leaf(group, ref, rule, start, stop)
            left -= weight
        certain = max(certain, _least(group.totals) * (1 - SLACK) - spent)
        if visits.size > 0:
            visits[visited, 0], visits[visited, 1] = node, degree
            visited += 1
    return spent, visited


@compiled
def _first_stack(group, tree, roots):
    """Return a stack with the roots, the nearest on top, and its height."""
    stack = np.empty(roots.size + DEEPEST, np.int64)
    far = np.empty(roots.size)
    for i in range(roots.size):
        box = tree.lower[roots[i]], tree.upper[roots[i]]
        far[i], _ = box_distances(group.lower, group.upper, *box)
    stack[: roots.size] = roots[np.argsort(-far, kind="mergesort")]
    return stack, roots.size


@compiled
def _push(stack, height, low, high, lower, upper, first):
    """Put two children on the stack, the nearer one on top; return the new height.

    Boxes `lower`, `upper` of the nodes (m, d); two that touch the group's are told apart by
    their middles.
    """
    a, _ = box_distances(low, high, lower[first], upper[first])
    b, _ = box_distances(low, high, lower[first + 1], upper[first + 1])
    if a == b:
        a = _middle_gap(low, high, lower[first], upper[first])
        b = _middle_gap(low, high, lower[first + 1], upper[first + 1])
    nearer = first if a <= b else first + 1
    stack[height], stack[height + 1] = 2 * first + 1 - nearer, nearer
    return height + 2


@compiled
def _middle_gap(low, high, lower, upper):
    """Return the squared distance between the middles of two boxes, times four."""
    total = 0.0
    for k in range(low.size):
        gap = lower[k] + upper[k] - low[k] - high[k]
        total += gap * gap
    return total


@compiled
def group_sums(queries, ref, rule, roots, exact, keep, first, last):
    """Return the sums of the groups first:last (m,), the error of each group, and the paths.

    Over the trees that begin at the nodes `roots`; `exact`: pair by pair. With `keep`, the paths
    are what `sum_group` visited, group after group, and how many nodes that were of each.
    """
    sums = np.empty(queries.stops[last - 1] - queries.starts[first])
    errors, counts = np.zeros(last - first), np.zeros(last - first, np.int64)
    room = ref.tree.starts.size if keep else 0
    visits, used = np.empty(((last - first) * room, 2), np.int32), 0
    for g in range(first, last):
        group = make_group(queries, g, ref)
        if exact:
            for root in roots:
                stop = ref.tree.stops[root]
                for start in range(ref.tree.starts[root], stop, LONGEST):
                    add_leaf(group, ref, rule, start, min(start + LONGEST, stop))
        else:
            errors[g - first], count = sum_group(group, ref, rule, roots, visits[used:])
            counts[g - first] = count
            used += count
        at = queries.starts[g] - queries.starts[first]
        sums[at : at + group.totals.size] = group.totals
    return sums, errors, counts, visits[:used].copy()


@compiled
def largest_exponents(queries, ref, rule, roots, log_weights, first, last):
    """Return max_j (log w_j - t_j), k = exp(-t), over all points but the query itself.

    For the queries first:last, over the trees of `roots`.
    """
    largest = np.empty(last - first)
    for i in range(first, last):
        best, q = -np.inf, queries.rows[i].astype(np.float64)
        for root in roots:
            best = _largest_exponent(ref, rule, root, q, queries.selves[i], log_weights, best)
        largest[i - first] = best
    return largest


@compiled
def _largest_exponent(ref, rule, root, q, self_index, log_weights, best):
    """Return the larger of `best` and max_j (log w_j - t_j) over the points but `self_index`.

    Depth first, near nodes first; a node cannot beat its weight at its nearest corner.
    """
    tree = ref.tree
    stack = np.empty(DEEPEST, np.int64)
    stack[0], height = root, 1
    while height > 0:
        height -= 1
        node = stack[height]
        sq_lo, _ = box_distances(q, q, tree.lower[node], tree.upper[node])
        if np.log(ref.nodes.weights[node]) - exponent(rule.code, rule.factor * sq_lo) < best:
            continue
        first = tree.children[node]
        if first >= 0:
            height = _push(stack, height, q, q, tree.lower, tree.upper, first)
            continue
        for j in range(tree.starts[node], tree.stops[node]):
            if j != self_index:
                sq = 0.0
                for k in range(q.size):
                    gap = q[k] - tree.rows[j, k]
                    sq += gap * gap
                best = max(best, log_weights[j] - exponent(rule.code, rule.factor * sq))
    return best
