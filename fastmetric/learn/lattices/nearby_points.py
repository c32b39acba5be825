"""Points that matter to some queries: a sum in the tails needs few of all points.

The points beyond R, R^2 = 2 log(W / (delta S)), add at most delta S, with S the sum, for which a
lower bound is taken, and W the weight of all points. Where there is none but 0: with r the distance
of the nearest point and w the least weight, S >= w exp(-r^2 / 2), so that R^2 = r^2 + 2 log(W / (w
delta)). r and R are found by tiles of a lattice, for all queries of a tile at once. The bound of
what is left out, W exp(-R^2 / 2), rests on R alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from fastmetric import engine
from fastmetric.core.lattice.spreading import Tiles, points_in_tiles, tile_counts
from fastmetric.learn.lattices.point_lattice import PointLattice

_SIDE = 2.0  # of a tile, in bandwidths
_FARTHEST = 1 << 19  # tiles from the first one: no query may be beyond
_GROUPS = 20_000  # tiles with queries, at most
_ROWS, _TASKS = 1 << 16, 64  # points of a task at least; tasks at most
_MARGIN = 1e-3  # tiles, for the rounding of places


class NearbyPoints(NamedTuple):
    """Points, and a bound of what all others add to each query."""

    numbers: np.ndarray  # (k,), rising
    log_left_out: np.ndarray  # (m,), for points of total weight 1


class Negligible(NamedTuple):
    """What points that do not matter may add, in units of their total weight."""

    of_nearest: float  # the log of the share of the kernel of the nearest point
    of_sums: np.ndarray | None = None  # (m,), logs of shares of the sums; -inf: unknown


def nearby_points(
    lattice: PointLattice,
    points: np.ndarray,
    query: np.ndarray,
    limits: Negligible,
    leave_out: bool,
) -> NearbyPoints | None:
    """Return points (n, d) that matter to queries (m, d), whose kernels have a unit bandwidth.

    The others add at most their share of the sum, if it is known for all queries, else of the
    kernel of the nearest point, which is another one than the query if `leave_out`. None, if
    queries are too far away or in too many places.
    """
    d, side = lattice.d, max(1, round(_SIDE / lattice.plan.spacing))
    n0, n1, n2 = (-(-cells // side) for cells in lattice.lattice.shape)
    scale = lattice.lattice.inverse_spacing / side
    tiles, shape = Tiles(lattice.lattice, scale, (n0, n1, n2)), (n0, n1, n2)[-d:]
    parts = engine.ranges(len(points), max(_ROWS, -(-len(points) // _TASKS)))
    with np.errstate(over="ignore", invalid="ignore"):
        places = np.floor((query.astype(np.float64) - lattice.lattice.origin[-d:]) * scale)
    if not (np.abs(places) < _FARTHEST).all():
        return None
    begin, spans = places.min(axis=0), tuple(np.ptp(places, axis=0).astype(int) + 1)
    keys = np.ravel_multi_index(tuple((places - begin).astype(int).T), spans)
    keys, group_of = np.unique(keys, return_inverse=True)
    groups = np.stack(np.unravel_index(keys, spans), axis=1) + begin
    if len(groups) > _GROUPS:
        return None
    unit = side * lattice.plan.spacing
    if limits.of_sums is not None and np.isfinite(limits.of_sums).all():
        least = np.zeros(len(groups))
        np.minimum.at(least, group_of, limits.of_sums)
        reach = np.sqrt(-2 * least) / unit
    else:
        counts = _counts(points, tiles, parts, lattice.n_jobs)
        occupied = np.flatnonzero(counts)
        if counts.sum() <= int(leave_out):
            return None
        # In tiles. A query and the nearest point are within half a diagonal of their tile's middle.
        middles = np.stack(np.unravel_index(occupied, shape), axis=1)
        gaps, which = cKDTree(middles).query(groups, k=2)
        # The tile of a query that is its only point has no other one.
        alone = leave_out & (gaps[:, 0] == 0) & (counts[occupied[which[:, 0]]] == 1)
        nearest = np.where(alone, gaps[:, 1], gaps[:, 0]) + math.sqrt(d) * (1 + _MARGIN)
        reach = np.sqrt(nearest**2 + 2 * max(0.0, -limits.of_nearest) / unit**2)
    marked = np.zeros(shape, bool)
    ends = groups - (reach + _MARGIN)[:, None], groups + (reach + 2 + _MARGIN)[:, None]
    for first, last in zip(*(np.clip(e, 0, shape).astype(int) for e in ends), strict=True):
        marked[tuple(map(slice, first, last))] = True
    log_left_out = -0.5 * (reach * unit) ** 2
    numbers = _in_tiles(points, tiles, marked.ravel(), parts, lattice.n_jobs)
    return NearbyPoints(numbers, log_left_out[group_of])


def _counts(points: np.ndarray, tiles: Tiles, parts: list[slice], n_jobs: int | None) -> np.ndarray:
    """Return the number of points in every tile."""

    def count(part: slice) -> np.ndarray:
        return tile_counts(points, tiles, part.start, part.stop)

    return sum(engine.run(count, parts, n_jobs=n_jobs), np.zeros(math.prod(tiles.counts), int))


def _in_tiles(
    points: np.ndarray, tiles: Tiles, marked: np.ndarray, parts: list[slice], n_jobs: int | None
) -> np.ndarray:
    """Return the numbers of the points in tiles that are marked, rising."""

    def find(part: slice) -> np.ndarray:
        return points_in_tiles(points, tiles, marked, part.start, part.stop)

    return np.concatenate(list(engine.run(find, parts, n_jobs=n_jobs)))
