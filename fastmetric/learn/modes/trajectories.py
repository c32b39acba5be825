"""The trajectories of accelerated mean shift, from many starts at once.

A step of mean shift [SHI-1] maximises a quadratic that touches the log density from below, so
that the density does not decrease along a step. Anderson mixing extrapolates the last steps to
where they would vanish; the extrapolation is kept only if the density increases by at least the
guaranteed gain of a plain step. A trajectory that enters a cell visited by one of higher density
is merged with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

MEET = 0.05  # bandwidths: the side of a cell in which trajectories merge
_LONGEST = 0.25  # bandwidths: the most that extrapolation adds to a step
_STRIDE = 3  # times a step: the extrapolation where the density is not concave
_MEMORY = 3  # moves that are extrapolated
_LEAST_PIVOT = 1e-12  # relative, of the system of the extrapolation

# positions (m, d) -> log densities (m,) up to a constant, and steps (m, d)
Steps = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

# rows (m,) -> keys (m,) by which they are ordered, the first one first
Order = Callable[[np.ndarray], Iterator[np.ndarray]]


class Ends(NamedTuple):
    """The k distinct ends of the trajectories, and the end of each start."""

    points: np.ndarray  # (k, d)
    log_sums: np.ndarray  # (k,)
    steps: np.ndarray  # (k,): the length of the next step
    of_starts: np.ndarray  # (m,): the end of each start
    n_iter: int


def follow(steps_at: Steps, starts: np.ndarray, h: float, tol: float, max_iter: int) -> Ends:
    """Return the ends of mean shift from `starts` (m, d), where steps are at most `tol` h long."""
    trajectories, n_iter = _Trajectories(starts, h), 0
    trajectories.meet()
    while n_iter < max_iter and trajectories.active().size:
        trajectories.move(steps_at, tol)
        if n_iter > 0:  # before, none has moved
            trajectories.meet()
        n_iter += 1
    kept = trajectories.all_heads()
    number = np.empty(len(starts), np.intp)
    number[kept] = np.arange(len(kept))
    of_starts = number[trajectories.heads]
    lengths = np.sqrt(_sq_norms(trajectories.steps[kept]))
    return Ends(trajectories.places[kept], trajectories.log_sums[kept], lengths, of_starts, n_iter)


class _Trajectories:
    """Trajectories, one row each; a row whose head is another row has been merged with it.

    `places` are the last points that were accepted, `steps` the steps of mean shift from there,
    which `plain` rows take as they are: their extrapolation has been rejected.
    """

    def __init__(self, starts: np.ndarray, h: float) -> None:
        m, d = starts.shape
        self.h, self.heads, self.converged = h, np.arange(m), np.zeros(m, bool)
        self.plain, self.places = np.zeros(m, bool), starts.copy()
        self.log_sums = np.full(m, -np.inf)
        self.steps = np.zeros((m, d))
        # The last moves and the changes of the step along them, the latest first; 0: none yet.
        self.moves = np.zeros((m, min(d, _MEMORY), d))
        self.changes = np.zeros(self.moves.shape)
        self.visited = _VisitedCells(starts.min(axis=0), MEET * h)

    def all_heads(self) -> np.ndarray:
        """Return the rows that have not been merged."""
        return np.flatnonzero(self.heads == np.arange(len(self.heads)))

    def active(self) -> np.ndarray:
        """Return the rows that are neither merged nor converged."""
        heads = self.all_heads()
        return heads[~self.converged[heads]]

    def meet(self) -> None:
        """Merge each trajectory with one of higher density that has visited its cell."""
        heads = self.all_heads()
        ahead = self.heads[self.visited.first_at(self.places[heads], heads, self._order_at)]
        others = np.flatnonzero(ahead != heads)
        heads, ahead = heads[others], ahead[others]
        # Only with one of higher density: heads must not form a cycle.
        before, equal = np.zeros(len(heads), bool), np.ones(len(heads), bool)
        for theirs, ours in zip(self._order_at(ahead), self._order_at(heads), strict=True):
            before |= equal & (theirs < ours)
            equal &= theirs == ours
            if not equal.any():
                break
        merged = before | equal & (ahead < heads)
        if not merged.any():
            return
        self.heads[heads[merged]] = ahead[merged]
        while np.any(self.heads != self.heads[self.heads]):
            self.heads = self.heads[self.heads]

    def _order_at(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Return what some rows are ordered by, the first key first: the least goes ahead.

        Converged ones, those of higher density, and coordinates, which break ties: the order must
        not depend on that of the rows.
        """
        yield ~self.converged[rows]
        yield -self.log_sums[rows]
        for coordinates in self.places.T[::-1]:
            yield coordinates[rows]

    def move(self, steps_at: Steps, tol: float) -> None:
        """Evaluate the active rows where a plain or an extrapolated step takes them."""
        rows = self.active()
        places, ahead = self.places[rows], self.steps[rows]
        changes, extra = self.changes[rows], np.zeros(ahead.shape)
        if changes.any():
            extra = _extrapolations(ahead, self.moves[rows], changes, self.h)
            extra[self.plain[rows]] = 0
        trials = (places + (ahead + extra)).astype(places.dtype, copy=False)
        log_sums, steps = steps_at(trials)
        # The guaranteed gain of a plain step; an extrapolation that gains less is rejected.
        gains = _sq_norms(ahead) / (2 * self.h**2)
        rejected = extra.any(axis=1) & (log_sums < self.log_sums[rows] + gains)
        self.plain[rows] = rejected
        here, trials, steps = rows[~rejected], trials[~rejected], steps[~rejected]
        again = np.isfinite(self.log_sums[here])[:, None]
        if again.any():
            self._remember(self.moves, here, again * (trials - self.places[here]))
            self._remember(self.changes, here, again * (steps - self.steps[here]))
        self.places[here], self.log_sums[here] = trials, log_sums[~rejected]
        self.steps[here] = steps
        self.converged[here] = _sq_norms(steps) <= (tol * self.h) ** 2

    @staticmethod
    def _remember(past: np.ndarray, rows: np.ndarray, latest: np.ndarray) -> None:
        """Prepend the latest (r, d) to the past (m, K, d) of some rows."""
        past[rows] = np.concatenate([latest[:, None], past[rows, :-1]], axis=1)


class _VisitedCells:
    """The cells that trajectories have visited, by sorted keys, and the first visitor of each."""

    def __init__(self, origin: np.ndarray, side: float) -> None:
        self.origin, self.side = origin.astype(np.float64), side
        self.keys, self.owners = np.empty(0, np.uint64), np.empty(0, np.intp)

    def first_at(self, points: np.ndarray, rows: np.ndarray, order_at: Order) -> np.ndarray:
        """Return the first visitor of the cell of each point (m, d) of the trajectories `rows`.

        Of trajectories that enter a new cell at once, it is the first by `order_at`.
        """
        cells = np.floor((points - self.origin) / self.side) + 0.0  # no -0.0
        keys = _keys(cells)
        together = np.argsort(keys)  # rows in the same cell
        keys = keys[together]
        begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        counts = np.diff(begins, append=len(keys))
        least = _least_of_runs(rows[together], begins, counts, order_at)
        keys = keys[begins]
        at = np.searchsorted(self.keys, keys)
        owners, new = least.copy(), np.ones(len(keys), bool)
        inside = np.flatnonzero(at < len(self.keys))
        known = inside[self.keys[at[inside]] == keys[inside]]
        new[known], owners[known] = False, self.owners[at[known]]
        self.keys = np.insert(self.keys, at[new], keys[new])
        self.owners = np.insert(self.owners, at[new], least[new])
        first = np.empty(len(rows), np.intp)
        first[together] = np.repeat(owners, counts)
        return first


def _least_of_runs(
    rows: np.ndarray, begins: np.ndarray, counts: np.ndarray, order_at: Order
) -> np.ndarray:
    """Return the first (k,) by `order_at` of each run of rows (m,), and among equals the least."""
    least = rows[begins]
    several = np.repeat(counts > 1, counts)
    if not several.any():
        return least
    rows, counts = rows[several], counts[counts > 1]
    starts = np.cumsum(counts) - counts
    left = np.ones(len(rows), bool)
    for key in itertools.chain(order_at(rows), [rows]):
        most = key.max()
        if most > key.min():
            first = np.minimum.reduceat(np.where(left, key, most), starts)
            left &= key == np.repeat(first, counts)
        if np.count_nonzero(left) == len(counts):
            break
    least[np.diff(np.append(begins, len(several))) > 1] = rows[left]
    return least


def _keys(cells: np.ndarray) -> np.ndarray:
    """Return a number (m,) for each cell (m, d): two cells in 2^64 share one.

    The key mixes the bits of the floats, which may exceed every integer, as SplitMix64 does.
    """
    keys = np.zeros(len(cells), np.uint64)
    for column in np.ascontiguousarray(cells.T).view(np.uint64):
        keys = (keys ^ column) + np.uint64(0x9E3779B97F4A7C15)
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
    return keys


def _sq_norms(rows: np.ndarray) -> np.ndarray:
    """Return the squared lengths (m,) of rows (m, d)."""
    return np.einsum("ij,ij->i", rows, rows)


def _extrapolations(
    steps: np.ndarray, moves: np.ndarray, changes: np.ndarray, h: float
) -> np.ndarray:
    """Return the additions to steps (m, d) that reach the point where linear steps would vanish.

    This is Anderson mixing of the last moves (m, K, d) and the changes of the steps along them.
    Where the density is not concave, steps grow and the linear model vanishes at a saddle of lower
    density; there the addition is a multiple of the step.
    """
    products = changes @ changes.transpose(0, 2, 1)
    pivots = _LEAST_PIVOT * np.trace(products, axis1=1, axis2=2) + np.finfo(float).tiny
    products += pivots[:, None, None] * np.eye(products.shape[1])
    shares = np.linalg.solve(products, changes @ steps[:, :, None])
    extra = -((moves + changes) * shares).sum(axis=1)
    downhill = np.einsum("ij,ij->i", steps + extra, steps) <= 0
    extra[downhill] = _STRIDE * steps[downhill]
    lengths, longest = np.sqrt(_sq_norms(extra)), _LONGEST * h
    return extra * (longest / np.maximum(lengths, longest))[:, None] if longest else 0 * extra
