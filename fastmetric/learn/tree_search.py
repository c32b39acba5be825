"""Queries to a k-d tree, in blocks of neighbouring queries on all threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from fastmetric import engine
from fastmetric.core.tree.balanced_tree import Tree
from fastmetric.core.tree.nearest_search import Search, nearest, nodes_of
from fastmetric.core.vector.panel_scan import UNIT
from fastmetric.core.vector.register_blocks import make_panels
from fastmetric.learn.tree_building import LEAF_SIZE, build_tree

Result = TypeVar("Result")

_COORDINATES = 8192  # of the queries in a block: a millisecond of work in the plane


def searchable(tree: Tree) -> Search:
    """Return the tree with its points in panels."""
    n, d = tree.rows.shape
    return Search(tree, make_panels(np.pad(tree.rows, ((0, -n % UNIT), (0, 0))), d, UNIT))


def in_blocks(
    tree: Tree,
    X: np.ndarray,
    block: Callable[[np.ndarray], Result],
    n_jobs: int | None,
) -> Iterator[Result]:
    """Yield block(numbers of queries) for all queries X (m, d), neighbours together."""
    size = max(16, _COORDINATES // X.shape[1])
    parts = [slice(start, start + size) for start in range(0, len(X), size)]

    def nodes_of_part(part: slice) -> np.ndarray:
        return nodes_of(tree, np.array(X[part], order="C"))

    order = np.arange(len(X))
    if len(parts) > 1:
        nodes = np.concatenate(list(engine.run(nodes_of_part, parts, n_jobs=n_jobs)))
        order = np.argsort(nodes, kind="stable")
    yield from engine.run(lambda part: block(order[part]), parts, n_jobs=n_jobs)


def nearest_points(
    search: Search, X: np.ndarray, k: int, n_jobs: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances (m, k) and row numbers (m, k) of the k nearest points of X (m, d)."""
    dist, ind = np.empty((len(X), k), X.dtype), np.empty((len(X), k), np.int64)

    def block(which: np.ndarray) -> None:
        nearest(search, X[which], which, dist, ind)

    for _ in in_blocks(search.tree, X, block, n_jobs):
        pass
    return dist, ind


def nearest_rows(points: np.ndarray, query: np.ndarray, k: int, n_jobs: int | None) -> np.ndarray:
    """Return the row numbers (m, k) of the nearest of `points` (n, d) to each of `query` (m, d)."""
    search = searchable(build_tree(points, LEAF_SIZE, n_jobs))
    return nearest_points(search, query, k, n_jobs)[1]
