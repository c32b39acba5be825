"""The density of Local Component Analysis at new rows, by the kernels around rows it knows."""

from __future__ import annotations

import math

import numpy as np

from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.local_component.covariance_model import LocalModel
from fastmetric.learn.rows import whitened


class LocalDensity:
    """The density [LOC-5] of a model and of the local coordinates (n, q) of n rows."""

    def __init__(
        self, model: LocalModel, mean: np.ndarray, rows: np.ndarray, n_jobs: int | None = None
    ) -> None:
        self.model, self.mean, self.rows, self.n_jobs = model, mean, rows, n_jobs
        self._sums: KernelSums | None = None

    def coordinates(self, X: np.ndarray) -> np.ndarray:
        """Return rows X (m, D) in the coordinates of the model."""
        return whitened(X, self.mean, self.model.B, self.n_jobs)

    def log_densities(self, W: np.ndarray, label: str | None = None) -> np.ndarray:
        """Return log p (m,) at rows of coordinates W (m, D), float64; nothing is left out."""
        q = self.model.q
        log_means = np.zeros(len(W))
        if q:
            if self._sums is None:
                self._sums = KernelSums(self.rows, n_jobs=self.n_jobs)
            query = np.ascontiguousarray(W[:, :q])
            sums = self._sums.log_sums(query, bounds=False, label=label)
            log_means = sums.estimate - math.log(len(self.rows))
        return self.model.log_densities(log_means, W)

    def sample(self, n: int, rng: np.random.RandomState) -> np.ndarray:
        """Return n rows (n, D) drawn from the density, float64."""
        chosen = rng.randint(len(self.rows), size=n)
        W = rng.standard_normal((n, len(self.mean)))
        W[:, : self.model.q] += self.rows[chosen]
        return self.mean + W @ self.model.inverse.T
