"""The E-step of Local Component Analysis: sums over neighbours, and the scatter of neighbours.

Rows w_i are given in coordinates in which the kernel is exp(-|z_i - z_j|^2 / 2), z the first q
coordinates of w. The responsibility of neighbour j for row i is its share of the row's sum
[LOC-2]; the scatter is sum_ij lambda_ij (w_i - w_j)(w_i - w_j)ᵀ [LOC-3], over all coordinates.

Second moments would lose eps times the square of the distance between clusters. So each row gets
u_i = sum_j (lambda_ij + lambda_ji)(w_i - w_j), a sum of differences, and the scatter is
sum_i u_i w_iᵀ. In many dimensions, and where that loss is harmless, products are faster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.pairs import dense_pairs
from fastmetric.core.pairs.pair_tiles import (
    add_gradient,
    empty_gradient,
    gradient_rows,
    make_points,
    products_are_safe,
)
from fastmetric.core.pairs.partition import row_blocks
from fastmetric.learn.kernel_sums.kernel_table import EXP_BANDWIDTH
from fastmetric.learn.local_component import product_e_step
from fastmetric.learn.local_component.neighbour_list_e_step import NeighbourList
from fastmetric.learn.pair_sums.all_pairs import (
    Classes,
    RowPairs,
    SymmetricPairs,
    mostly_underflowed,
)
from fastmetric.learn.pair_sums.class_trees import ClassTrees
from fastmetric.learn.rows import cross_product

_TREES_FROM, _TREES_TO = 5000, 12  # rows, and dimensions, where a tree is looked at


class Expectation(NamedTuple):
    """What rows (m,) see of their neighbours; float64."""

    log_sums: np.ndarray  # (m,): log sum_j exp(-|z_i - z_j|^2 / 2)
    scatter: np.ndarray  # (D, D), a sum over the rows


def among_all(
    W: np.ndarray, q: int, n_jobs: int | None = None, label: str | None = None
) -> Expectation:
    """Return the neighbourhood of every row of W (n, D) among all others."""
    n = len(W)
    if product_e_step.are_safe(W):
        pairs = NeighbourList(W, q, n_jobs)
        if pairs.pays():
            return Expectation(*pairs.log_sums_and_scatter(label))
        everyone = np.arange(n)
        return Expectation(*product_e_step.log_sums_and_scatter(W, W, everyone, q, n_jobs, label))
    rows = W * W.dtype.type(EXP_BANDWIDTH)
    way = _way(rows, q, n_jobs)
    log_sums = way.log_sums(label).own
    U = way.gradient(log_sums, np.ones(n), np.zeros(n), label)
    return Expectation(log_sums, _scatter([(U, rows)], n_jobs))


def _way(rows: np.ndarray, q: int, n_jobs: int | None) -> SymmetricPairs | RowPairs | ClassTrees:
    """Return how to sum over all pairs of scaled rows (n, D): over a tree where that pays."""
    n, D = rows.shape
    classes = Classes(np.array([0, n]), np.zeros(n, np.intp), np.full(n, n))  # one holds them all
    if n >= _TREES_FROM and q == D <= _TREES_TO:  # a tree scatters what it has distances of
        class_trees = ClassTrees(rows, classes, np.ones(n), GAUSSIAN, n_jobs=n_jobs)
        if class_trees.pays():
            return class_trees
    points = make_points(rows, near=q)
    if mostly_underflowed(points, n_jobs):
        return RowPairs(points, classes, np.arange(n), GAUSSIAN, n_jobs)
    return SymmetricPairs(points, classes, GAUSSIAN, n_jobs)


def of_rows(
    query: np.ndarray,
    ref: np.ndarray,
    self_index: np.ndarray,
    q: int,
    n_jobs: int | None = None,
    label: str | None = None,
) -> Expectation:
    """Return the neighbourhood of the rows `query` (m, D) among `ref` (n, D).

    Row i is itself ref[selves[i]], left out; -1: it is none of them.
    """
    if product_e_step.are_safe(query, ref):
        return Expectation(
            *product_e_step.log_sums_and_scatter(query, ref, self_index, q, n_jobs, label)
        )
    query, ref = query * query.dtype.type(EXP_BANDWIDTH), ref * ref.dtype.type(EXP_BANDWIDTH)
    safe = products_are_safe(query) and products_are_safe(ref)
    some, to = (make_points(rows, products=safe, near=q) for rows in (query, ref))
    m, n = len(query), len(ref)
    where = dense_pairs.QuerySegments(np.zeros(m, np.intp), np.full(m, n), self_index)
    blocks = row_blocks(m, n, q)

    def sums(block: dense_pairs.Block) -> np.ndarray:
        return dense_pairs.row_log_sums(some, to, where, block, GAUSSIAN)[0]

    log_sums = np.full(m, -np.inf)
    parts = engine.run(sums, blocks, n_jobs=n_jobs, label=label)
    for block, part in zip(blocks, parts, strict=True):
        rows = slice(block.i0, block.i1)
        log_sums[rows] = np.logaddexp(log_sums[rows], part)
    pull = np.ones(m, query.dtype), np.zeros(m, query.dtype)
    log_totals = log_sums.astype(query.dtype)

    def scatter(block: dense_pairs.Block) -> tuple:
        return dense_pairs.row_gradient(some, to, where, log_totals, *pull, block, GAUSSIAN)

    at_query, at_ref = empty_gradient(m, some), empty_gradient(n, to)
    both = engine.run(scatter, blocks, n_jobs=n_jobs, label=label)
    for block, (to_i, to_j) in zip(blocks, both, strict=True):
        add_gradient(at_query, to_i, slice(block.i0, block.i1))
        add_gradient(at_ref, to_j, slice(block.j0, block.j1))
    sides = [(gradient_rows(at_query, some), query), (gradient_rows(at_ref, to), ref)]
    return Expectation(log_sums, _scatter(sides, n_jobs))


def _scatter(sides: list[tuple[np.ndarray, np.ndarray]], n_jobs: int | None) -> np.ndarray:
    """Return the scatter (D, D) from the pulls u and the scaled rows of both sides of the pairs."""
    total = sum(cross_product(U, rows, np.zeros(rows.shape[1]), n_jobs) for U, rows in sides)
    return (total + np.transpose(total)) / (2 * EXP_BANDWIDTH**2)
