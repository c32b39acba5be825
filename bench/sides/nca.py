"""Both sides of NCA: one evaluation and one fit each, and how far apart they are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from bench.shared.setup import Problem, UnavailableError
from fastmetric import NCA, nca_value_and_grad

PEER_BYTES_PER_PAIR = 33  # four n x n matrices of float64 and one of bool are alive at once
_FEW = 500  # rows that suffice to have all code compiled and all libraries initialised


class _CountingPeer(NeighborhoodComponentsAnalysis):
    """scikit-learn's estimator, counting its evaluations."""

    def fit(self, X: Any, y: Any) -> Any:
        self.evaluations = 0
        return super().fit(X, y)

    def _loss_grad_lbfgs(self, *args: Any) -> Any:
        self.evaluations += 1
        return super()._loss_grad_lbfgs(*args)


def load_code(problem: Problem) -> None:
    """Compile all that an evaluation of this kind may need, or load it from the cache."""
    A, X, y = problem.A, problem.X[:_FEW], problem.y[:_FEW]
    # A tiny map keeps all rows near each other, which takes the usual way through the code;
    # chosen rows take the other one.
    nca_value_and_grad(A * 1e-3, X, y)
    nca_value_and_grad(A, X, y, rows=[0])


def warm_up_peer(problem: Problem) -> None:
    """Do for scikit-learn what `load_code` does for us."""
    few = Problem(problem.A, problem.X[:_FEW], problem.y[:_FEW])
    peer_evaluation(few, same_class(few.y))


def our_evaluation(problem: Problem, n_jobs: int | None = None) -> tuple[float, np.ndarray]:
    """Return our value and gradient (d, D)."""
    return nca_value_and_grad(problem.A, problem.X, problem.y, n_jobs=n_jobs)


def same_class(y: np.ndarray) -> np.ndarray:
    """Return the mask (n, n) that scikit-learn prepares once per fit."""
    return y[:, None] == y[None, :]


def peer_evaluation(problem: Problem, mask: np.ndarray) -> tuple[float, np.ndarray]:
    """Return scikit-learn's value and gradient (d, D)."""
    peer = NeighborhoodComponentsAnalysis()
    if not hasattr(peer, "_loss_grad_lbfgs"):
        raise UnavailableError("this scikit-learn has no single evaluation to call")
    peer.n_iter_ = 1
    value, gradient = peer._loss_grad_lbfgs(problem.A.ravel(), problem.X, mask, 1.0)
    return float(value), gradient.reshape(problem.A.shape)


def our_fit(problem: Problem, max_iter: int) -> NCA:
    """Return our estimator after `max_iter` iterations from the problem's map."""
    return _fitted(NCA, problem, max_iter)


def peer_fit(problem: Problem, max_iter: int) -> _CountingPeer:
    """Return scikit-learn's estimator after `max_iter` iterations from the problem's map."""
    return _fitted(_CountingPeer, problem, max_iter)


def _fitted(estimator: type, problem: Problem, max_iter: int) -> Any:
    """Return a fitted estimator; a tolerance of 0 lets it use up all of its iterations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        nca = estimator(len(problem.A), init=problem.A, max_iter=max_iter, tol=0.0)
        return nca.fit(problem.X, problem.y)


def as_float32(problem: Problem) -> Problem:
    """Return the problem with its data in float32."""
    return problem._replace(X=problem.X.astype(np.float32))


def difference(ours: Any, peers: Any) -> float:
    """Return the largest difference, relative to the largest entry of the peer's."""
    return float(np.max(np.abs(np.subtract(ours, peers))) / np.max(np.abs(peers)))
