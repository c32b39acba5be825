"""The principal directions of every point's neighbourhood [MAN-4]."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.learn.nearest_neighbours import others
from fastmetric.learn.rows import ArrayRows, column_means

_VALUES = 2**20  # differences held at a time, in float64
_FLOPS = 1e9  # of the decompositions in a block
_SHARPEST = -2.0  # log weight of the farthest neighbour of a soft neighbourhood
# Eigenvalues of products of differences have an error of eps times the largest, and directions of
# that over their own eigenvalue: below this share of the largest, an SVD is used instead.
_SMALLEST_SHARE = {np.dtype(np.float64): 1e-4, np.dtype(np.float32): 1e-8}


class LocalGaussians(NamedTuple):
    """Gaussians around n points, by their q leading directions, before noise is added."""

    X: np.ndarray  # (n, D)
    center: np.ndarray  # (D,), the mean of X
    directions: np.ndarray  # (n, q, D), orthonormal
    variances: np.ndarray  # (n, q), decreasing
    offsets: np.ndarray  # (n, q), directions times X - center


class Neighbourhood(NamedTuple):
    """The number of neighbours, and their weights."""

    n_neighbors: int
    soft: bool = False
    bandwidth: float | None = None  # of soft weights


def neighbourhood_pca(
    X: np.ndarray,
    q: int,
    neighborhood: Neighbourhood,
    n_jobs: int | None = None,
    label: str | None = None,
) -> LocalGaussians:
    """Return the q leading directions of the neighbourhood of every point of X (n, D), n >= 2.

    Their number is at most that of the other points, of features and of neighbours.
    """
    n, n_features = X.shape
    k = min(neighborhood.n_neighbors, n - 1)
    q = min(q, k, n_features)
    center = column_means(ArrayRows(X, n_jobs))
    directions = np.empty((n, q, n_features), X.dtype)
    variances, offsets = np.empty((n, q), X.dtype), np.empty((n, q), X.dtype)
    if q == 0:
        return LocalGaussians(X, center, directions, variances, offsets)
    search = others(X, k, n_jobs)
    step, most = max(1, _VALUES // (k * n_features)), _rows_of_a_block(k, n_features)

    def task(rows: np.ndarray) -> None:
        neighbours = search.nearest(rows)
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            own, around = rows[part], neighbours[part]
            gaps = np.subtract(X[around], X[own][:, None], dtype=np.float64)
            gaps *= _root_weights(gaps, neighborhood)
            variances[own], found = _leading(gaps, q, _SMALLEST_SHARE[X.dtype])
            directions[own] = found
            centred = np.subtract(X[own], center, dtype=np.float64)
            offsets[own] = np.matmul(found, centred[:, :, None])[:, :, 0]

    for _ in engine.run(task, search.blocks(most), n_jobs=n_jobs, label=label):
        pass
    return LocalGaussians(X, center, directions, variances, offsets)


def _rows_of_a_block(k: int, n_features: int) -> int:
    """Return the number of decompositions that take some 100 ms."""
    side = min(k, n_features)
    return max(1, int(_FLOPS / (2 * k * n_features * side + 10 * side**3)))


def _root_weights(gaps: np.ndarray, neighborhood: Neighbourhood) -> np.ndarray:
    """Return the square roots of the neighbours' weights, which sum to 1, for gaps (b, k, D)."""
    k = gaps.shape[1]
    if not neighborhood.soft:
        return np.full((1, k, 1), 1 / np.sqrt(k))
    sq_dist = np.einsum("ikd,ikd->ik", gaps, gaps)
    if neighborhood.bandwidth is None:
        farthest = sq_dist.max(axis=1, keepdims=True)
        logs = _SHARPEST * sq_dist / np.where(farthest > 0, farthest, 1)
    else:
        # Divided twice: the square of a small bandwidth may underflow.
        with np.errstate(over="ignore"):
            scaled = (sq_dist - sq_dist.min(axis=1, keepdims=True)) / neighborhood.bandwidth
            logs = -scaled / (2 * neighborhood.bandwidth)
    weights = np.exp(logs)
    return np.sqrt(weights / weights.sum(axis=1, keepdims=True))[:, :, None]


def _leading(gaps: np.ndarray, q: int, smallest_share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the q largest squared singular values (b, q) of gaps (b, k, D), and their directions.

    They are eigenvectors of the products on the smaller side, where these are accurate.
    """
    wide = gaps.shape[1] < gaps.shape[2]
    other = gaps.transpose(0, 2, 1)
    values, vectors = np.linalg.eigh(gaps @ other if wide else other @ gaps)
    values, vectors = values[:, ::-1][:, :q], vectors[:, :, ::-1][:, :, :q].transpose(0, 2, 1)
    accurate = values[:, -1] > smallest_share * values[:, 0]
    if wide:
        with np.errstate(divide="ignore", invalid="ignore"):
            vectors = (vectors @ gaps) / np.sqrt(values)[:, :, None]
    if not accurate.all():
        _, singular, right = np.linalg.svd(gaps[~accurate], full_matrices=False)
        values, vectors = values.copy(), np.ascontiguousarray(vectors)
        values[~accurate], vectors[~accurate] = singular[:, :q] ** 2, right[:, :q]
    return values, vectors
