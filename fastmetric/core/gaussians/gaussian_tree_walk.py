"""Sums of Gaussians, each of a shape of its own, over a k-d tree, in few dimensions [MAN-6].

A Gaussian is at most exp(-|x - x_i|² / (2 lambda_i)) times its maximum, lambda_i its largest
variance. So a node is at most the sum of its maxima at its box, with the largest variance in it.
The tree is walked for each query, the node of the largest bound first; the nodes left out are
together at most rtol times the sum so far.

Points are the last axis of every array, so that a leaf is a vectorised loop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, jit_in_order, uncounted
from fastmetric.core.error_bounds import SLACK
from fastmetric.core.shifted_sums import EMPTY, log_sum, shifted_to
from fastmetric.core.tree.balanced_tree import DEEPEST
from fastmetric.core.tree.boxes import box_distances
from fastmetric.core.vector.exp import exp64


class Leaves(NamedTuple):
    """n Gaussians in the order of a tree, float64."""

    points: np.ndarray  # (D, n)
    directions: np.ndarray  # (q, D, n)
    inverse: np.ndarray  # (q, n), 1 / variance along each direction
    inverse_noise: float  # 1 / variance across
    log_tops: np.ndarray  # (n,)


class Bounds(NamedTuple):
    """Of the nodes: their Gaussians are at most n exp(log_tops - steepness |x - box|²) a point."""

    log_tops: np.ndarray  # (nodes,): logs of the mean, times n
    steepness: np.ndarray  # (nodes,): 1 / (2 lambda)


class _Scratch(NamedTuple):
    """Memory for the t points of one leaf."""

    rest: np.ndarray  # (D, t): what is left of the differences
    projections: np.ndarray  # (t,)
    terms: np.ndarray  # (t,)


@jit_in_order
def bound_nodes(tree, log_tops, largest, slack):
    """Return the bounds of all nodes; log_tops, largest variance (n,) in the order of the tree.

    slack: by how much lengths along and across may not add up, relatively.
    """
    m, n = tree.starts.size, log_tops.size
    logs, steepness = np.empty(m), np.empty(m)
    highest, sums = np.empty(m), np.empty(m)
    # From the leaves up: children come after their parents.
    for node in range(m - 1, -1, -1):
        first, start, stop = tree.children[node], tree.starts[node], tree.stops[node]
        if first < 0:
            highest[node], sums[node], width = log_tops[start:stop].max(), 0.0, 0.0
            for i in range(start, stop):
                sums[node] += np.exp(log_tops[i] - highest[node])
                width = max(width, largest[i])
            steepness[node] = 0.5 / width
        else:
            highest[node] = max(highest[first], highest[first + 1])
            sums[node] = 0.0
            for at in (first, first + 1):
                sums[node] += sums[at] * np.exp(highest[at] - highest[node])
            steepness[node] = min(steepness[first], steepness[first + 1])
        log_top = highest[node] + np.log(sums[node]) + np.log(n / (stop - start))
        logs[node] = log_top + SLACK * (1 + abs(log_top))
    return Bounds(logs, steepness * (1 - SLACK - slack))


@jit_in_order
def _bound(tree, bounds, node, x):
    """Return the log of n times the mean of a node's Gaussians at x (D,), at most."""
    sq_lo, _ = box_distances(x, x, tree.lower[node], tree.upper[node])
    return bounds.log_tops[node] - sq_lo * bounds.steepness[node]


@jit_in_order
def log_sums(tree, leaves, bounds, query, log_rtol):
    """Return the logs of the sums at query (m, D), float64, and how many pairs and nodes it took.

    What is left out is at most exp(log_rtol) of the sum.
    """
    tree, leaves, bounds, query = uncounted((tree, leaves, bounds, query))
    logs, pairs, nodes = np.empty(query.shape[0]), 0, 0
    stack, at_most = np.empty(DEEPEST, np.int64), np.empty(DEEPEST)
    scratch = _scratch(tree, leaves)
    for a in range(query.shape[0]):
        x, shift, total, found = query[a], EMPTY, 0.0, -np.inf
        stack[0], at_most[0], height = 0, np.inf, 1
        while height > 0:
            height -= 1
            node = stack[height]
            # Each node has its share, by the number of its points, of rtol times the sum.
            if at_most[height] <= found + log_rtol:
                continue
            nodes += 1
            first = tree.children[node]
            if first < 0:
                start, stop = tree.starts[node], tree.stops[node]
                shift, total = _add_leaf(leaves, x, start, stop, shift, total, scratch)
                found = log_sum(shift, total)
                found -= SLACK * (1 + abs(found))
                pairs += stop - start
                continue
            one, other = _bound(tree, bounds, first, x), _bound(tree, bounds, first + 1, x)
            near = first if one >= other else first + 1
            stack[height], stack[height + 1] = 2 * first + 1 - near, near
            at_most[height], at_most[height + 1] = min(one, other), max(one, other)
            height += 2
        logs[a] = log_sum(shift, total)
    return logs, pairs, nodes


@jit
def _scratch(tree, leaves):
    """Return memory for the largest leaf."""
    longest = 0
    for node in range(tree.starts.size):
        if tree.children[node] < 0:
            longest = max(longest, tree.stops[node] - tree.starts[node])
    rest = np.empty((leaves.points.shape[0], longest))
    return _Scratch(rest, np.empty(longest), np.empty(longest))


@jit
def _add_leaf(leaves, x, start, stop, shift, total, scratch):
    """Add the Gaussians start:stop at x (D,) to total * exp(shift); return both.

    By differences [MAN-3], as in `core.gaussians.local_gaussians`.
    """
    t, n_features = stop - start, x.size
    rest, p, terms = scratch
    for k in range(n_features):
        points = leaves.points[k, start:stop]
        for i in range(t):
            rest[k, i] = x[k] - points[i]
    for i in range(t):
        terms[i] = 0.0
    for j in range(leaves.inverse.shape[0]):
        for i in range(t):
            p[i] = 0.0
        for k in range(n_features):
            v = leaves.directions[j, k, start:stop]
            for i in range(t):
                p[i] += v[i] * rest[k, i]
        for k in range(n_features):
            v = leaves.directions[j, k, start:stop]
            for i in range(t):
                rest[k, i] -= v[i] * p[i]
        inverse = leaves.inverse[j, start:stop]
        for i in range(t):
            terms[i] += p[i] * p[i] * inverse[i]
    for k in range(n_features):
        for i in range(t):
            terms[i] += rest[k, i] * rest[k, i] * leaves.inverse_noise
    largest, log_tops = shift, leaves.log_tops[start:stop]
    for i in range(t):
        terms[i] = log_tops[i] - 0.5 * terms[i]
        largest = max(largest, terms[i])
    shift, total = shifted_to(largest, shift, total)
    for i in range(t):
        total += exp64(terms[i] - shift)
    return shift, total
