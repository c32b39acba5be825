"""Climbing to the modes of a density: mean shift, accelerated, many starts at once.

A step of mean shift [SHI-1] maximises a quadratic that touches the log density from below, so
that the density nowhere falls between the two ends of a step. The last steps tell where the
steps would vanish; the leap to there is kept only if the density rises by as much as a step would
have raised it. Trajectories that come to where a higher one has been go on as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

MEET = 0.05  # bandwidths: the side of a cell that counts as one place
_LEAP = 0.25  # bandwidths: the most that a leap adds to a step
_STRIDE = 3  # times a step: a leap where the density is not concave
_MEMORY = 3  # moves that a leap is computed from
_LEAST_PIVOT = 1e-12  # relative, of the system that a leap solves

# positions (m, d) -> log densities (m,) but for a constant, and steps (m, d)
Steps = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Ends(NamedTuple):
    """Where trajectories ended: the different ones (k of them), and who went there."""

    points: np.ndarray  # (k, d)
    log_sums: np.ndarray  # (k,)
    steps: np.ndarray  # (k,): the length of the step that is left
    of_starts: np.ndarray  # (m,): the end of each start
    n_iter: int


def follow(steps_at: Steps, starts: np.ndarray, h: float, *, tol: float, max_iter: int) -> Ends:
    """Climb from `starts` (m, d) until the steps are at most `tol` h long."""
    climbers, n_iter = _Trajectories(starts, h), 0
    climbers.meet()
    while n_iter < max_iter and climbers.under_way().size:
        climbers.move(steps_at, tol)
        climbers.meet()
        n_iter += 1
    kept, of_starts = np.unique(climbers.heads, return_inverse=True)
    lengths = np.sqrt(_sq_norms(climbers.steps[kept]))
    return Ends(climbers.places[kept], climbers.log_sums[kept], lengths, of_starts, n_iter)


class _Trajectories:
    """Trajectories, one row each; a row whose head is another one goes along with that.

    `places` are where the density was looked at last and had not fallen, `steps` the steps of mean
    shift from there; `trials` is where to look next, by such a step or by a leap.
    """

    def __init__(self, starts: np.ndarray, h: float) -> None:
        m, d = starts.shape
        self.h, self.heads, self.arrived = h, np.arange(m), np.zeros(m, bool)
        self.trials, self.leapt = starts.copy(), np.zeros(m, bool)
        self.places, self.log_sums = starts.copy(), np.full(m, -np.inf)
        self.steps = np.zeros((m, d))
        # The last moves and what they did to the step, the latest first; 0: none yet.
        self.moves = np.zeros((m, min(d, _MEMORY), d))
        self.changes = np.zeros(self.moves.shape)
        self.trail = _VisitedCells(starts.min(axis=0), MEET * h)

    def under_way(self) -> np.ndarray:
        """Return the rows that go on, each for itself."""
        return np.flatnonzero((self.heads == np.arange(len(self.heads))) & ~self.arrived)

    def meet(self) -> None:
        """Let those that come to where a higher one has been go along with it."""
        heads = np.flatnonzero(self.heads == np.arange(len(self.heads)))
        order = np.lexsort((*self.places[heads].T, -self.log_sums[heads], ~self.arrived[heads]))
        heads, rank = heads[order], np.empty(len(self.heads), np.intp)
        rank[heads] = np.arange(len(heads))
        ahead = self.heads[self.trail.first_at(self.places[heads], heads)]
        # Behind a higher one only: no two may follow each other.
        self.heads[heads] = np.where(rank[ahead] < rank[heads], ahead, heads)
        while np.any(self.heads != self.heads[self.heads]):
            self.heads = self.heads[self.heads]

    def move(self, steps_at: Steps, tol: float) -> None:
        """Look at the trials of those under way, and choose the next ones."""
        rows = self.under_way()
        trials = self.trials[rows]
        log_sums, steps = steps_at(trials)
        # What a step gains at least; less is not worth the risk of a leap.
        gains = _sq_norms(self.steps[rows]) / (2 * self.h**2)
        fell = self.leapt[rows] & (log_sums < self.log_sums[rows] + gains)
        self.trials[rows] = self.places[rows] + self.steps[rows]
        self.leapt[rows] = False
        here, trials, steps = rows[~fell], trials[~fell], steps[~fell]
        again = np.isfinite(self.log_sums[here])[:, None]
        self._remember(self.moves, here, again * (trials - self.places[here]))
        self._remember(self.changes, here, again * (steps - self.steps[here]))
        self.places[here], self.log_sums[here], self.steps[here] = trials, log_sums[~fell], steps
        self.arrived[here] = _sq_norms(steps) <= (tol * self.h) ** 2
        leaps = _leaps(steps, self.moves[here], self.changes[here], self.h)
        self.leapt[here] = leaps.any(axis=1)
        self.trials[here] = trials + (steps + leaps)

    @staticmethod
    def _remember(past: np.ndarray, rows: np.ndarray, latest: np.ndarray) -> None:
        """Put the latest (r, d) in front of the past (m, K, d) of some rows."""
        past[rows] = np.concatenate([latest[:, None], past[rows, :-1]], axis=1)


class _VisitedCells:
    """The cells where trajectories have been, by their sorted keys, and who came first."""

    def __init__(self, origin: np.ndarray, side: float) -> None:
        self.origin, self.side = origin.astype(np.float64), side
        self.keys, self.owners = np.empty(0, np.uint64), np.empty(0, np.intp)

    def first_at(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return who was first in the cells of points (m, d), where `rows` (m,) are now.

        Of those who come at once, the first in `rows`.
        """
        cells = np.floor((points - self.origin) / self.side) + 0.0  # no -0.0
        keys, first, numbers = np.unique(_keys(cells), return_index=True, return_inverse=True)
        at = np.searchsorted(self.keys, keys)
        new = at == len(self.keys)
        new[~new] = self.keys[at[~new]] != keys[~new]
        self.keys = np.insert(self.keys, at[new], keys[new])
        self.owners = np.insert(self.owners, at[new], rows[first[new]])
        return self.owners[np.searchsorted(self.keys, keys)][numbers]


def _keys(cells: np.ndarray) -> np.ndarray:
    """Return a number (m,) for each cell (m, d): two cells in 2^64 share one.

    From the bits of the floats, which may be beyond any integer; each is mixed as in SplitMix64.
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


def _leaps(steps: np.ndarray, moves: np.ndarray, changes: np.ndarray, h: float) -> np.ndarray:
    """Return what to add to the steps (m, d) to get to where they would vanish, were they linear.

    By the last moves (m, K, d) and what these did to the steps: Anderson's mixing. Where the
    density is not concave the steps grow, and would vanish at a saddle downhill; there the leap
    is a few steps at once.
    """
    products = changes @ changes.transpose(0, 2, 1)
    pivots = _LEAST_PIVOT * np.trace(products, axis1=1, axis2=2) + np.finfo(float).tiny
    products += pivots[:, None, None] * np.eye(products.shape[1])
    shares = np.linalg.solve(products, changes @ steps[:, :, None])
    leaps = -((moves + changes) * shares).sum(axis=1)
    downhill = np.einsum("ij,ij->i", steps + leaps, steps) <= 0
    leaps[downhill] = _STRIDE * steps[downhill]
    lengths, longest = np.sqrt(_sq_norms(leaps)), _LEAP * h
    return leaps * (longest / np.maximum(lengths, longest))[:, None] if longest else 0 * leaps
