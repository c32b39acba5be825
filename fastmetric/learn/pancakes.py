"""The log density of a mixture of pancakes, at many queries and for a grid of shapes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.pancakes import (
    LOWEST,
    Shapes,
    Sums,
    add_by_differences,
    add_by_products,
)
from fastmetric.learn.local_pca import Pancakes

_FLOPS = 2e9  # of a block, some 50 ms
_SLOWER = 8  # the rate of products, in that of differences
_QUERIES = 512  # in a block
_TILE = 512  # projections of a query at a time: with the queries of a block, they stay in the cache
_GRID_VALUES = 2**18  # sums of a block
# By how much products may change a log density; else differences are taken.
_HARMLESS = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-2}


class Grid(NamedTuple):
    """Shapes to evaluate: numbers of directions by variances of the noise."""

    counts: np.ndarray  # (Q,), increasing
    noise: np.ndarray  # (S,), float64


class _Block(NamedTuple):
    """Queries and Gaussians of one task."""

    rows: slice
    points: slice


def log_densities(
    pancakes: Pancakes,
    query: np.ndarray,
    grid: Grid,
    n_jobs: int | None = None,
    label: str | None = None,
) -> np.ndarray:
    """Return the log densities (Q, S, m), float64, at the queries (m, D) [MAN-1].

    query is in the precision of the points.
    """
    by_products = _products_are_harmless(pancakes, query, grid)
    add = _add_by_products if by_products else _add_by_differences
    blocks = _blocks(len(query), pancakes, grid, 1 if by_products else _SLOWER)

    def task(block: _Block) -> np.ndarray:
        shape = (len(grid.counts), len(grid.noise), block.rows.stop - block.rows.start)
        sums = Sums(np.full(shape, LOWEST), np.zeros(shape))
        add(pancakes, query[block.rows], block.points, grid, sums)
        with np.errstate(divide="ignore"):  # a term below the smallest number is no term
            return sums.top + np.log(sums.total)

    logs = np.full((len(grid.counts), len(grid.noise), len(query)), -np.inf)
    parts = engine.run(task, blocks, n_jobs=n_jobs, label=label)
    for block, part in zip(blocks, parts, strict=True):
        rows = logs[:, :, block.rows]
        np.logaddexp(rows, part, out=rows)
    return logs - np.log(len(pancakes.X))


def _products_are_harmless(pancakes: Pancakes, query: np.ndarray, grid: Grid) -> bool:
    """Return whether the rounding of products is too small to matter.

    |x|² - 2 x . x_i + |x_i|² is off by about eps (|x|² + |x_i|²), and is divided by the noise.
    """
    largest = _largest_norm(query, pancakes.center) + _largest_norm(pancakes.X, pancakes.center)
    bound = 4 * np.finfo(query.dtype).eps * largest
    return bool(bound <= _HARMLESS[query.dtype] * grid.noise.min())


def _largest_norm(X: np.ndarray, center: np.ndarray) -> float:
    """Return the largest |x - center|², block by block."""
    step = max(1, 2**20 // X.shape[1])
    largest = 0.0
    for first in range(0, len(X), step):
        centred = X[first : first + step] - center
        largest = max(largest, float(np.einsum("ij,ij->i", centred, centred).max()))
    return largest


def _blocks(m: int, pancakes: Pancakes, grid: Grid, slower: int) -> list[_Block]:
    """Return the blocks, query range by query range."""
    n, q, n_features = pancakes.directions.shape
    room = _GRID_VALUES // (len(grid.counts) * len(grid.noise))
    side = min(_QUERIES, max(64, room), m)
    # What a pair costs besides its products: a term for each shape.
    cost = 2 * slower * n_features * (q + 1) + 40 * len(grid.counts) * len(grid.noise)
    depth = max(1, int(_FLOPS / (side * cost)))
    return [
        _Block(slice(i, min(i + side, m)), slice(j, min(j + depth, n)))
        for i in range(0, m, side)
        for j in range(0, n, depth)
    ]


def _shapes(pancakes: Pancakes, points: slice, grid: Grid, dtype: np.dtype) -> Shapes:
    """Return the shapes of some of the pancakes, with the noise of the grid [MAN-2], [MAN-4]."""
    n_features = pancakes.X.shape[1]
    largest = int(grid.counts[-1])
    variances = pancakes.variances[points, None, :largest] + grid.noise[:, None]  # (t, S, q)
    log_dets = np.zeros((len(variances), len(grid.noise), largest + 1))
    np.cumsum(np.log(variances), axis=2, out=log_dets[:, :, 1:])
    across = (n_features - grid.counts)[:, None] * np.log(grid.noise)
    log_dets = log_dets[:, :, grid.counts].transpose(0, 2, 1) + across
    log_factors = -0.5 * (n_features * np.log(2 * np.pi) + log_dets)
    with np.errstate(over="ignore"):  # a noise next to nothing: the density is zero, or infinite
        return Shapes(
            (1 / variances).astype(dtype),
            (1 / grid.noise).astype(dtype),
            np.ascontiguousarray(log_factors),
        )


def _add_by_products(
    pancakes: Pancakes, query: np.ndarray, points: slice, grid: Grid, sums: Sums
) -> None:
    """Add some of the pancakes to the sums at a block of queries, by matrix products."""
    q, n_features = int(grid.counts[-1]), query.shape[1]
    query = query - pancakes.center
    query_norms = np.einsum("ij,ij->i", query, query)
    step = max(1, _TILE // max(q, 1))
    projections = np.empty((step * q, len(query)), query.dtype)
    products = np.empty((step, len(query)), query.dtype)
    for first in range(points.start, points.stop, step):
        part = slice(first, min(first + step, points.stop))
        t = part.stop - part.start
        X = pancakes.X[part] - pancakes.center
        flat = pancakes.directions[part, :q].reshape(t * q, n_features)
        add_by_products(
            np.matmul(X, query.T, out=products[:t]),
            np.matmul(flat, query.T, out=projections[: t * q]),
            np.einsum("ij,ij->i", X, X),
            query_norms,
            pancakes.offsets[part, :q],
            _shapes(pancakes, part, grid, query.dtype),
            grid.counts,
            sums,
        )


def _add_by_differences(
    pancakes: Pancakes, query: np.ndarray, points: slice, grid: Grid, sums: Sums
) -> None:
    """Add some of the pancakes to the sums at a block of queries, by differences."""
    add_by_differences(
        np.ascontiguousarray(query.T),
        pancakes.X[points],
        pancakes.directions[points],
        _shapes(pancakes, points, grid, np.dtype(np.float64)),
        grid.counts,
        sums,
    )
