"""Building a k-d tree on all cores."""

from __future__ import annotations

import numpy as np

from fastmetric import engine
from fastmetric.core.tree import Tree, split_below, split_node, unsplit_tree

_TASK = 20_000  # points in a subtree that is one task
LEAF_SIZE = 48


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
