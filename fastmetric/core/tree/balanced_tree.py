"""A balanced k-d tree: boxes over contiguous runs of reordered points.

A node is the range starts[i]:stops[i] of the points in tree order. Children stand side by
side, and every inner boundary is a multiple of UNIT points, so that a leaf is a whole number
of panels of `core.vector`. The shape depends on the number of points alone; what depends
on their coordinates is which point comes where, and the boxes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.vector.panel_scan import UNIT

DEEPEST = 64  # more levels than any tree has


class Tree(NamedTuple):
    """The nodes (m of them, the root first) and the points in their order."""

    order: np.ndarray  # (n,): point i of the tree is row order[i] of the data
    rows: np.ndarray  # (n, d), the points, reordered
    starts: np.ndarray  # (m,)
    stops: np.ndarray  # (m,)
    children: np.ndarray  # (m,): the first of two, which stand side by side; -1 for a leaf
    lower: np.ndarray  # (m, d), the corners of the boxes
    upper: np.ndarray  # (m, d)


def _shape(n: int, leaf_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return starts, stops and children of a tree of n points, level by level."""
    starts, stops = [np.array([0], np.int64)], [np.array([n], np.int64)]
    children: list[np.ndarray] = []
    count = 1
    while len(starts[-1]):
        split = stops[-1] - starts[-1] > leaf_size
        children.append(np.where(split, count + 2 * (np.cumsum(split) - 1), -1))
        first, last = starts[-1][split], stops[-1][split]
        units = -(-(last - first) // UNIT)
        middle = first + (units + 1) // 2 * UNIT
        starts.append(np.column_stack([first, middle]).ravel())
        stops.append(np.column_stack([middle, last]).ravel())
        count += 2 * len(first)
    return np.concatenate(starts), np.concatenate(stops), np.concatenate(children)


def unsplit_tree(X: np.ndarray, leaf_size: int) -> Tree:
    """Return the tree of the points X (n, d) with its shape laid out and no node split yet.

    A leaf holds at most max(leaf_size, UNIT) points.
    """
    n, d = X.shape
    starts, stops, children = _shape(n, max(leaf_size, UNIT))
    boxes = np.empty((2, len(starts), d), X.dtype)
    return Tree(np.arange(n), np.array(X, order="C"), starts, stops, children, boxes[0], boxes[1])


@jit
def split_node(tree, node):
    """Box a node and, unless it is a leaf, sort its points into its children.

    The cut is at the middle of the points, along the widest side.
    """
    start, stop = tree.starts[node], tree.stops[node]
    lower, upper = tree.lower[node], tree.upper[node]
    for k in range(lower.size):
        lower[k] = upper[k] = tree.rows[start, k]
    for i in range(start + 1, stop):
        for k in range(lower.size):
            x = tree.rows[i, k]
            lower[k] = min(lower[k], x)
            upper[k] = max(upper[k], x)
    first = tree.children[node]
    if first >= 0:
        widest = 0
        for k in range(1, lower.size):
            if upper[k] - lower[k] > upper[widest] - lower[widest]:
                widest = k
        _select(tree, start, stop, tree.starts[first + 1], widest)


@jit
def split_below(tree, node):
    """Split a node and everything below it."""
    stack = np.empty(DEEPEST, np.int64)
    stack[0], height = node, 1
    while height > 0:
        height -= 1
        node = stack[height]
        split_node(tree, node)
        first = tree.children[node]
        if first >= 0:
            stack[height], stack[height + 1] = first, first + 1
            height += 2


@jit
def _select(tree, start, stop, middle, k):
    """Reorder start:stop so that no coordinate k before `middle` exceeds one from there on.

    Quickselect. Both scans stop at equal keys, so that many duplicates are halved like
    anything else; the pivot is the median of three drawn from a fixed sequence, which no
    sorted or periodic input defeats.
    """
    rows, draw = tree.rows, np.uint64(88172645463325252)
    lo, hi = start, stop - 1
    while lo < hi:
        span = np.uint64(hi - lo + 1)
        draw = _next(draw)
        a = rows[lo + np.int64(draw % span), k]
        draw = _next(draw)
        b = rows[lo + np.int64(draw % span), k]
        draw = _next(draw)
        c = rows[lo + np.int64(draw % span), k]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = lo, hi
        while i <= j:
            while rows[i, k] < pivot:
                i += 1
            while rows[j, k] > pivot:
                j -= 1
            if i <= j:
                _swap(tree, i, j)
                i += 1
                j -= 1
        if middle <= j:
            hi = j
        elif middle >= i:
            lo = i
        else:
            return


@jit
def _next(draw):
    """Return the next of a sequence of pseudo-random numbers (xorshift)."""
    draw ^= draw << np.uint64(13)
    draw ^= draw >> np.uint64(7)
    return draw ^ (draw << np.uint64(17))


@jit
def _swap(tree, i, j):
    """Exchange two points."""
    tree.order[i], tree.order[j] = tree.order[j], tree.order[i]
    for k in range(tree.rows.shape[1]):
        tree.rows[i, k], tree.rows[j, k] = tree.rows[j, k], tree.rows[i, k]
