"""Log densities of local Gaussians in few dimensions, by a walk over a k-d tree [MAN-6]."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.gaussians.gaussian_tree_walk import Bounds, Leaves, bound_nodes, log_sums
from fastmetric.core.tree.balanced_tree import Tree
from fastmetric.learn import costs
from fastmetric.learn.chooser import cheaper
from fastmetric.learn.manifold.covariance_grid import ShapeGrid, shapes_of
from fastmetric.learn.manifold.neighbourhood_pca import LocalGaussians
from fastmetric.learn.tree_building import build_tree

_LEAF_SIZE = 128
_QUERIES = 512  # of a block, at most
_LONGEST = 1e8  # nanoseconds of a block, if no node is omitted
_TRIAL = 32  # queries of a trial, and at most one in so many


class _Points(NamedTuple):
    """Local Gaussians in the order of a tree, float64."""

    gaussians: LocalGaussians
    tree: Tree
    points: np.ndarray  # (D, n)
    directions: np.ndarray  # (q, D, n)
    slack: float  # relative error of Pythagoras for the parts along and across the directions


class _Walk(NamedTuple):
    """A tree over Gaussians of one shape."""

    tree: Tree
    leaves: Leaves
    bounds: Bounds


def log_densities_by_tree(
    gaussians: LocalGaussians,
    query: np.ndarray,
    grid: ShapeGrid,
    rtol: float,
    n_jobs: int | None = None,
    label: str | None = None,
) -> np.ndarray | None:
    """Return the log densities (Q, S, m) at the queries (m, D); None if a tree would not pay.

    Omitted terms are at most rtol of a density, or half an eps.
    """
    (n, n_features), m = gaussians.X.shape, len(query)
    if n_features > costs.TREE_DIMENSIONS or min(n, m) < costs.GAUSSIAN_TREE_ROWS:
        return None
    points = _in_order(gaussians, int(grid.counts[-1]), n_jobs)
    shapes = [ShapeGrid(*shape) for shape in product(grid.counts[:, None], grid.noise[:, None])]
    log_rtol = np.log(max(rtol, float(np.finfo(query.dtype).eps) / 2))
    query = query.astype(np.float64, copy=False)
    if not _pays(points, shapes, query[:: max(_TRIAL, m // _TRIAL)], log_rtol, n_jobs):
        return None
    # Neighbouring queries are consecutive: their leaves are in the cache.
    order = build_tree(query, n_jobs=n_jobs).order
    logs = np.empty((len(shapes), m))
    for out, shape in zip(logs, shapes, strict=True):
        walk = _walk(points, shape)
        size = max(1, min(_QUERIES, int(_LONGEST / (n * _pair_cost(n_features, shape)))))
        blocks = [order[first : first + size] for first in range(0, m, size)]

        def task(rows: np.ndarray, walk: _Walk = walk) -> np.ndarray:
            return log_sums(*walk, query[rows], log_rtol)[0]

        parts = engine.run(task, blocks, n_jobs=n_jobs, label=label)
        for rows, part in zip(blocks, parts, strict=True):
            out[rows] = part
    return logs.reshape(len(grid.counts), len(grid.noise), m) - np.log(n)


def _in_order(gaussians: LocalGaussians, q: int, n_jobs: int | None) -> _Points:
    """Return the Gaussians with q of their directions, in the order of their tree."""
    tree = build_tree(gaussians.X.astype(np.float64, copy=False), _LEAF_SIZE, n_jobs)
    directions = gaussians.directions[tree.order, :q].transpose(1, 2, 0)
    directions = np.ascontiguousarray(directions, np.float64)
    # The squares along and across a direction v add up, to within 1 - |v|² of the first.
    off = np.abs(1 - np.einsum("jkn,jkn->jn", directions, directions)).max(initial=0)
    return _Points(
        gaussians, tree, np.ascontiguousarray(tree.rows.T), directions, slack=2 * float(off)
    )


def _walk(points: _Points, shape: ShapeGrid) -> _Walk:
    """Return the tree for one shape."""
    gaussians, tree, q = points.gaussians, points.tree, int(shape.counts[0])
    found = shapes_of(gaussians, tree.order, shape, np.dtype(np.float64))
    log_tops = found.log_factors[:, 0, 0]
    largest = gaussians.variances[tree.order, :q].max(axis=1, initial=0) + shape.noise[0]
    inverse = np.ascontiguousarray(found.inverse[:, 0].T)
    leaves = Leaves(
        points.points, points.directions[:q], inverse, float(found.inverse_noise[0]), log_tops
    )
    return _Walk(tree, leaves, bound_nodes(tree, log_tops, largest, points.slack))


def _pair_cost(n_features: int, shape: ShapeGrid) -> float:
    """Return the cost of a pair in a leaf."""
    table = costs.LOCAL_GAUSSIANS
    return table.pair + table.product * 2 * n_features * (int(shape.counts[0]) + 1)


def _pays(
    points: _Points, shapes: list[ShapeGrid], trial: np.ndarray, log_rtol: float, n_jobs: int | None
) -> bool:
    """Return whether the tree costs less than all pairs, from the counted work of a few queries."""
    q, n_features, n = points.directions.shape
    table, tree = costs.LOCAL_GAUSSIANS, 0.0
    in_blocks = (q + 1) * (table.block_direction + table.block_product * n_features)
    dense = len(trial) * n * (table.block_shape * len(shapes) + in_blocks)
    for shape in shapes:
        walk, cost = _walk(points, shape), _pair_cost(n_features, shape)

        def task(x: np.ndarray, walk: _Walk = walk) -> tuple[int, int]:
            return log_sums(*walk, x[None], log_rtol)[1:]

        for pairs, nodes in engine.run(task, list(trial), n_jobs=n_jobs):
            tree += pairs * cost + nodes * table.node
        if not cheaper(tree, dense):
            return False
    return True
