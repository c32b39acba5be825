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
_PAIRS = 2**22  # of a block: screening holds a number for each
# Screening: nats of rounding and a share of pairs with which it pays, queries of the trial, and
# the share of a density that may be left out.
_MOST_ROUNDING, _FEW_PAIRS, _TRIAL, _LEFT_OUT = 10.0, 0.1, 32, 1e-12
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

    @property
    def size(self) -> int:
        """Return the number of pairs."""
        return (self.rows.stop - self.rows.start) * (self.points.stop - self.points.start)


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
        floors = _floors(pancakes, query, grid, n_jobs) - margin
        add = partial(_add_screened, floors=floors, margin=margin)
    blocks = _blocks(len(query), pancakes, grid, 1 if by_products else _SLOWER)

    def task(block: _Block) -> np.ndarray:
        sums = _empty_sums(grid, block.rows.stop - block.rows.start)
        add(pancakes, query, block, grid, sums)
        with np.errstate(divide="ignore"):  # a term below the smallest number is no term
            return sums.top + np.log(sums.total)

    logs = np.full((len(grid.counts), len(grid.noise), len(query)), -np.inf)
    parts = engine.run(task, blocks, n_jobs=n_jobs, label=label)
    for block, part in zip(blocks, parts, strict=True):
        rows = logs[:, :, block.rows]
        np.logaddexp(rows, part, out=rows)
    return logs - np.log(len(pancakes.X))


def _empty_sums(grid: Grid, m: int) -> Sums:
    """Return sums at m queries to which nothing was added yet."""
    shape = (len(grid.counts), len(grid.noise), m)
    return Sums(np.full(shape, LOWEST), np.zeros(shape))


def _products_are_harmless(size: float, dtype: np.dtype, grid: Grid) -> bool:
    """Return whether the rounding of products is too small to matter.

    |x|² - 2 x . x_i + |x_i|² is off by about eps (|x|² + |x_i|²), and is divided by the noise;
    `size` is the largest such sum. The inverse of the noise must not overflow.
    """
    limits, noise = np.finfo(dtype), float(grid.noise.min())
    small = 4 * float(limits.eps) * size <= _HARMLESS[dtype] * noise
    return small and noise * float(limits.max) > 1


def _margin_of_screening(
    size: float, pancakes: Pancakes, query: np.ndarray, grid: Grid
) -> float | None:
    """Return how far below the largest a term may be without being looked at; None: screen not.

    In many dimensions few Gaussians matter at a query. Products in float32, at twice the speed,
    find them; rounding moves a term by a bound for sums of D products, in each of q directions.
    Squares and inverse variances must be within the range of float32.
    """
    several = len(grid.counts) * len(grid.noise) > 1
    if query.dtype == np.float32 or several or len(query) < _TRIAL:
        return None
    n, n_features = pancakes.X.shape
    q, noise, limit = int(grid.counts[-1]), float(grid.noise[0]), float(np.finfo(np.float32).max)
    if 4 * size > limit or noise * limit < 1:
        return None
    largest = n_features * abs(np.log(2 * np.pi * (pancakes.variances.max(initial=0) + noise)))
    rounding = 8 * np.sqrt(q + 1) * n_features * size / noise + largest
    rounding += n_features * abs(np.log(2 * np.pi * noise))
    rounding *= float(np.finfo(np.float32).eps)
    if rounding > _MOST_ROUNDING:
        return None
    margin = 2 * rounding + np.log(n / _LEFT_OUT)
    trial = query[:: max(1, len(query) // _TRIAL)][:_TRIAL]
    block = _Block(slice(0, len(trial)), slice(0, min(n, 16 * _TRIAL)))
    floors = _floors(pancakes, trial, grid, 1) - margin
    rows, _ = _screened(pancakes, trial, block, grid, floors, margin)
    return margin if len(rows) <= _FEW_PAIRS * block.size else None


def _floors(pancakes: Pancakes, query: np.ndarray, grid: Grid, n_jobs: int | None) -> np.ndarray:
    """Return a term (m,), float64, of the log density at each query: mostly a large one.

    That of the nearest point, as products in float32 see it.
    """
    dtype, m = np.dtype(np.float32), len(query)

    def task(block: _Block) -> tuple[np.ndarray, np.ndarray]:
        points = (pancakes.X[block.points] - pancakes.center).astype(dtype)
        closeness = (query[block.rows] - pancakes.center).astype(dtype) @ points.T
        closeness -= np.einsum("ij,ij->i", points, points) / 2  # (|x|² - |x - x_i|²) / 2
        nearest = closeness.argmax(axis=1)
        return nearest + block.points.start, closeness[np.arange(len(nearest)), nearest]

    blocks = [
        _Block(slice(i, min(i + _QUERIES, m)), slice(j, min(j + _TILE, len(pancakes.X))))
        for i in range(0, m, _QUERIES)
        for j in range(0, len(pancakes.X), _TILE)
    ]
    nearest, best = np.zeros(m, np.intp), np.full(m, -np.inf, dtype)
    parts = engine.run(task, blocks, n_jobs=n_jobs)
    for block, (found, closeness) in zip(blocks, parts, strict=True):
        better = closeness > best[block.rows]
        nearest[block.rows][better], best[block.rows][better] = found[better], closeness[better]
    sums = _empty_sums(grid, m)
    points, columns = np.unique(nearest, return_inverse=True)
    _add_pairs(pancakes, query, points, columns, np.arange(m), grid, sums)
    return sums.top[0, 0]


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
    depth = max(1, int(min(_FLOPS / cost, _PAIRS) / side))
    return [
        _Block(slice(i, min(i + side, m)), slice(j, min(j + depth, n)))
        for i in range(0, m, side)
        for j in range(0, n, depth)
    ]


def _shapes(pancakes: Pancakes, points: slice | np.ndarray, grid: Grid, dtype: np.dtype) -> Shapes:
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
    pancakes: Pancakes, query: np.ndarray, block: _Block, grid: Grid, sums: Sums
) -> None:
    """Add the pancakes of a block to the sums at its queries, by matrix products."""
    dtype, q = query.dtype, int(grid.counts[-1])
    for part, products in _tiles(pancakes, query[block.rows], block.points, q, dtype):
        add_by_products(products, _shapes(pancakes, part, grid, dtype), grid.counts, sums)


def _add_by_differences(
    pancakes: Pancakes, query: np.ndarray, block: _Block, grid: Grid, sums: Sums
) -> None:
    """Add the pancakes of a block to the sums at its queries, by differences."""
    add_by_differences(
        np.ascontiguousarray(query[block.rows].T),
        pancakes.X[block.points],
        pancakes.directions[block.points],
        _shapes(pancakes, block.points, grid, np.dtype(np.float64)),
        grid.counts,
        sums,
    )


def _add_screened(
    pancakes: Pancakes,
    query: np.ndarray,
    block: _Block,
    grid: Grid,
    sums: Sums,
    *,
    floors: np.ndarray,
    margin: float,
) -> None:
    """Add those pancakes of a block that matter to the sums at its queries, pair by pair."""
    rows, columns = _screened(pancakes, query, block, grid, floors, margin)
    if len(rows) > _FEW_PAIRS * block.size:
        _add_by_products(pancakes, query, block, grid, sums)
    else:
        _add_pairs(pancakes, query[block.rows], block.points, rows, columns, grid, sums)


def _screened(
    pancakes: Pancakes,
    query: np.ndarray,
    block: _Block,
    grid: Grid,
    floors: np.ndarray,
    margin: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of a block that matter: its points and its queries, by their place (p,).

    By products in float32: terms above the floors (m,), and up to `margin` below the largest.
    """
    dtype, q, first = np.dtype(np.float32), int(grid.counts[-1]), block.points.start
    terms = np.empty((block.points.stop - first, block.rows.stop - block.rows.start), dtype)
    for part, products in _tiles(pancakes, query[block.rows], block.points, q, dtype):
        shapes = _shapes(pancakes, part, grid, dtype)
        terms_by_products(products, shapes, terms[part.start - first : part.stop - first])
    floors = np.maximum(floors[block.rows], terms.max(axis=0) - margin)
    rows, columns = np.nonzero(terms >= floors.astype(dtype))
    return rows, columns


def _add_pairs(
    pancakes: Pancakes,
    query: np.ndarray,
    points: slice | np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    grid: Grid,
    sums: Sums,
) -> None:
    """Add the pairs of pancakes `points`[rows] and queries `columns` to the sums."""
    add_pairs(
        query,
        pancakes.X[points],
        pancakes.directions[points, : int(grid.counts[-1])],
        _shapes(pancakes, points, grid, query.dtype),
        rows,
        columns,
        sums,
    )
