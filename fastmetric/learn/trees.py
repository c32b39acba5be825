"""Building k-d trees on all cores, and what sums need to know of them."""

from __future__ import annotations

import numpy as np

from fastmetric import engine
from fastmetric.core.expansion import make_series
from fastmetric.core.groups import Reference
from fastmetric.core.nodes import empty_nodes, summarise
from fastmetric.core.registers import make_panels, panel_width
from fastmetric.core.tree import Tree, split_below, split_node, unsplit_tree

_TASK = 20_000  # points in a subtree that is one task
LEAF_SIZE = 64


def build_tree(X: np.ndarray, leaf_size: int = LEAF_SIZE, n_jobs: int | None = None) -> Tree:
    """Return the k-d tree of the points X (n, d), n >= 1, which are copied.

    Level by level while nodes are large, each node a task; then every subtree is one.
    """
    tree = unsplit_tree(X, leaf_size)
    level = [0]
    while level:
        large = [node for node in level if tree.stops[node] - tree.starts[node] > _TASK]
        small = [node for node in level if tree.stops[node] - tree.starts[node] <= _TASK]

        def split(node: int, large: frozenset[int] = frozenset(large)) -> None:
            if node in large:
                split_node(tree, node)
            else:
                split_below(tree, node)

        for _ in engine.run(split, large + small, n_jobs=n_jobs):
            pass
        level = [child for node in large for child in _children(tree, node)]
    return tree


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
        summarise(tree, weights, series, 1 / h, nodes, *part)

    for stage in stages:
        for _ in engine.run(task, stage, n_jobs=n_jobs):
            pass
    panels = make_panels(tree.rows, d, panel_width(tree.rows.dtype))
    return Reference(tree, panels, weights, nodes, series)
