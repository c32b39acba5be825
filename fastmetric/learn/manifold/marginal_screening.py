"""Which Gaussians matter at which queries, by a bound that takes a fraction of the products.

A Gaussian's quadratic form is at least that of its marginal in any subspace [MAN-5]. In the leading
principal directions of the data marginals are cheap, and in many dimensions they leave few pairs
of a query and a Gaussian. These are then computed in full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.gaussians.local_gaussians import Marginals, add_pairs, list_pairs
from fastmetric.core.shifted_sums import ShiftedSums
from fastmetric.learn import costs
from fastmetric.learn.chooser import cheaper
from fastmetric.learn.manifold.covariance_grid import Block, ShapeGrid, grid_sums, shapes_of
from fastmetric.learn.manifold.neighbourhood_pca import LocalGaussians
from fastmetric.learn.rows import ArrayRows

_NARROW = np.dtype(np.float32)  # the precision of the products of marginals
_MOST_ROUNDING = 10.0  # nats; with more, screening does not pay
_LEFT_OUT = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-7}  # share of a density
_QUERIES, _POINTS = 512, 2048  # of a block in the search for the nearest
_ROWS = 1024  # of the products in a tile
_TRIAL_QUERIES, _TRIAL_POINTS = 32, 128


class Screen(NamedTuple):
    """The bound that decides whether a Gaussian matters at a query."""

    basis: np.ndarray  # (D, d): orthonormal, over the standard deviation of the noise; float64
    query: np.ndarray  # (m, d), the coordinates of the queries, float32
    known: np.ndarray  # (m,): a term of each log density, usually a large one; float64
    margin: float  # terms below `known` by more than this are negligible


def make_screen(
    size: float,
    gaussians: LocalGaussians,
    query: np.ndarray,
    grid: ShapeGrid,
    rtol: float,
    n_jobs: int | None,
) -> Screen | None:
    """Return the cheapest screen for a grid of one shape; None if no screen pays.

    size: the largest |x|² + |x_i|², centred. The choice is made by a trial with a few queries and
    points.
    """
    n, n_features = gaussians.X.shape
    m, q, width = len(query), int(grid.counts[-1]), query.itemsize / _NARROW.itemsize
    unscreened = width * (q + 1) * n_features
    several = len(grid.counts) * len(grid.noise) > 1
    small = n * m * unscreened < costs.SCREENING_PRODUCTS
    if several or small or m < max(_TRIAL_QUERIES, n_features):
        return None
    rounding = {d: _rounding(d, size, gaussians, grid) for d in _numbers_of_coordinates(n_features)}
    if min(rounding.values()) > _MOST_ROUNDING:
        return None
    log_share = np.log(n / max(rtol, _LEFT_OUT[query.dtype]))
    basis = _principal_directions(gaussians, grid)
    trial = query[:: m // _TRIAL_QUERIES][:_TRIAL_QUERIES]
    points = np.arange(n)[:: max(1, n // _TRIAL_POINTS)][:_TRIAL_POINTS]
    wanted, few = _coordinates(trial, gaussians, basis, n_jobs), max(1, n_features // 2)
    known = _known_terms(gaussians, trial, grid, basis[:, :few], wanted[:, :few], n_jobs)
    table, best, least = costs.SCREENING, 0, costs.SCREENING_GAIN * unscreened
    for d, lost in rounding.items():
        cost = (q + 1) * (d + table.bound) + table.marginal * q * n_features * d / m
        if not cheaper(cost, least):
            break
        screen = Screen(basis[:, :d], wanted[:, :d], known, lost + log_share)
        found, _ = _listed(gaussians, points, grid, screen)
        cost += table.alone * len(found) / (len(trial) * len(points)) * unscreened
        if cheaper(cost, least):
            best, least = d, cost
    if best == 0:
        return None
    basis = np.ascontiguousarray(basis[:, :best])
    wanted = _coordinates(query, gaussians, basis, n_jobs)
    known = _known_terms(gaussians, query, grid, basis, wanted, n_jobs)
    return Screen(basis, wanted, known, rounding[best] + log_share)


def _numbers_of_coordinates(n_features: int) -> list[int]:
    """Return the numbers of coordinates that are tried."""
    return [max(1, n_features // part) for part in (8, 4, 2, 1)]


def _coordinates(
    rows: np.ndarray, gaussians: LocalGaussians, basis: np.ndarray, n_jobs: int | None
) -> np.ndarray:
    """Return the coordinates of some rows in the basis (D, d), float32."""
    found = ArrayRows(rows, n_jobs).project(gaussians.center, basis.T, precise=True)
    return found.astype(_NARROW, copy=False)


def _rounding(d: int, size: float, gaussians: LocalGaussians, grid: ShapeGrid) -> float:
    """Return the largest rounding error, in nats, of a bound in d coordinates against a term.

    It bounds the errors of sums of d products in float32, of D products in the precision of the
    data, in each of q directions, and of the logs of variances in float32.
    """
    n_features, noise = gaussians.X.shape[1], float(grid.noise[0])
    narrow, own = float(np.finfo(_NARROW).eps), float(np.finfo(gaussians.X.dtype).eps)
    largest = float(gaussians.variances.max(initial=0)) + noise
    logs = abs(np.log(2 * np.pi * largest)) + abs(np.log(2 * np.pi * noise))
    sums = 8 * np.sqrt(grid.counts[-1] + 1) * (narrow * (d + 4) + own * n_features)
    return float(sums * size / noise + 2 * narrow * n_features * logs)


def _principal_directions(gaussians: LocalGaussians, grid: ShapeGrid) -> np.ndarray:
    """Return a basis (D, D): principal directions of some of the points, the leading ones first.

    It is divided by the standard deviation of the noise. Any orthonormal basis gives valid bounds.
    """
    n, n_features = gaussians.X.shape
    sigma = np.sqrt(grid.noise[0])
    some = (gaussians.X[:: max(1, n // (4 * n_features))] - gaussians.center) / sigma
    return np.ascontiguousarray(np.linalg.eigh(some.T @ some)[1][:, ::-1] / sigma)


def _known_terms(
    gaussians: LocalGaussians,
    query: np.ndarray,
    grid: ShapeGrid,
    basis: np.ndarray,
    wanted: np.ndarray,
    n_jobs: int | None,
) -> np.ndarray:
    """Return a term (m,), float64, of the log density at each query, usually a large one.

    It is the largest term among the nearest points of each block, where distances are in the
    coordinates of the basis; `wanted` (m, d) are those of the queries.
    """
    points = _coordinates(gaussians.X, gaussians, basis, n_jobs)
    half_norms = np.einsum("ij,ij->i", points, points) / 2

    def task(block: Block) -> np.ndarray:
        closeness = wanted[block.rows] @ points[block.points].T
        closeness -= half_norms[block.points]  # (|x|² - |x - x_i|²) / 2
        nearest, places = np.unique(closeness.argmax(axis=1), return_inverse=True)
        nearest += block.points.start
        sums = grid_sums(grid, len(places))
        every = np.arange(len(places))
        _add_pairs(gaussians, query[block.rows], nearest, places, every, grid, sums)
        return sums.shifts[0, 0]

    (m, n), known = (len(query), len(points)), np.full(len(query), -np.inf)
    blocks = [
        Block(slice(i, min(i + _QUERIES, m)), slice(j, min(j + _POINTS, n)))
        for i in range(0, m, _QUERIES)
        for j in range(0, n, _POINTS)
    ]
    for block, part in zip(blocks, engine.run(task, blocks, n_jobs=n_jobs), strict=True):
        known[block.rows] = np.maximum(known[block.rows], part)
    return known


def _marginals(
    gaussians: LocalGaussians, points: slice | np.ndarray, grid: ShapeGrid, basis: np.ndarray
) -> Marginals:
    """Return the marginals of some Gaussians in the coordinates of the basis (D, d) [MAN-5].

    They are computed in float64: the size of a Gaussian magnifies the rounding of its directions.
    """
    q = int(grid.counts[-1])
    centred = (gaussians.X[points] - gaussians.center).astype(np.float64, copy=False)
    directions = gaussians.directions[points, :q].astype(np.float64, copy=False)
    t, (n_features, d) = len(centred), basis.shape
    own = (centred @ basis)[:, None]
    along = (directions.reshape(t * q, n_features) @ basis).reshape(t, q, d)
    along *= np.sqrt(gaussians.variances[points, :q, None].astype(np.float64, copy=False))
    inner = np.eye(q) + along @ along.transpose(0, 2, 1)
    along = np.linalg.inv(np.linalg.cholesky(inner)) @ along
    log_factors = shapes_of(gaussians, points, grid, _NARROW).log_factors[:, 0, 0]
    return Marginals(
        np.concatenate([along, own], axis=1).astype(_NARROW),
        np.matmul(along, own.transpose(0, 2, 1))[:, :, 0].astype(_NARROW),
        np.einsum("ijk,ijk->i", own, own).astype(_NARROW),
        (2 * log_factors).astype(_NARROW),
    )


def _listed(
    gaussians: LocalGaussians, points: slice | np.ndarray, grid: ShapeGrid, screen: Screen
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs that matter: positions (p,) in the points, and in the screen's queries."""
    marginals = _marginals(gaussians, points, grid, screen.basis)
    query, floors = screen.query, 2 * (screen.known - screen.margin)
    t, height, d = marginals.rows.shape
    products = marginals.rows.reshape(t * height, d) @ query.T
    return list_pairs(
        products.reshape(t, height, len(query)),
        marginals,
        np.einsum("ij,ij->i", query, query),
        floors.astype(_NARROW),
    )


def add_screened(
    gaussians: LocalGaussians,
    query: np.ndarray,
    block: Block,
    grid: ShapeGrid,
    sums: ShiftedSums,
    *,
    screen: Screen,
    add_all: Callable[..., None],
) -> None:
    """Add those Gaussians of a block that matter to the sums at its queries, pair by pair.

    If many pairs of a tile matter, `add_all` adds all of them.
    """
    step = max(1, _ROWS // (int(grid.counts[-1]) + 1))
    coordinates = screen.query[block.rows]
    for first in range(block.points.start, block.points.stop, step):
        part = slice(first, min(first + step, block.points.stop))
        # A term added so far may be larger than the known one.
        known = np.maximum(screen.known[block.rows], sums.shifts[0, 0])
        own = screen._replace(query=coordinates, known=known)
        rows, columns = _listed(gaussians, part, grid, own)
        if len(rows) > costs.SCREENED_SHARE * len(known) * (part.stop - first):
            add_all(gaussians, query, Block(block.rows, part), grid, sums)
        else:
            _add_pairs(gaussians, query[block.rows], part, rows, columns, grid, sums)


def _add_pairs(
    gaussians: LocalGaussians,
    query: np.ndarray,
    points: slice | np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    grid: ShapeGrid,
    sums: ShiftedSums,
) -> None:
    """Add the pairs of Gaussians `points`[rows] and queries `columns` to the sums."""
    add_pairs(
        query,
        gaussians.X[points],
        gaussians.directions[points, : int(grid.counts[-1])],
        shapes_of(gaussians, points, grid, query.dtype),
        rows,
        columns,
        sums,
    )
