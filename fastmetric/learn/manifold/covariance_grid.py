"""The shapes of local Gaussians with noise added, for a grid of settings [MAN-2], [MAN-4]."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric.core.gaussians.local_gaussians import Shapes
from fastmetric.core.shifted_sums import EMPTY, ShiftedSums
from fastmetric.learn.manifold.neighbourhood_pca import LocalGaussians


class ShapeGrid(NamedTuple):
    """Shapes to evaluate: numbers of directions by variances of the noise."""

    counts: np.ndarray  # (Q,), increasing
    noise: np.ndarray  # (S,), float64


class Block(NamedTuple):
    """Queries and Gaussians of one task."""

    rows: slice
    points: slice


def shapes_of(
    gaussians: LocalGaussians, points: slice | np.ndarray, grid: ShapeGrid, dtype: np.dtype
) -> Shapes:
    """Return the shapes of some of the Gaussians, with the noise of the grid."""
    n_features = gaussians.X.shape[1]
    largest = int(grid.counts[-1])
    variances = gaussians.variances[points, None, :largest] + grid.noise[:, None]  # (t, S, q)
    log_dets = np.zeros((len(variances), len(grid.noise), largest + 1))
    np.cumsum(np.log(variances), axis=2, out=log_dets[:, :, 1:])
    across = (n_features - grid.counts)[:, None] * np.log(grid.noise)
    log_dets = log_dets[:, :, grid.counts].transpose(0, 2, 1) + across
    log_factors = -0.5 * (n_features * np.log(2 * np.pi) + log_dets)
    with np.errstate(over="ignore"):  # with negligible noise, the density is zero or infinite
        return Shapes(
            (1 / variances).astype(dtype),
            (1 / grid.noise).astype(dtype),
            np.ascontiguousarray(log_factors),
        )


def grid_sums(grid: ShapeGrid, m: int) -> ShiftedSums:
    """Return empty sums at m queries."""
    shape = (len(grid.counts), len(grid.noise), m)
    return ShiftedSums(np.full(shape, EMPTY), np.zeros(shape))
