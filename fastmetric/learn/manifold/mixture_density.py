"""The log density of a mixture of local Gaussians, at many queries and for a grid of shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from fastmetric import engine
from fastmetric.core.error_bounds import LOCAL_GAUSSIANS
from fastmetric.core.gaussians.local_gaussians import (
    Products,
    add_by_differences,
    add_by_products,
)
from fastmetric.core.shifted_sums import ShiftedSums
from fastmetric.learn.manifold.covariance_grid import Block, ShapeGrid, grid_sums, shapes_of
from fastmetric.learn.manifold.gaussian_tree import log_densities_by_tree
from fastmetric.learn.manifold.marginal_screening import add_screened, make_screen
from fastmetric.learn.manifold.neighbourhood_pca import LocalGaussians

_FLOPS = 2e9  # of a block, some 50 ms
_SLOWER = 8  # the cost of a difference, relative to that of a product
_QUERIES = 512  # in a block
_SCREENED = 2048  # queries in a block that is screened: marginals are computed once for all
_TILE = 2048  # projections of a query at a time
_GRID_VALUES = 2**18  # sums of a block


def log_densities(
    gaussians: LocalGaussians,
    query: np.ndarray,
    grid: ShapeGrid,
    rtol: float = 0.0,
    n_jobs: int | None = None,
    label: str | None = None,
) -> np.ndarray:
    """Return the log densities (Q, S, m), float64, at the queries (m, D) [MAN-1].

    query is in the precision of the points. `rtol`: the share of a density that may be omitted.
    """
    walked = log_densities_by_tree(gaussians, query, grid, rtol, n_jobs, label)
    if walked is not None:
        return walked
    size = _largest_norm(query, gaussians.center) + _largest_norm(gaussians.X, gaussians.center)
    add: Callable[..., None] = _add_by_differences
    side, products = _QUERIES, _SLOWER * gaussians.X.shape[1]
    if _products_are_harmless(size, query.dtype, grid):
        add, products = _add_by_products, gaussians.X.shape[1]
        screen = make_screen(size, gaussians, query, grid, rtol, n_jobs)
        if screen is not None:
            add = partial(add_screened, screen=screen, add_all=add)
            side, products = _SCREENED, 2 * screen.basis.shape[1]
    blocks = _blocks(len(query), len(gaussians.X), grid, side, products)

    def task(block: Block) -> np.ndarray:
        sums = grid_sums(grid, block.rows.stop - block.rows.start)
        add(gaussians, query, block, grid, sums)
        with np.errstate(divide="ignore"):  # a total of 0: all terms underflowed
            return sums.shifts + np.log(sums.totals)

    logs = np.full((len(grid.counts), len(grid.noise), len(query)), -np.inf)
    parts = engine.run(task, blocks, n_jobs=n_jobs, label=label)
    for block, part in zip(blocks, parts, strict=True):
        rows = logs[:, :, block.rows]
        np.logaddexp(rows, part, out=rows)
    return logs - np.log(len(gaussians.X))


def _products_are_harmless(size: float, dtype: np.dtype, grid: ShapeGrid) -> bool:
    """Return whether the rounding of products is negligible.

    |x|² - 2 x . x_i + |x_i|² has an error of about eps (|x|² + |x_i|²), and is divided by the
    noise; `size` is the largest such sum. The inverse of the noise must not overflow.
    """
    noise = float(grid.noise.min())
    return noise * float(np.finfo(dtype).max) > 1 and LOCAL_GAUSSIANS.allows(size / noise, dtype)


def _largest_norm(X: np.ndarray, center: np.ndarray) -> float:
    """Return the largest |x - center|², block by block."""
    step = max(1, 2**20 // X.shape[1])
    largest = 0.0
    for first in range(0, len(X), step):
        centred = X[first : first + step] - center
        largest = max(largest, float(np.einsum("ij,ij->i", centred, centred).max()))
    return largest


def _blocks(m: int, n: int, grid: ShapeGrid, side: int, products: int) -> list[Block]:
    """Return the blocks, query range by query range of `side` at most.

    A pair takes `products` products in each direction, and one term for each shape.
    """
    shapes = len(grid.counts) * len(grid.noise)
    side = min(side, max(64, _GRID_VALUES // shapes), m)
    cost = 2 * products * (int(grid.counts[-1]) + 1) + 40 * shapes
    depth = max(1, int(_FLOPS / (cost * side)))
    return [
        Block(slice(i, min(i + side, m)), slice(j, min(j + depth, n)))
        for i in range(0, m, side)
        for j in range(0, n, depth)
    ]


def _tiles(
    gaussians: LocalGaussians, query: np.ndarray, points: slice, q: int, dtype: np.dtype
) -> Iterator[tuple[slice, Products]]:
    """Yield ranges of the points with their products with the queries (m, D), in `dtype`.

    The arrays are overwritten by the next tile.
    """
    query = (query - gaussians.center).astype(dtype, copy=False)
    query_norms = np.einsum("ij,ij->i", query, query)
    step = max(1, _TILE // max(q, 1))
    projections = np.empty((step * q, len(query)), dtype)
    products = np.empty((step, len(query)), dtype)
    for first in range(points.start, points.stop, step):
        part = slice(first, min(first + step, points.stop))
        t = part.stop - part.start
        X = (gaussians.X[part] - gaussians.center).astype(dtype, copy=False)
        directions = gaussians.directions[part, :q].astype(dtype, copy=False)
        flat = directions.reshape(t * q, X.shape[1])
        yield (
            part,
            Products(
                np.matmul(X, query.T, out=products[:t]),
                np.matmul(flat, query.T, out=projections[: t * q]),
                gaussians.offsets[part, :q].astype(dtype, copy=False),
                np.einsum("ij,ij->i", X, X),
                query_norms,
            ),
        )


def _add_by_products(
    gaussians: LocalGaussians, query: np.ndarray, block: Block, grid: ShapeGrid, sums: ShiftedSums
) -> None:
    """Add the Gaussians of a block to the sums at its queries, by matrix products."""
    dtype, q = query.dtype, int(grid.counts[-1])
    for part, products in _tiles(gaussians, query[block.rows], block.points, q, dtype):
        add_by_products(products, shapes_of(gaussians, part, grid, dtype), grid.counts, sums)


def _add_by_differences(
    gaussians: LocalGaussians, query: np.ndarray, block: Block, grid: ShapeGrid, sums: ShiftedSums
) -> None:
    """Add the Gaussians of a block to the sums at its queries, by differences."""
    add_by_differences(
        np.ascontiguousarray(query[block.rows].T),
        gaussians.X[block.points],
        gaussians.directions[block.points],
        shapes_of(gaussians, block.points, grid, np.dtype(np.float64)),
        grid.counts,
        sums,
    )
