"""Nearest neighbours, and the points of a ball, found exactly in a k-d tree.

A node is passed over if its box is not nearer than what has been found, and taken whole if the
box lies inside the ball. Both are exact in floating point, not only on paper: the distances of a
box and of a point go through the same operations in the same order. Differences, squares, sums
from the first coordinate to the last; each is rounded, and rounding is monotone. So the gap to a
side of the box is at most the gap to a point behind that side, so is its square, so is the sum.
This needs that no multiplication is fused with an addition in one place and not in the other.

Distances must not overflow, which callers ensure. Points are read in panels of UNIT points,
coordinate by coordinate, one vector at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit_in_order
from fastmetric.core.tree.balanced_tree import DEEPEST, Tree
from fastmetric.core.tree.boxes import least_sq_distance, most_sq_distance
from fastmetric.core.tree.heaps import insert, sink, sort_heap
from fastmetric.core.vector.panel_scan import UNIT, lanes_below, lowest_bit, panel_sq_distances

_SHORT = 96  # neighbours up to which a sorted list is quicker than a heap
_NODE = 256  # points that stay in the first cache, together with what surrounds them
_LAST_NODE = 2**16 - 1


class Search(NamedTuple):
    """A tree and its points in panels."""

    tree: Tree
    panels: np.ndarray  # (ceil(n / UNIT), d, UNIT)


@jit_in_order
def nodes_of(tree, queries):
    """Return the nodes (m,) that queries (m, d) belong to, of about _NODE points.

    Queries of one node are near each other, and so are their neighbours. The numbers of nodes
    are kept to 16 bits, which NumPy sorts by radix.
    """
    nodes = np.empty(queries.shape[0], np.uint16)
    for q in range(queries.shape[0]):
        node = 0
        while tree.stops[node] - tree.starts[node] > _NODE:
            first = tree.children[node]
            if first < 0 or first + 1 > _LAST_NODE:
                break
            node = first
            if least_sq_distance(tree, first + 1, queries[q]) < least_sq_distance(
                tree, first, queries[q]
            ):
                node = first + 1
        nodes[q] = node
    return nodes


# The nearest of all points


@jit_in_order
def nearest(search, queries, which, distances, indices):
    """Write the neighbours of queries (m, d) into the rows `which` (m,) of the two results.

    `distances` and `indices` (.., k): the k nearest points, by increasing distance.
    """
    k = distances.shape[1]
    nodes, bounds = np.empty(DEEPEST, np.int64), np.empty(DEEPEST, queries.dtype)
    # Not in the results themselves: rows far apart would have to be fetched first.
    best, found = np.empty(k, queries.dtype), np.empty(k, np.int64)
    sq_dist = np.empty(UNIT, queries.dtype)
    for q in range(queries.shape[0]):
        best[:] = np.inf
        _search(search, queries[q], best, found, nodes, bounds, sq_dist)
        if k > _SHORT:
            sort_heap(best, found)
        row = which[q]
        for i in range(k):
            distances[row, i] = np.sqrt(best[i])
            indices[row, i] = search.tree.order[found[i]]


@jit_in_order
def _search(search, point, best, found, nodes, bounds, sq_dist):
    """Find the points nearest to `point`: squared distances and places in the tree, (k,) each.

    Depth first, the nearer child first. `nodes` and `bounds` are the stack of those put off.
    """
    tree = search.tree
    worst = best[0]
    nodes[0], bounds[0], height = 0, least_sq_distance(tree, 0, point), 1
    while height > 0:
        height -= 1
        node, bound = nodes[height], bounds[height]
        while bound < worst and tree.children[node] >= 0:
            node, other = tree.children[node], tree.children[node] + 1
            bound, further = (
                least_sq_distance(tree, node, point),
                least_sq_distance(tree, other, point),
            )
            if further < bound:
                node, other, bound, further = other, node, further, bound
            if further < worst:
                nodes[height], bounds[height] = other, further
                height += 1
        if bound < worst:
            worst = _scan(search, node, point, best, found, sq_dist)


@jit_in_order
def _scan(search, leaf, point, best, found, sq_dist):
    """Offer the points of a leaf to the list of the best; return the worst of them."""
    k = best.size
    worst = best[0] if k > _SHORT else best[k - 1]
    stop = search.tree.stops[leaf]
    for i in range(search.tree.starts[leaf], stop, UNIT):
        panel_sq_distances(search.panels, i // UNIT, point, sq_dist)
        bits = lanes_below(sq_dist, worst) & ((1 << min(stop - i, UNIT)) - 1)
        while bits != 0:
            j = lowest_bit(bits)
            bits &= bits - 1
            if sq_dist[j] < worst:
                if k > _SHORT:
                    sink(best, found, k, sq_dist[j], i + j)
                    worst = best[0]
                else:
                    insert(best, found, sq_dist[j], i + j)
                    worst = best[k - 1]
    return worst


# All points of a ball


@jit_in_order
def _pieces(tree, point, sq_radius, nodes, pieces):
    """Write the nodes that make up a ball into `pieces` (.., 2); return their number.

    First a node, then whether all of its points are in the ball. If not, it is a leaf.
    """
    count = 0
    nodes[0], height = 0, 1
    while height > 0:
        height -= 1
        node = nodes[height]
        if least_sq_distance(tree, node, point) > sq_radius:
            continue
        whole = most_sq_distance(tree, node, point) <= sq_radius
        if whole or tree.children[node] < 0:
            pieces[count, 0], pieces[count, 1] = node, whole
            count += 1
        else:
            nodes[height], nodes[height + 1] = tree.children[node] + 1, tree.children[node]
            height += 2
    return count


@jit_in_order
def count_within(search, queries, sq_radii):
    """Return how many points have a squared distance of at most sq_radii (m,) to each query."""
    tree = search.tree
    nodes, sq_dist = np.empty(DEEPEST, np.int64), np.empty(UNIT, queries.dtype)
    pieces = np.empty((tree.starts.size, 2), np.int64)
    counts = np.zeros(queries.shape[0], np.int64)
    for q in range(queries.shape[0]):
        for p in range(_pieces(tree, queries[q], sq_radii[q], nodes, pieces)):
            start, stop = tree.starts[pieces[p, 0]], tree.stops[pieces[p, 0]]
            if pieces[p, 1]:
                counts[q] += stop - start
                continue
            for i in range(start, stop, UNIT):
                panel_sq_distances(search.panels, i // UNIT, queries[q], sq_dist)
                for j in range(min(stop - i, UNIT)):
                    counts[q] += sq_dist[j] <= sq_radii[q]
    return counts


@jit_in_order
def points_within(search, queries, sq_radii, with_distances, in_order):
    """Return the points of each query's ball: ends (m,), indices and squared distances.

    The points of query q stand before ends[q], behind those of the query before it; `in_order`,
    by increasing distance. Without distances those are an empty array.
    """
    tree = search.tree
    nodes, sq_dist = np.empty(DEEPEST, np.int64), np.empty(UNIT, queries.dtype)
    pieces = np.empty((tree.starts.size, 2), np.int64)
    ends, used = np.empty(queries.shape[0], np.int64), 0
    found, best = np.empty(0, np.int64), np.empty(0, queries.dtype)
    for q in range(queries.shape[0]):
        first, need = used, used
        count = _pieces(tree, queries[q], sq_radii[q], nodes, pieces)
        for p in range(count):
            need += tree.stops[pieces[p, 0]] - tree.starts[pieces[p, 0]]
        found = _with_room(found, used, need)
        best = _with_room(best, used, need if with_distances else 0)
        for p in range(count):
            start, stop = tree.starts[pieces[p, 0]], tree.stops[pieces[p, 0]]
            if pieces[p, 1] and not with_distances:
                found[used : used + stop - start] = tree.order[start:stop]
                used += stop - start
                continue
            for i in range(start, stop, UNIT):
                panel_sq_distances(search.panels, i // UNIT, queries[q], sq_dist)
                for j in range(min(stop - i, UNIT)):
                    # Written in any case, kept if it is in the ball.
                    found[used] = tree.order[i + j]
                    if with_distances:
                        best[used] = sq_dist[j]
                    used += sq_dist[j] <= sq_radii[q]
        if in_order:
            _sort(best[first:used], found[first:used])
        ends[q] = used
    return ends, found[:used].copy(), best[: used if with_distances else 0].copy()


@jit_in_order
def _with_room(array, used, need):
    """Return the array, or a larger one with its first `used` items, for `need` of them."""
    if need <= array.size:
        return array
    larger = np.empty(max(need, 2 * array.size), array.dtype)
    larger[:used] = array[:used]
    return larger


@jit_in_order
def _sort(best, found):
    """Sort points by their squared distances, in place."""
    for p in range(1, best.size):  # a heap of one more point each time
        s, i = best[p], found[p]
        while p > 0 and best[(p - 1) // 2] < s:
            best[p], found[p] = best[(p - 1) // 2], found[(p - 1) // 2]
            p = (p - 1) // 2
        best[p], found[p] = s, i
    sort_heap(best, found)
