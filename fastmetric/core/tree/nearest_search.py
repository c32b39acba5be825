"""Nearest neighbours, and the points of a ball, found exactly in a k-d tree.

A node is passed over if its box is not nearer than what has been found, and taken whole if the
box lies inside the ball. Both are exact in floating point, not only on paper: the distances of a
box and of a point go through the same operations in the same order. Differences, squares, sums
from the first coordinate to the last; each is rounded, and rounding is monotone. So the gap to a
side of the box is at most the gap to a point behind that side, so is its square, so is the sum.
This needs that no multiplication is fused with an addition in one place and not in the other.

Distances must not overflow: the callers see to that. Points are read in panels of UNIT points,
coordinate by coordinate, one vector at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastmetric._jit import jit_in_order
from fastmetric.core.tree.balanced_tree import DEEPEST, UNIT, Tree

# Instructions without flags would be given those of the function, fusing (`contract`) among them.
# Signed zeros make no difference to squares.
_UNFUSED = ("nsz",)
_SHORT = 96  # neighbours up to which a sorted list is quicker than a heap
_HOME = 256  # points that stay in the first cache, together with what surrounds them
_LAST_HOME = 2**16 - 1


class Search(NamedTuple):
    """A tree and its points in panels."""

    tree: Tree
    panels: np.ndarray  # (ceil(n / UNIT), d, UNIT)


# Vector code


def _vectors(context: Any, kind: Any) -> Any:
    """Return the type of a vector of UNIT numbers of an array's type."""
    return ir.VectorType(context.get_data_type(kind.dtype), UNIT)


def _spread(builder: Any, vectors: Any, number: Any) -> Any:
    """Return a number in every lane."""
    undefined = ir.Constant(vectors, ir.Undefined)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), UNIT), [0] * UNIT)
    one = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, everywhere)


def _pointer(builder: Any, vectors: Any, numbers: Any) -> Any:
    """Return a pointer to numbers as one to a vector."""
    return builder.bitcast(numbers, vectors.as_pointer())


def _square_added(builder: Any, total: Any, gap: Any) -> Any:
    """Return total + gap * gap, rounded after the product and after the sum."""
    return builder.fadd(total, builder.fmul(gap, gap, flags=_UNFUSED), flags=_UNFUSED)


@intrinsic
def _plus_square(typing_context, total, gap):
    """Return total + gap * gap, of two numbers of one type."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _square_added(builder, *args)

    return gap(gap, gap), codegen


@intrinsic
def _panel_sq_distances(typing_context, panels, panel, point, out):
    """Write the squared distances of one panel's points to `point` (d,) into out (UNIT,)."""
    signature = types.void(panels, types.intp, point, out)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors, bytes_ = _vectors(context, panels), panels.dtype.bitwidth // 8
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in ((panels, args[0]), (point, args[2]), (out, args[3]))
        ]
        columns, coordinates, target = (array.data for array in arrays)
        d = cgutils.unpack_tuple(builder, arrays[0].shape)[1]
        width = ir.Constant(d.type, UNIT)
        first = builder.mul(builder.mul(args[1], d), width)
        total = cgutils.alloca_once_value(builder, ir.Constant(vectors, [0.0] * UNIT))
        with cgutils.for_range(builder, d) as loop:
            here = builder.add(first, builder.mul(loop.index, width))
            column = builder.load(_pointer(builder, vectors, builder.gep(columns, [here])))
            column.align = bytes_
            x = builder.load(builder.gep(coordinates, [loop.index]))
            gap = builder.fsub(column, _spread(builder, vectors, x), flags=_UNFUSED)
            builder.store(_square_added(builder, builder.load(total), gap), total)
        builder.store(builder.load(total), _pointer(builder, vectors, target)).align = bytes_
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _below(typing_context, values, bound):
    """Return the set of lanes whose value (UNIT of them) is below `bound`, as bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = _vectors(context, values)
        data = context.make_array(values)(context, builder, args[0]).data
        vector = builder.load(_pointer(builder, vectors, data))
        vector.align = values.dtype.bitwidth // 8
        bits = builder.fcmp_ordered("<", vector, _spread(builder, vectors, args[1]))
        return builder.zext(builder.bitcast(bits, ir.IntType(UNIT)), ir.IntType(64))

    return types.int64(values, values.dtype), codegen


@intrinsic
def _lowest(typing_context, bits):
    """Return the number of the lowest bit that is set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


# Points and boxes


@jit_in_order
def _least(tree, node, point):
    """Return a lower bound of the squared distances of a node's points to `point`."""
    lower, upper = tree.lower[node], tree.upper[node]
    zero = point.dtype.type(0)
    total = zero
    for k in range(point.size):
        gap = max(lower[k] - point[k], point[k] - upper[k])
        total = _plus_square(total, max(gap, zero))
    return total


@jit_in_order
def _most(tree, node, point):
    """Return an upper bound of the squared distances of a node's points to `point`."""
    lower, upper = tree.lower[node], tree.upper[node]
    total = point.dtype.type(0)
    for k in range(point.size):
        total = _plus_square(total, max(point[k] - lower[k], upper[k] - point[k]))
    return total


@jit_in_order
def home_leaves(tree, queries):
    """Return the nodes (m,) that queries (m, d) belong to, of about _HOME points.

    Queries with one home are near each other, and so are their neighbours. The numbers of nodes
    are kept to 16 bits, which NumPy sorts by radix.
    """
    nodes = np.empty(queries.shape[0], np.uint16)
    for q in range(queries.shape[0]):
        node = 0
        while tree.stops[node] - tree.starts[node] > _HOME:
            first = tree.children[node]
            if first < 0 or first + 1 > _LAST_HOME:
                break
            node = first
            if _least(tree, first + 1, queries[q]) < _least(tree, first, queries[q]):
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
            _sort_heap(best, found)
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
    nodes[0], bounds[0], height = 0, _least(tree, 0, point), 1
    while height > 0:
        height -= 1
        node, bound = nodes[height], bounds[height]
        while bound < worst and tree.children[node] >= 0:
            node, other = tree.children[node], tree.children[node] + 1
            bound, further = _least(tree, node, point), _least(tree, other, point)
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
        _panel_sq_distances(search.panels, i // UNIT, point, sq_dist)
        bits = _below(sq_dist, worst) & ((1 << min(stop - i, UNIT)) - 1)
        while bits != 0:
            j = _lowest(bits)
            bits &= bits - 1
            if sq_dist[j] < worst:
                if k > _SHORT:
                    sink(best, found, k, sq_dist[j], i + j)
                    worst = best[0]
                else:
                    _insert(best, found, sq_dist[j], i + j)
                    worst = best[k - 1]
    return worst


@jit_in_order
def _insert(best, found, s, i):
    """Put point i into the sorted list in place of the last; s is less than that."""
    p = best.size - 1
    while p > 0 and best[p - 1] > s:
        best[p], found[p] = best[p - 1], found[p - 1]
        p -= 1
    best[p], found[p] = s, i


@jit_in_order
def sink(best, found, size, s, i):
    """Put point i into a heap (the largest first) of `size` points, in place of the first."""
    p = 0
    while 2 * p + 1 < size:
        child = 2 * p + 1
        if child + 1 < size and best[child + 1] > best[child]:
            child += 1
        if best[child] <= s:
            break
        best[p], found[p] = best[child], found[child]
        p = child
    best[p], found[p] = s, i


@jit_in_order
def _sort_heap(best, found):
    """Turn a heap into a sorted list."""
    for last in range(best.size - 1, 0, -1):
        s, i = best[last], found[last]
        best[last], found[last] = best[0], found[0]
        sink(best, found, last, s, i)


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
        if _least(tree, node, point) > sq_radius:
            continue
        whole = _most(tree, node, point) <= sq_radius
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
                _panel_sq_distances(search.panels, i // UNIT, queries[q], sq_dist)
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
                _panel_sq_distances(search.panels, i // UNIT, queries[q], sq_dist)
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
    _sort_heap(best, found)
