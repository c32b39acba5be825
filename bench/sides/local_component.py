"""Both sides of Local Component Analysis: the E-step and its covariance, of one iteration."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bench.shared.setup import training_rows
from fastmetric import engine
from fastmetric.learn.local_component.covariance_model import LocalModel, Penalty, Shape
from fastmetric.learn.local_component.em import Problem
from fastmetric.learn.rows import ArrayRows

_BLOCK = 512  # rows of the peer's blocks; 256 and 1,024 were no faster


class Iteration(NamedTuple):
    """Rows, and the kernel from which an iteration begins."""

    problem: Problem
    model: LocalModel


def usps(n: int, nu: float, done: int, dtype: str) -> Iteration:
    """Return n rows of USPS, in "float32" or "float64", and the kernel after `done` iterations."""
    X = training_rows("usps")[0][:n].astype(dtype)
    problem = Problem(ArrayRows(X), Shape(), Penalty(nu, nu))
    model = problem.start()
    with engine.one_thread_blas():
        for _ in range(done):
            model = problem.model(problem.expect(model)[1])
    return Iteration(problem, model)


def ours(iteration: Iteration) -> np.ndarray:
    """Return the local covariance (D, D) that follows from a kernel, by ours."""
    problem, model = iteration
    with engine.one_thread_blas():
        return problem.expect(model)[1]


def peer(iteration: Iteration) -> np.ndarray:
    """Return the same by NumPy: products of blocks of rows, in place, a thread per core.

    Each thread has a BLAS of its own, so that what BLAS does not do has all cores, too.
    """
    (problem, model), n = iteration, len(iteration.problem.X)
    X = problem.X.resident() - problem.mean.astype(problem.X.dtype)
    Z = X @ model.B.T.astype(X.dtype)
    half = np.einsum("ij,ij->i", Z, Z) / 2

    def block(first: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(first, min(first + _BLOCK, n))
        K = Z[rows] @ Z.T
        K -= half
        own = np.arange(rows.start, rows.stop)
        K[own - rows.start, own] = -np.inf
        K -= K.max(axis=1, keepdims=True)
        np.exp(K, out=K)
        K /= K.sum(axis=1, keepdims=True)
        return K.sum(axis=0), Z[rows].T @ (K @ Z)

    r, cross = np.zeros(n, Z.dtype), np.zeros((Z.shape[1], Z.shape[1]), Z.dtype)
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        for col_sums, part in pool.map(block, range(0, n, _BLOCK)):
            r, cross = r + col_sums, cross + part
        scatter = ((Z * (1 + r)[:, None]).T @ Z - cross - cross.T) / n
    return model.unwhitened(scatter)
