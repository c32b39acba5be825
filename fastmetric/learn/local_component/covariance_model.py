"""The model of Local Component Analysis, and its M-step: from two covariances to a density.

Coordinates w = B (x - mean) in which the density is a product: a Parzen window with the kernel
exp(-|.|^2 / 2) over the first q of them, the local ones, times a standard normal over the others,
the Gaussian ones [LOC-5]. Without a Gaussian part q = D, and the kernel's covariance is
Sigma = (BᵀB)⁻¹.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular

from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.rows import Rows


class SingularError(ValueError):
    """A covariance has no inverse: there is no density."""


class Shape(NamedTuple):
    """What a model may be like."""

    covariance: str = "full"  # or "diag", "spherical", "low_rank"
    rank: int = 0  # of "low_rank"
    gaussian: bool = False  # whether directions may be Gaussian


class Penalty(NamedTuple):
    """What is added to the variances: of the kernel, and of the Gaussian part."""

    local: float = 0.0
    total: float = 0.0

    def of(self, model: LocalModel) -> float:
        """Return the penalty of the mean log-likelihood: half nu times the squares of B."""
        squares = np.einsum("ij,ij->i", model.B, model.B)
        q = model.q
        return 0.5 * float(self.local * squares[:q].sum() + self.total * squares[q:].sum())


class LocalModel(NamedTuple):
    """Coordinates w = B (x - mean), the first q of them local."""

    B: np.ndarray  # (D, D), rows
    inverse: np.ndarray  # (D, D)
    q: int
    log_det: float  # log |det B|
    covariance: np.ndarray  # (D, D): of the local part, with its penalty

    def log_densities(self, log_means: np.ndarray, W: np.ndarray) -> np.ndarray:
        """Return log p (m,) [LOC-5], from rows W (m, D) and the logs of their mean kernels (m,)."""
        gaussian = W[:, self.q :].astype(np.float64)
        squares = np.einsum("ij,ij->i", gaussian, gaussian)
        constant = self.log_det - 0.5 * len(self.B) * math.log(2 * math.pi)
        return constant - 0.5 * squares + log_means

    def unwhitened(self, scatter: np.ndarray) -> np.ndarray:
        """Return a scatter (D, D) of coordinates w as one of rows x."""
        return self.inverse @ scatter @ self.inverse.T


def model_of(
    local: np.ndarray, total: np.ndarray, shape: Shape, q: int | None = None
) -> LocalModel:
    """Return the model of a local covariance C_L and the covariance C_G of all rows, (D, D) each.

    Both with their penalties. With a Gaussian part the directions are those of Proposition 1
    [LOC-4]; `q`: so many of them local, whatever their eigenvalues.
    """
    if shape.covariance in ("diag", "spherical"):
        return _axes(np.diag(local), total, spherical=shape.covariance == "spherical")
    covariance = _low_rank(local, shape.rank) if shape.covariance == "low_rank" else local
    ratios, B, inverse, log_det = _joint_directions(total, covariance)
    D = len(local)
    if q is None:
        # e < 1 in the paper's terms, e = local variance over total.
        q = int(np.count_nonzero(ratios > 1)) if shape.gaussian else D
    _check_ratios(ratios, q)
    scale = np.ones(D)
    scale[q:] = np.sqrt(ratios[q:])
    B, inverse = B / scale[:, None], inverse * scale
    return LocalModel(B, inverse, q, log_det - float(np.log(scale).sum()), covariance)


def _axes(variances: np.ndarray, total: np.ndarray, *, spherical: bool) -> LocalModel:
    """Return the model whose kernel has the features' own axes."""
    if spherical:
        variances = np.full(len(variances), variances.mean())
    _check_pivots(variances, np.diag(total), _LEAST_SHARE * np.diag(total))
    deviations = np.sqrt(variances)
    B, inverse = np.diag(1 / deviations), np.diag(deviations)
    log_det = -float(np.log(deviations).sum())
    return LocalModel(B, inverse, len(variances), log_det, np.diag(variances))


def _low_rank(local: np.ndarray, rank: int) -> np.ndarray:
    """Return V diag(e) Vᵀ + sigma² (I - V Vᵀ): leading eigenpairs, and the mean of the rest."""
    if rank == len(local):  # one feature: there are no others
        return local
    e, V = eigh(local)
    noise = e[:-rank].mean()
    V, e = V[:, -rank:], e[-rank:]
    return noise * np.eye(len(local)) + (V * (e - noise)) @ V.T


def _joint_directions(
    total: np.ndarray, local: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return total variances in descending order, directions B, B⁻¹ and log |det B|.

    B (D, D) has local variance 1 in every direction, B local Bᵀ = I, and no covariance in total,
    B total Bᵀ = diag(variances). These directions do not depend on the units of the features.
    """
    scale = np.sqrt(np.maximum(np.diag(local), 0))
    scale[scale == 0] = 1
    correlations = local / np.outer(scale, scale)
    try:
        root = cholesky(correlations, lower=True)
    except LinAlgError:
        root = np.zeros_like(local)
    least = np.full(len(local), _LEAST_PIVOT * len(local))
    _check_pivots(np.diag(root) ** 2, np.diag(total), least)
    half = solve_triangular(root, total / np.outer(scale, scale), lower=True)
    ratios, V = eigh(solve_triangular(root, half.T, lower=True))
    ratios, V = ratios[::-1], V[:, ::-1]
    B = solve_triangular(root, V, lower=True, trans="T").T / scale
    inverse = scale[:, None] * (root @ V)
    log_det = -float(np.log(np.diag(root)).sum() + np.log(scale).sum())
    return ratios, B, inverse, log_det


# A pivot of a matrix with unit diagonal below this, times D, is rounding.
_LEAST_PIVOT = 4 * np.finfo(float).eps

# A variance that is a smaller share of another one than this is none.
_LEAST_SHARE = 1e-12


def _check_pivots(pivots: np.ndarray, total: np.ndarray, least: np.ndarray) -> None:
    """Raise if a local covariance has pivots (D,) that are not above the `least` ones."""
    if not np.isfinite(pivots).all():
        raise ValueError("The local covariance is not finite. Scale the features.")
    if (pivots > least).all():
        return
    constant = np.flatnonzero(total == 0)
    if constant.size:
        raise SingularError(
            f"{constant.size} of {len(total)} features are constant (the first is number "
            f"{constant[0]}): their local variance is 0, and the density is infinite. Drop them, "
            "or give nu > 0."
        )
    raise SingularError(
        "The local covariance is singular: the rows lie in fewer dimensions than they have "
        "features, or have duplicates onto which the kernel collapses. Give nu > 0, drop redundant "
        "features and duplicates, or take another covariance."
    )


def _check_ratios(ratios: np.ndarray, q: int) -> None:
    """Raise if the kernel has collapsed, or rows do not vary in a Gaussian direction."""
    if ratios[0] * _LEAST_SHARE > 1:
        raise SingularError(
            "The kernel has collapsed: the likelihood grows without bound as it narrows, because "
            "rows have duplicates in some direction. Give nu > 0, or drop duplicates."
        )
    if q < len(ratios) and ratios[-1] < _LEAST_SHARE:
        raise SingularError(
            "The rows do not vary in some direction, and a Gaussian part would be infinite there. "
            "Give nu > 0, or drop redundant features."
        )


class LocalDensity:
    """The density [LOC-5] of a model and of the local coordinates (n, q) of n rows."""

    def __init__(
        self, model: LocalModel, mean: np.ndarray, rows: np.ndarray, n_jobs: int | None = None
    ) -> None:
        self.model, self.mean, self.rows, self.n_jobs = model, mean, rows, n_jobs
        self._sums: KernelSums | None = None

    def coordinates(self, X: Rows) -> np.ndarray:
        """Return rows X (m, D) in the coordinates of the model."""
        return X.project(self.mean, self.model.B, precise=True)

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
