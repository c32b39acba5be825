"""Responsibilities by matrix products, by blocks of rows: for many dimensions.

With responsibilities lambda_ij, row sums rho_i (1 up to rounding), column sums r_j and
u_i = rho_i w_i - sum_j lambda_ij w_j [LOC-3],

    sum_ij lambda_ij (w_i - w_j)(w_i - w_j)ᵀ
        = sum_j r_j w_j w_jᵀ - sum_i rho_i w_i w_iᵀ + sum_i (u_i w_iᵀ + w_i u_iᵀ),

so that a block needs nothing but its own rows and one number for every other row. Distances and
scatter lose eps |w|² to cancellation; where that would show, pairs are taken by differences.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.error_bounds import E_STEPS
from fastmetric.core.pairs.product_weights import few_products, weigh
from fastmetric.learn import costs
from fastmetric.learn.rows import cross_product

_PAIRS, _ROWS = 2**20, (32, 256)  # pairs in a block, and its rows at least and at most


class Batch(NamedTuple):
    """Rows whose neighbours are asked for, beside the rows that may be neighbours."""

    rows: np.ndarray  # (m, D)
    self_index: np.ndarray  # (m,): the row of W that it is itself, left out; -1: none


class Neighbours(NamedTuple):
    """What is summed: the kernels exp(-|z_i - z_j|^2 / 2) of rows with their neighbours in W."""

    W: np.ndarray  # (n, D)
    q: int  # z are so many first coordinates
    batch: Batch | None = None  # None: all rows of W, each among the others


def are_safe(problem: Neighbours) -> bool:
    """Return whether products of rows lose nothing that matters, and dimensions are many."""
    sides = [problem.W] if problem.batch is None else [problem.batch.rows, problem.W]
    if problem.W.shape[1] < costs.PRODUCT_DIMENSIONS:
        return False
    size = max(np.einsum("ij,ij->", W, W, dtype=np.float64) / len(W) for W in sides)
    return E_STEPS.allows(float(size), sides[0].dtype)


class Products:
    """Rows among all neighbours, by products of matrices."""

    all_pairs: ClassVar[bool] = True
    method: ClassVar[str] = "exact"
    name = "products"

    def __init__(self, problem: Neighbours, n_jobs: int | None = None) -> None:
        """Take rows whose products lose nothing that matters."""
        self.problem, self.n_jobs = problem, n_jobs

    @staticmethod
    def serves(problem: Neighbours) -> bool:
        """Return whether products lose nothing that matters, and dimensions are many."""
        return are_safe(problem)

    @staticmethod
    def worth_building(
        problem: Neighbours, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return True: there is nothing to build."""
        return True

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds."""
        (n, D), batch, table = self.problem.W.shape, self.problem.batch, costs.E_STEP
        m = n if batch is None else len(batch.rows)
        return m * n * (table.pair + table.product * (self.problem.q + D))

    def log_sums_and_scatter(self, label: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the log sums (m,) and the scatter (D, D)."""
        W, q, batch = self.problem
        if batch is None:
            batch = Batch(W, np.arange(len(W)))
        return _log_sums_and_scatter(batch, W, q, self.n_jobs, label)


def _log_sums_and_scatter(
    batch: Batch, ref: np.ndarray, q: int, n_jobs: int | None, label: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log sums (m,) of a batch over `ref` (n, D), and the scatter (D, D)."""
    query, self_index = batch
    m, n = len(query), len(ref)
    near_ref = np.ascontiguousarray(ref[:, :q])
    near = near_ref if query is ref else np.ascontiguousarray(query[:, :q])
    sq_ref, sq = squares(near_ref), squares(near)
    step = min(max(_PAIRS // n, _ROWS[0]), _ROWS[1])

    def task(first: int) -> tuple[np.ndarray, ...]:
        rows = slice(first, min(first + step, m))
        col_sums = np.zeros(n)
        weights = near[rows] @ near_ref.T
        log_sums, row_sums, live = weigh(weights, sq[rows], sq_ref, self_index[rows], col_sums)
        few = live < costs.FEW_PRODUCTS_SHARE * weights.size
        gradient_rows = few_products(weights, ref) if few else weights @ ref
        return log_sums, row_sums, row_sums[:, None] * query[rows] - gradient_rows, col_sums

    parts, r = [], np.zeros(n)
    for *part, col_sums in engine.run(task, range(0, m, step), n_jobs=n_jobs, label=label):
        parts.append(part)
        r += col_sums
    log_sums, rho, u = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if query is ref:
        return log_sums, scatter_of(u, rho, r, ref, n_jobs)
    none = np.zeros(n)
    scatter = scatter_of(u, rho, np.zeros(m), query, n_jobs)
    return log_sums, scatter + scatter_of(np.zeros(ref.shape), none, r, ref, n_jobs)


def scatter_of(
    u: np.ndarray, rho: np.ndarray, r: np.ndarray, W: np.ndarray, n_jobs: int | None = None
) -> np.ndarray:
    """Return the scatter (D, D) of rows W (n, D), each with u, a row sum and a column sum."""
    half = cross_product(u + 0.5 * (r - rho)[:, None] * W, W, np.zeros(W.shape[1]), n_jobs)
    return half + half.T


def squares(rows: np.ndarray) -> np.ndarray:
    """Return the squares (m,) of rows, in their precision."""
    return np.einsum("ij,ij->i", rows, rows, dtype=np.float64).astype(rows.dtype)
