"""A normal density per class in the projected space [CCK-7], and its part of the gradient.

Means and covariances T_c come from the projected rows of the class, divisor N_c. All of
[CCK-8] is a gradient with respect to projected rows, so that the total remains 2 UᵀX: with
v = T_c⁻¹ (z_i - m_c) and the coefficients q_ic,

    u_i -= ½ sum_c q_ic v_ic                                          rows i of the objective
    u_j += ½ (M_c (z_j - m_c) + r_c) / N_c                            rows j of class c
    M_c = sum_i q_ic v vᵀ - (sum_i q_ic) T_c⁻¹,   r_c = sum_i q_ic v_ic.

A class whose covariance is singular (as few rows as dimensions, a constant direction) uses the
covariance of all rows, regularised by 1e-6 of the kernel's squared width and 1e-9 of its own mean
variance in every direction. Variation within rounding counts as none.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fastmetric import engine

# Added to the common covariance: in units of the kernel's width squared, and of its own mean.
_REGULAR, _OWN_REGULAR = 1e-6, 1e-9
# A covariance with a smaller ratio of eigenvalues is taken as singular.
_SINGULAR = {np.dtype(np.float64): 1e-11, np.dtype(np.float32): 1e-6}
_BLOCK_VALUES = 2**18  # densities in a block of rows


class Background:
    """The normal densities of all classes of projected rows Z (n, d), sorted by class."""

    def __init__(self, Z: np.ndarray, offsets: np.ndarray, n_jobs: int | None = None) -> None:
        """Take class c as the rows offsets[c]:offsets[c + 1], none of them empty."""
        self.Z, self.offsets, self.n_jobs = Z, offsets, n_jobs
        moments = list(engine.run(self._moments, list(pairwise(offsets)), n_jobs=n_jobs))
        sizes = np.diff(offsets)
        self.means = np.array([mean for mean, _ in moments])
        covariances = np.array([covariance for _, covariance in moments])
        self.mean = sizes @ self.means / len(Z)
        between = (self.means - self.mean).T * sizes @ (self.means - self.mean)
        total = (np.tensordot(sizes, covariances, 1) + between) / len(Z)
        d = Z.shape[1]
        eigenvalues = np.linalg.eigvalsh(covariances)
        noise = 8 * np.finfo(Z.dtype).eps * float(np.abs(Z).max())
        least = np.maximum(_SINGULAR[Z.dtype] * eigenvalues[:, -1], noise**2)
        self.singular = (sizes <= d) | (eigenvalues[:, 0] <= least)
        covariances[self.singular] = total + (
            _REGULAR + _OWN_REGULAR * np.trace(total) / d
        ) * np.eye(d)
        self.inverses = np.linalg.inv(covariances)
        log_dets = np.linalg.slogdet(covariances)[1]
        self.log_heights = -0.5 * (d * np.log(2 * np.pi) + log_dets)

    def _moments(self, rows: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return mean (d,) and covariance (d, d) of a class."""
        Z = self.Z[slice(*rows)].astype(np.float64)
        mean = Z.mean(axis=0)
        return mean, (Z - mean).T @ (Z - mean) / len(Z)

    def log_densities(self, query: np.ndarray) -> np.ndarray:
        """Return log N(q | class c) of points (m, d), (m, C)."""
        logs = np.empty((len(query), len(self.means)))

        def task(rows: slice) -> None:
            for c in range(len(self.means)):
                gaps = query[rows] - self.means[c]
                squares = np.einsum("ij,ij->i", gaps @ self.inverses[c], gaps)
                logs[rows, c] = self.log_heights[c] - squares / 2

        for _ in engine.run(task, self._row_ranges(len(query)), n_jobs=self.n_jobs):
            pass
        return logs

    def gradient(self, chosen: np.ndarray, strengths: np.ndarray) -> np.ndarray:
        """Return U (n, d) of the rows `chosen` with coefficients q (m, C) [CCK-8]."""
        n, d = self.Z.shape
        U = np.zeros((n, d))
        query = self.Z[chosen]

        def task(rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            mine = np.zeros((len(query[rows]), d))
            outer, first = np.empty((len(self.means), d, d)), np.empty((len(self.means), d))
            for c in range(len(self.means)):
                v = (query[rows] - self.means[c]) @ self.inverses[c]
                weighted = strengths[rows, c, None] * v
                mine += weighted
                outer[c], first[c] = v.T @ weighted, weighted.sum(axis=0)
            return mine, outer, first

        outer, first = np.zeros(self.inverses.shape), np.zeros(self.means.shape)
        ranges = self._row_ranges(len(query))
        for rows, (mine, *sums) in zip(
            ranges, engine.run(task, ranges, n_jobs=self.n_jobs), strict=True
        ):
            U[chosen[rows]] -= mine / 2
            outer += sums[0]
            first += sums[1]
        outer -= strengths.sum(axis=0)[:, None, None] * self.inverses
        self._add_class_parts(U, outer, first)
        return U

    def _add_class_parts(self, U: np.ndarray, outer: np.ndarray, first: np.ndarray) -> None:
        """Add the gradient through the means and covariances to the rows of each class."""
        for c, (a, b) in enumerate(pairwise(self.offsets)):
            U[a:b] += first[c] / (2 * (b - a))
            if not self.singular[c]:
                U[a:b] += (self.Z[a:b] - self.means[c]) @ outer[c] / (2 * (b - a))
        if self.singular.any():
            common = outer[self.singular].sum(axis=0)
            common += _OWN_REGULAR * np.trace(common) / len(common) * np.eye(len(common))
            U += (self.Z - self.mean) @ common / (2 * len(U))

    def _row_ranges(self, m: int) -> list[slice]:
        """Return ranges of m rows, by sizes alone."""
        step = max(256, _BLOCK_VALUES // len(self.means))
        return [slice(first, min(first + step, m)) for first in range(0, m, step)]
