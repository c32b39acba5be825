"""Errors by a vote of the nearest neighbours, for a metric that is learnt."""

from __future__ import annotations

import numpy as np

from fastmetric.kd_tree import KDTree
from fastmetric.learn.rows import column_means, project


def vote(labels: np.ndarray) -> np.ndarray:
    """Return the most frequent of each row's labels (m, k), of several the first to occur."""
    counts = (labels[:, :, None] == labels[:, None, :]).sum(axis=2)
    return np.take_along_axis(labels, counts.argmax(axis=1)[:, None], axis=1)[:, 0]


class VoteErrors:
    """Tells which rows held out the nearest neighbours under a map get wrong, (m,) bool."""

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        X_kept: np.ndarray,
        y_kept: np.ndarray,
        k: int,
        n_jobs: int | None,
    ) -> None:
        """Take the rows learnt from and those held out, with their class numbers."""
        self.X, self.y, self.X_kept, self.y_kept = X, y, X_kept, y_kept
        self.k, self.n_jobs = min(k, len(X)), n_jobs
        self.center = column_means(X, n_jobs)

    def __call__(self, W: np.ndarray) -> np.ndarray:
        W = W.astype(self.X.dtype)
        Z, kept = (project(rows, self.center, W, self.n_jobs) for rows in (self.X, self.X_kept))
        near = KDTree(Z, n_jobs=self.n_jobs).query(kept, k=self.k, return_distance=False)
        return vote(self.y[near]) != self.y_kept
