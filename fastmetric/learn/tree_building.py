"""Building k-d trees on all cores, and what sums need to know of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastmetric import engine
from fastmetric.core.far_field.expansions import make_series
from fastmetric.core.tree.balanced_tree import Tree, split_below, split_node, unsplit_tree
from fastmetric.core.tree.node_moments import empty_nodes, expand_nodes, locate_nodes
from fastmetric.core.vector.register_blocks import make_panels, panel_width
from fastmetric.core.walk.float32_leaves import WIDTH, write_float32
from fastmetric.core.walk.query_groups import Reference

_TASK = 20_000  # points in a subtree that is one task
NODES = 500  # in a task
LEAF_SIZE = 64
SUMS_LEAF_SIZE = 160  # larger than for neighbours: pairs are cheap, nodes are not


def build_tree(X: np.ndarray, leaf_size: int = LEAF_SIZE, n_jobs: int | None = None) -> Tree:
    """Return the k-d tree of the points X (n, d), n >= 1, which are copied."""
    return build_trees([X], leaf_size, n_jobs)[0]


def build_trees(
    sets: Sequence[np.ndarray], leaf_size: int = LEAF_SIZE, n_jobs: int | None = None
) -> list[Tree]:
    """Return the k-d trees of some sets of points.

    Level by level while nodes are large, each node a task; then every subtree is one.
    """
    trees = [unsplit_tree(X, leaf_size) for X in sets]
    level = [(tree, 0) for tree in trees]
    while level:
        large = [place for place in level if _size(*place) > _TASK]
        small = [place for place in level if _size(*place) <= _TASK]
        tasks = [(split_node, *place) for place in large] + [
            (split_below, *place) for place in small
        ]
        for _ in engine.run(lambda task: task[0](*task[1:]), tasks, n_jobs=n_jobs):
            pass
        level = [(tree, child) for tree, node in large for child in _children(tree, node)]
    return trees


def _size(tree: Tree, node: int) -> int:
    """Return the number of points of a node."""
    return int(tree.stops[node] - tree.starts[node])


def _children(tree: Tree, node: int) -> tuple[int, ...]:
    """Return the children of a node, none for a leaf."""
    first = int(tree.children[node])
    return (first, first + 1) if first >= 0 else ()


def summarised(
    tree: Tree,
    weights: np.ndarray,
    h: float,
    stages: list[list[tuple[int, int]]],
    *,
    expanded: bool,
    n_jobs: int | None,
) -> Reference:
    """Return a tree with its nodes summarised for a bandwidth, by their series if `expanded`.

    The nodes are done in stages of tasks, ranges of nodes: children in the same range as their
    parents, or in an earlier stage. tree.rows and `weights` are padded to whole panels.
    """
    d = tree.rows.shape[1]
    series = make_series(d)
    nodes = empty_nodes(len(tree.starts), d, len(series.indices) if expanded else 0)

    def task(part: tuple[int, int]) -> None:
        locate_nodes(tree, weights, nodes, *part)
        if expanded:  # else the series need not even be compiled
            expand_nodes(tree, weights, series, 1 / h, nodes, *part)

    for stage in stages:
        for _ in engine.run(task, stage, n_jobs=n_jobs):
            pass
    panels = make_panels(tree.rows, d, panel_width(tree.rows.dtype))
    none = np.empty((0, d, WIDTH), np.float32)
    return Reference(tree, panels, none, weights, nodes, series)


def with_float32_leaves(reference: Reference, h: float, n_jobs: int | None) -> Reference:
    """Return the tree with its leaves in float32, too, for a bandwidth."""
    n, d = reference.tree.rows.shape
    panels = np.zeros((n // WIDTH, d, WIDTH), np.float32)
    count = len(reference.tree.starts)
    parts = [(first, min(first + NODES, count)) for first in range(0, count, NODES)]
    for _ in engine.run(
        lambda part: write_float32(reference, 1 / h, panels, *part), parts, n_jobs=n_jobs
    ):
        pass
    return reference._replace(float32_panels=panels)
