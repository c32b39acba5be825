"""Points that matter to some queries: a sum in the tails needs few of all points.

With r the distance of a query to the nearest point, the points beyond R, R^2 = r^2 + 2 log(W / (w
delta)), add at most delta times what the nearest one does, w being the least weight and W that of
all points. r and R are found by tiles of a lattice, for all queries of a tile at once. The bound of
what is left out, W exp(-R^2 / 2), rests on R alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from fastmetric import engine
from fastmetric.core.lattice.spreading import Tiles, tile_numbers
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


def nearby_points(
    lattice: PointLattice, points: np.ndarray, query: np.ndarray, log_share: float, leave_out: bool
) -> NearbyPoints | None:
    """Return points (n, d) that matter to queries (m, d), whose kernels have a unit bandwidth.

    The others add at most exp(log_share) of the kernel of the nearest point, which is another one
    than the query if `leave_out`. None, if queries are too far away or in too many places.
    """
    d, side = lattice.d, max(1, round(_SIDE / lattice.plan.spacing))
    n0, n1, n2 = (-(-cells // side) for cells in lattice.lattice.shape)
    tiles, shape = Tiles(lattice.lattice, side, (n0, n1, n2)), (n0, n1, n2)[-d:]
    numbers, counts = _tiles_of(points, tiles, lattice.n_jobs)
    occupied = np.flatnonzero(counts)
    scale = lattice.lattice.inverse_spacing / side
    with np.errstate(over="ignore", invalid="ignore"):
        places = np.floor((query.astype(np.float64) - lattice.lattice.origin[-d:]) * scale)
    if counts.sum() <= int(leave_out) or not (np.abs(places) < _FARTHEST).all():
        return None
    least, spans = places.min(axis=0), tuple(np.ptp(places, axis=0).astype(int) + 1)
    keys = np.ravel_multi_index(tuple((places - least).astype(int).T), spans)
    keys, group_of = np.unique(keys, return_inverse=True)
    groups = np.stack(np.unravel_index(keys, spans), axis=1) + least
    if len(groups) > _GROUPS:
        return None
    # In tiles. A query and the nearest point are within half a diagonal of the middles of theirs.
    middles = np.stack(np.unravel_index(occupied, shape), axis=1)
    gaps, which = cKDTree(middles).query(groups, k=2)
    # The tile of a query that is its only point has no other one.
    alone = leave_out & (gaps[:, 0] == 0) & (counts[occupied[which[:, 0]]] == 1)
    nearest = np.where(alone, gaps[:, 1], gaps[:, 0]) + math.sqrt(d) * (1 + _MARGIN)
    unit = side * lattice.plan.spacing
    reach = np.sqrt(nearest**2 + 2 * max(0.0, -log_share) / unit**2)
    marked = np.zeros(shape, bool)
    ends = groups - (reach + _MARGIN)[:, None], groups + (reach + 2 + _MARGIN)[:, None]
    for first, last in zip(*(np.clip(e, 0, shape).astype(int) for e in ends), strict=True):
        marked[tuple(map(slice, first, last))] = True
    log_left_out = -0.5 * (reach * unit) ** 2
    return NearbyPoints(np.flatnonzero(marked.ravel()[numbers]), log_left_out[group_of])


def _tiles_of(
    points: np.ndarray, tiles: Tiles, n_jobs: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tile of every point (n,), and the number of points in every tile."""
    n, numbers = len(points), np.empty(len(points), np.int32)
    parts = engine.ranges(n, max(_ROWS, -(-n // _TASKS)))

    def count(part: slice) -> np.ndarray:
        return tile_numbers(points, tiles, part.start, part.stop, numbers)

    counts = np.zeros(math.prod(tiles.counts), np.int64)
    for found in engine.run(count, parts, n_jobs=n_jobs):
        counts += found
    return numbers, counts
