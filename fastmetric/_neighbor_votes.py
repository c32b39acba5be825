"""Nearest neighbours for a metric that is learnt: a row's targets, and errors by vote."""

from __future__ import annotations

import numpy as np

from fastmetric.kd_tree import KDTree
from fastmetric.learn.linear import column_means, project


def target_neighbors(X: np.ndarray, y: np.ndarray, k: int, n_jobs: int | None) -> np.ndarray:
    """Return pairs (2, m) of each row of X (n, D) with its k nearest of the same class y (n,).

    As many as there are, in a smaller class.
    """
    pairs = []
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        most = min(k, len(rows) - 1)
        if not most:
            continue
        found = KDTree(X[rows], n_jobs=n_jobs).query(X[rows], k=most + 1, return_distance=False)
        # A row is among its own neighbours, but for duplicates: else the last one goes.
        other = found != np.arange(len(rows))[:, None]
        other[other.all(axis=1), -1] = False
        pairs.append(np.stack([np.repeat(rows, most), rows[found[other]]]))
    if not pairs:
        return np.empty((2, 0), np.int32)
    return np.concatenate(pairs, axis=1).astype(np.int32)


def vote(labels: np.ndarray) -> np.ndarray:
    """Return the most frequent of each row's labels (m, k), of several the first to occur."""
    counts = (labels[:, :, None] == labels[:, None, :]).sum(axis=2)
    return np.take_along_axis(labels, counts.argmax(axis=1)[:, None], axis=1)[:, 0]


class Judge:
    """The share of rows held out that the nearest neighbours under a map get wrong."""

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

    def __call__(self, W: np.ndarray) -> float:
        W = W.astype(self.X.dtype)
        Z, kept = (project(rows, self.center, W, self.n_jobs) for rows in (self.X, self.X_kept))
        near = KDTree(Z, n_jobs=self.n_jobs).query(kept, k=self.k, return_distance=False)
        return float(np.mean(vote(self.y[near]) != self.y_kept))
