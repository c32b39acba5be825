"""The log density of a mixture of pancakes, at many queries and for a grid of shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.pancakes import (
    LOWEST,
    Products,
    Shapes,
    Sums,
    add_by_differences,
    add_by_products,
    add_pairs,
    terms_by_products,
)
from fastmetric.learn.local_pca import Pancakes

_FLOPS = 2e9  # of a block, some 50 ms
_SLOWER = 8  # the rate of products, in that of differences
_QUERIES = 512  # in a block
_TILE = 2048  # projections of a query at a time
_GRID_VALUES = 2**18  # sums of a block
# Screening: nats of rounding with which it pays, pairs that may matter, queries of the trial.
_MOST_ROUNDING, _FEW_PAIRS, _TRIAL = 10.0, 0.05, 32
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
    size = _largest_norm(query, pancakes.center) + _largest_norm(pancakes.X, pancakes.center)
    by_products = _products_are_harmless(size, query.dtype, grid)
    add: Callable[..., None] = _add_by_products if by_products else _add_by_differences
    if by_products and (margin := _margin_of_screening(size, pancakes, query, grid)):
        add = partial(_add_screened, margin=margin)
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


def _products_are_harmless(size: float, dtype: np.dtype, grid: Grid) -> bool:
    """Return whether the rounding of products is too small to matter.

    |x|² - 2 x . x_i + |x_i|² is off by about eps (|x|² + |x_i|²), and is divided by the noise;
    `size` is the largest such sum.
    """
    return bool(4 * np.finfo(dtype).eps * size <= _HARMLESS[dtype] * grid.noise.min())


def _margin_of_screening(
    size: float, pancakes: Pancakes, query: np.ndarray, grid: Grid
) -> float | None:
    """Return how far below the largest a term may be without being looked at; None: screen not.

    In many dimensions few Gaussians matter at a query. Products in float32, at twice the speed,
    find them; rounding moves a term by a bound for sums of D products, in each of q directions.
    """
    if query.dtype == np.float32 or len(grid.counts) * len(grid.noise) > 1:
        return None
    n, n_features = pancakes.X.shape
    q, noise = int(grid.counts[-1]), float(grid.noise[0])
    largest = n_features * abs(np.log(2 * np.pi * (pancakes.variances.max(initial=0) + noise)))
    rounding = 8 * np.sqrt(q + 1) * n_features * size / noise + largest
    rounding += n_features * abs(np.log(2 * np.pi * noise))
    rounding *= float(np.finfo(np.float32).eps)
    if rounding > _MOST_ROUNDING:
        return None
    # All terms left out, up to n of them, add less than rounding does.
    margin = 2 * rounding + np.log(n / np.finfo(np.float64).eps)
    trial = query[:: max(1, len(query) // _TRIAL)][:_TRIAL]
    some = slice(0, min(n, 16 * _TRIAL))
    rows, _ = _screened(pancakes, trial, some, grid, margin)
    return margin if len(rows) <= _FEW_PAIRS * len(trial) * some.stop else None


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


def _tiles(
    pancakes: Pancakes, query: np.ndarray, points: slice, q: int, dtype: np.dtype
) -> Iterator[tuple[slice, Products]]:
    """Yield ranges of the points with their products with the queries (m, D), in `dtype`.

    The arrays of one tile are those of the next.
    """
    query = (query - pancakes.center).astype(dtype, copy=False)
    query_norms = np.einsum("ij,ij->i", query, query)
    step = max(1, _TILE // max(q, 1))
    projections = np.empty((step * q, len(query)), dtype)
    products = np.empty((step, len(query)), dtype)
    for first in range(points.start, points.stop, step):
        part = slice(first, min(first + step, points.stop))
        t = part.stop - part.start
        X = (pancakes.X[part] - pancakes.center).astype(dtype, copy=False)
        directions = pancakes.directions[part, :q].astype(dtype, copy=False)
        flat = directions.reshape(t * q, X.shape[1])
        yield (
            part,
            Products(
                np.matmul(X, query.T, out=products[:t]),
                np.matmul(flat, query.T, out=projections[: t * q]),
                pancakes.offsets[part, :q].astype(dtype, copy=False),
                np.einsum("ij,ij->i", X, X),
                query_norms,
            ),
        )


def _add_by_products(
    pancakes: Pancakes, query: np.ndarray, points: slice, grid: Grid, sums: Sums
) -> None:
    """Add some of the pancakes to the sums at a block of queries, by matrix products."""
    dtype = query.dtype
    for part, products in _tiles(pancakes, query, points, int(grid.counts[-1]), dtype):
        add_by_products(products, _shapes(pancakes, part, grid, dtype), grid.counts, sums)


def _screened(
    pancakes: Pancakes, query: np.ndarray, points: slice, grid: Grid, margin: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs that matter: point numbers, from that of the first on, and queries (p,).

    By products in float32: terms up to `margin` below a query's largest among these points.
    """
    dtype, q = np.dtype(np.float32), int(grid.counts[-1])
    terms = np.empty((points.stop - points.start, len(query)), dtype)
    for part, products in _tiles(pancakes, query, points, q, dtype):
        shapes = _shapes(pancakes, part, grid, dtype)
        terms_by_products(
            products, shapes, terms[part.start - points.start : part.stop - points.start]
        )
    return np.nonzero(terms >= terms.max(axis=0) - dtype.type(margin))


def _add_screened(
    pancakes: Pancakes, query: np.ndarray, points: slice, grid: Grid, sums: Sums, margin: float
) -> None:
    """Add some of the pancakes to the sums at a block of queries: those that matter, exactly."""
    rows, columns = _screened(pancakes, query, points, grid, margin)
    if len(rows) > _FEW_PAIRS * len(query) * (points.stop - points.start):
        _add_by_products(pancakes, query, points, grid, sums)
        return
    q = int(grid.counts[-1])
    add_pairs(
        query,
        pancakes.X[points],
        pancakes.directions[points, :q],
        _shapes(pancakes, points, grid, query.dtype),
        rows,
        columns,
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
