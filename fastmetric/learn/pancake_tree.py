"""Log densities of pancakes in few dimensions, by a walk over a k-d tree [MAN-6]."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.pancake_tree import Bounds, Leaves, bound_nodes, log_sums
from fastmetric.core.tree import Tree
from fastmetric.learn.local_pca import Pancakes
from fastmetric.learn.shapes import Grid, shapes_of
from fastmetric.learn.trees import build_tree

_MOST_FEATURES = 12
_FEWEST = 256  # queries, and points, with which a tree may pay
_LEAF_SIZE = 128
_PAIRS = 2**25  # of a block, at most
_QUERIES = 512  # of a block, at most
_TRIAL = 32
# Nanoseconds, of which only the ratios matter: a pair in a leaf, and each of its products; a node
# that is opened; a shape of a pair in blocks, and each product of the pair.
_PAIR, _PRODUCT, _NODE = 2.5, 0.25, 25.0
_BLOCK_SHAPE, _BLOCK_PRODUCT = 2.2, 0.06


class _Points(NamedTuple):
    """Pancakes in the order of a tree, float64."""

    pancakes: Pancakes
    tree: Tree
    points: np.ndarray  # (D, n)
    directions: np.ndarray  # (q, D, n)


class _Walk(NamedTuple):
    """A tree over pancakes of one shape."""

    tree: Tree
    leaves: Leaves
    bounds: Bounds


def log_densities_by_tree(
    pancakes: Pancakes,
    query: np.ndarray,
    grid: Grid,
    rtol: float,
    n_jobs: int | None = None,
    label: str | None = None,
) -> np.ndarray | None:
    """Return the log densities (Q, S, m) at the queries (m, D); None if a tree would not pay.

    What is left out is at most rtol of a density, or half an eps.
    """
    (n, n_features), m = pancakes.X.shape, len(query)
    if n_features > _MOST_FEATURES or min(n, m) < _FEWEST:
        return None
    points = _in_order(pancakes, int(grid.counts[-1]), n_jobs)
    shapes = [Grid(*shape) for shape in product(grid.counts[:, None], grid.noise[:, None])]
    log_rtol = np.log(max(rtol, float(np.finfo(query.dtype).eps) / 2))
    query = query.astype(np.float64, copy=False)
    if not _pays(points, shapes, query[:: max(1, m // _TRIAL)][:_TRIAL], log_rtol):
        return None
    # Neighbours one after the other: they find their leaves in the cache.
    order = build_tree(query, n_jobs=n_jobs).order
    size = max(1, min(_QUERIES, _PAIRS // n))
    blocks = [order[first : first + size] for first in range(0, m, size)]
    logs = np.empty((len(shapes), m))
    for out, shape in zip(logs, shapes, strict=True):
        walk = _walk(points, shape)

        def task(rows: np.ndarray, walk: _Walk = walk) -> np.ndarray:
            return log_sums(*walk, query[rows], log_rtol)[0]

        parts = engine.run(task, blocks, n_jobs=n_jobs, label=label)
        for rows, part in zip(blocks, parts, strict=True):
            out[rows] = part
    return logs.reshape(len(grid.counts), len(grid.noise), m) - np.log(n)


def _in_order(pancakes: Pancakes, q: int, n_jobs: int | None) -> _Points:
    """Return the pancakes with q of their directions in the order of their tree."""
    tree = build_tree(pancakes.X.astype(np.float64, copy=False), _LEAF_SIZE, n_jobs)
    directions = pancakes.directions[tree.order, :q].transpose(1, 2, 0)
    return _Points(
        pancakes,
        tree,
        np.ascontiguousarray(tree.rows.T),
        np.ascontiguousarray(directions, np.float64),
    )


def _walk(points: _Points, shape: Grid) -> _Walk:
    """Return the tree for one shape."""
    pancakes, tree, q = points.pancakes, points.tree, int(shape.counts[0])
    found = shapes_of(pancakes, tree.order, shape, np.dtype(np.float64))
    log_tops = found.log_factors[:, 0, 0]
    largest = pancakes.variances[tree.order, :q].max(axis=1, initial=0) + shape.noise[0]
    # Directions are orthonormal to some eps.
    slack = 8 * (q + 1) * float(np.finfo(pancakes.X.dtype).eps)
    inverse = np.ascontiguousarray(found.inverse[:, 0].T)
    leaves = Leaves(
        points.points, points.directions[:q], inverse, float(found.inverse_noise[0]), log_tops
    )
    return _Walk(tree, leaves, bound_nodes(tree, log_tops, largest, slack))


def _pays(points: _Points, shapes: list[Grid], trial: np.ndarray, log_rtol: float) -> bool:
    """Return whether the tree promises less work than all pairs, by what a few queries count."""
    q, n_features, n = points.directions.shape
    cost = 0.0
    for shape in shapes:
        _, pairs, nodes = log_sums(*_walk(points, shape), trial, log_rtol)
        products = 2 * n_features * (int(shape.counts[0]) + 1)
        cost += pairs * (_PAIR + _PRODUCT * products) + nodes * _NODE
    in_blocks = _BLOCK_SHAPE * len(shapes) + _BLOCK_PRODUCT * n_features * (q + 1)
    return cost < len(trial) * n * in_blocks
