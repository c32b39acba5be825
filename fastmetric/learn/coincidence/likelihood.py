"""The likelihood of coincidences as a function of a map and its noise, from pairs of rows.

Nothing is copied per pair, and no outer product is formed per pair: with u_i the weighted sum
of z_i - z_j over the pairs of row i, W sum omega delta delta^T = U^T X.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from fastmetric import engine
from fastmetric.core.pairs.labelled_pairs import Pairs, search_scales, weigh, weighted_differences
from fastmetric.learn.rows import Rows, beyond_rounding, column_means

_WORK = 4e6  # pairs times dimensions in a block
_PRODUCT = 1 / 16  # cost of a term of a matrix product, in such units
_TRIALS = 60  # cost of a pair in a search of length scales, in dimensions
START_NOISE = 0.5  # sigma^2 to begin with, in units of kappa^2 / p
_HALVINGS = 12  # of the start's scale, either way


class Evaluation(NamedTuple):
    """The log-likelihood at a map W (p, D), with the sums of its gradient and of EM."""

    log_likelihood: float
    total: float  # sum of omega
    moment: float  # sum of omega t q
    map_gradient: np.ndarray  # (p, D): W sum omega delta delta^T; the gradient is its negative

    def noise_slope(self) -> float:
        """Return the derivative with respect to sigma^2, [COI-3]."""
        return self.moment - len(self.map_gradient) * self.total


def make_pairs(n: int, firsts: np.ndarray, seconds: np.ndarray, coincide: np.ndarray) -> Pairs:
    """Return pairs (m,) of n rows, sorted by their first row (in the order given, within one)."""
    order = np.argsort(firsts, kind="stable")
    firsts, seconds, coincide = firsts[order], seconds[order], coincide[order]
    back = np.argsort(seconds, kind="stable")
    return Pairs(_offsets(firsts, n), seconds, coincide, firsts, _offsets(seconds, n), back)


def _offsets(numbers: np.ndarray, n: int) -> np.ndarray:
    """Return where the entries of each row begin among those sorted by row, and the end."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=n))])


class Coincidence:
    """The likelihood of pairs of the rows X (n, D), kappa^2 given for each first row (n,)."""

    def __init__(
        self,
        X: Rows,
        pairs: Pairs,
        kappa_sq: np.ndarray,
        center: np.ndarray | None = None,
    ) -> None:
        """Take the column means as `center` if they are known."""
        self.X, self.pairs, self.kappa_sq, self.n_jobs = X, pairs, kappa_sq, X.n_jobs
        self.center = column_means(X) if center is None else center

    @property
    def n_pairs(self) -> int:
        """Return the number of pairs."""
        return len(self.pairs.seconds)

    def project(self, W: np.ndarray) -> np.ndarray:
        """Return the rows under W, centred, in the precision of X."""
        return self.X.project(self.center, W.astype(self.X.dtype))

    def evaluate(self, W: np.ndarray, noise: float) -> Evaluation:
        """Return the likelihood at a map W (p, D) and sigma^2, with its slopes."""
        Z = self.project(W)
        sums, _, weights = self._weighed(Z, noise)
        value, total, moment = sums.tolist()
        return Evaluation(value, total, moment, self._scattered(Z, weights))

    def log_likelihood(self, W: np.ndarray, noise: float) -> float:
        """Return the likelihood alone."""
        return float(self._weighed(self.project(W), noise)[0][0])

    def search_scales(self, W: np.ndarray, noise: float) -> float:
        """Move every kappa^2 to a maximum of the likelihood, and return the gain, >= 0."""
        Z = self.project(W)
        p = Z.shape[1]
        _, q, _ = self._weighed(Z, noise)

        def task(rows: tuple[int, int]) -> float:
            return search_scales(self.pairs, q, self.kappa_sq, noise, p, *rows)

        return sum(engine.run(task, self._blocks(_TRIALS), n_jobs=self.n_jobs))

    def scatter(self) -> np.ndarray:
        """Return S = sum delta delta^T over all pairs, (D, D)."""
        S = self._scattered(self.X.resident() - self.center, np.ones(self.n_pairs))
        return (S + S.T) / 2

    def scaled(self, W: np.ndarray, noise: float) -> np.ndarray:
        """Return W times the power of two (about the right size) with the largest likelihood.

        With pairs of one kind, or none that differ, no maximum exists: W is only normalised.
        """
        q = self._weighed(self.project(W), noise)[1]
        size = np.sqrt(np.mean(q))
        if size == 0 or np.all(self.pairs.coincide) or not np.any(self.pairs.coincide):
            return W / (size or 1.0)
        maps = [2.0**k / size * W for k in range(-_HALVINGS, _HALVINGS + 1)]
        values = [self.log_likelihood(one, noise) for one in maps]
        return maps[int(np.argmax(values))]

    def _blocks(self, per_pair: float, per_row: float = 0.0) -> list[tuple[int, int]]:
        """Return ranges of rows with about the same work, a function of pairs and costs alone."""
        work = (self.pairs.starts + self.pairs.back_starts) * per_pair
        work = work + np.arange(len(work)) * per_row
        pieces = max(1, int(work[-1] / _WORK))
        cuts = np.searchsorted(work, np.linspace(0, work[-1], pieces + 1)[1:-1])
        ends = np.unique([0, *cuts.tolist(), len(self.X)])
        return [(int(first), int(last)) for first, last in pairwise(ends)]

    def _weighed(self, Z: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the sums of `weigh` (3,), and q and omega of all pairs (m,)."""
        q, weights, sums = np.empty(self.n_pairs), np.empty(self.n_pairs), np.zeros(3)

        def task(rows: tuple[int, int]) -> tuple[float, float, float]:
            return weigh(Z, self.pairs, self.kappa_sq, noise, rows, q, weights)

        for part in engine.run(task, self._blocks(Z.shape[1]), n_jobs=self.n_jobs):
            sums += part
        return sums, q, weights

    def _scattered(self, Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return sum omega (z - z') (x - x')^T, (p, D)."""
        total = np.zeros((Z.shape[1], self.X.shape[1]))

        def task(rows: tuple[int, int]) -> np.ndarray:
            first, last = rows
            U = np.empty((last - first, Z.shape[1]), Z.dtype)
            weighted_differences(Z, self.pairs, weights, first, last, U)
            return U.T @ (self.X.block(slice(first, last)) - self.center)

        blocks = self._blocks(Z.shape[1], _PRODUCT * total.size)
        for part in engine.run(task, blocks, n_jobs=self.n_jobs):
            total += part
        return total


class Scatter:
    """The eigendecomposition of S = sum delta delta^T, for EM and L-BFGS.

    It is in units in which every feature has the same variance.
    """

    def __init__(self, problem: Coincidence) -> None:
        S = problem.scatter()
        spreads = np.sqrt(np.maximum(np.diag(S), 0) / max(problem.n_pairs, 1))
        spreads = beyond_rounding(spreads, problem.center, problem.X.dtype)
        # A feature in which no pair differs keeps its unit: its entries are negligible.
        self.units = np.where(spreads > 0, spreads * np.sqrt(problem.n_pairs), 1.0)
        with engine.one_thread_blas():
            values, self.directions = eigh(S / self.units / self.units[:, None])
        self.n_pairs = problem.n_pairs
        # Directions in which no pair differs have no gradient: a map does not move along them.
        live = values > len(values) * np.finfo(problem.X.dtype).eps * max(values[-1], 0)
        self.values = np.where(live, values, 0)
        self.inverse = np.where(live, 1 / np.where(live, values, 1), 0)

    def solve(self, G: np.ndarray) -> np.ndarray:
        """Return G S^- for G (p, D) in the span of S."""
        return (G / self.units @ self.directions * self.inverse) @ self.directions.T / self.units

    def root(self) -> np.ndarray:
        """Return R (D, D) with R R^T = (S / N)^-: rows of a map Theta R^T vary by about one."""
        return self.directions * np.sqrt(self.n_pairs * self.inverse) / self.units[:, None]

    def size(self, W: np.ndarray) -> float:
        """Return the root of the mean of |W delta|^2."""
        squares = (W * self.units @ self.directions) ** 2 * self.values
        return float(np.sqrt(np.sum(squares) / self.n_pairs))
