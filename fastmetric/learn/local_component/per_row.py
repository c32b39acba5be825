"""One covariance per row: kernels that follow the data's shape from place to place.

Row j has a kernel of its own, N(x; x_j, Sigma_j). EM gives it the scatter of the rows that it is
responsible for, smoothed towards one covariance for all:
Sigma_j = (sum_i lambda_ij (x_i - x_j)(x_i - x_j)ᵀ + a Sigma_0) / (r_j + a), r_j = sum_i lambda_ij.
EM never lowers log-likelihood - (a / 2) sum_j [log |Sigma_j| + tr Sigma_j⁻¹ Sigma_0].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from fastmetric import engine
from fastmetric.learn.local_component.em import figures
from fastmetric.learn.optim.outcome import Ending, Iterate, Outcome, Recorder

_PAIRS = 2**22  # pairs times dimensions in a task


class Kernels(NamedTuple):
    """The roots of the covariances of n kernels, in coordinates in which Sigma_0 is I."""

    centers: np.ndarray  # (n, D)
    roots: np.ndarray  # (n, D, D), lower Cholesky factors

    def log_kernels(self, j: int, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log kernels (m,) of row j at rows W (m, D), and the differences (m, D)."""
        gaps = W - self.centers[j]
        root = self.roots[j]
        white = solve_triangular(root, gaps.T, lower=True, check_finite=False)
        constant = np.log(np.diag(root)).sum() + 0.5 * W.shape[1] * math.log(2 * math.pi)
        return -0.5 * np.einsum("ij,ij->j", white, white) - constant, gaps

    def log_sums(
        self, W: np.ndarray, self_index: bool, n_jobs: int | None, label: str | None = None
    ) -> np.ndarray:
        """Return the logs of the sums of all kernels at rows W (m, D), float64.

        `self_index`: the rows are the centers, each left out of its own sum.
        """

        def task(part: range) -> np.ndarray:
            logs = np.full(len(W), -np.inf)
            for j in part:
                one, _ = self.log_kernels(j, W)
                if self_index:
                    one[j] = -np.inf
                logs = np.logaddexp(logs, one)
            return logs

        total = np.full(len(W), -np.inf)
        for logs in engine.run(task, self._parts(len(W)), n_jobs=n_jobs, label=label):
            total = np.logaddexp(total, logs)
        return total

    def _parts(self, m: int) -> list[range]:
        """Return the kernels in parts, a function of sizes alone."""
        n, D = self.centers.shape
        step = max(1, _PAIRS // (m * D))
        return [range(j, min(j + step, n)) for j in range(0, n, step)]

    def improved(
        self, log_sums: np.ndarray, smoothing: float, n_jobs: int | None, label: str | None
    ) -> Kernels:
        """Return the kernels after an M-step, from the log sums at the centers."""
        D = self.centers.shape[1]

        def task(part: range) -> np.ndarray:
            roots = np.empty((len(part), D, D))
            for at, j in enumerate(part):
                one, gaps = self.log_kernels(j, self.centers)
                shares = np.exp(one - log_sums)
                shares[j] = 0
                C = (gaps * shares[:, None]).T @ gaps + smoothing * np.eye(D)
                roots[at] = np.linalg.cholesky(C / (shares.sum() + smoothing))
            return roots

        roots, at = np.empty((len(self.centers), D, D)), 0
        for part in engine.run(task, self._parts(len(roots)), n_jobs=n_jobs, label=label):
            roots[at : at + len(part)] = part
            at += len(part)
        return self._replace(roots=roots)

    def penalty(self, smoothing: float) -> float:
        """Return (a / 2) sum_j [log |Sigma_j| + tr Sigma_j⁻¹], a the smoothing."""
        eye, total = np.eye(self.centers.shape[1]), 0.0
        for root in self.roots:
            inverse = solve_triangular(root, eye, lower=True, check_finite=False)
            total += 2 * np.log(np.diag(root)).sum() + np.einsum("kl,kl->", inverse, inverse)
        return 0.5 * smoothing * float(total)


def maximise_each(
    W: np.ndarray,
    smoothing: float,
    max_iter: int,
    tol: float,
    n_jobs: int | None = None,
    on_iterate: Callable[[Iterate[Kernels]], None] | None = None,
    label: str | None = None,
) -> Outcome[Kernels]:
    """Run EM from equal kernels, under which the rows W (n, D), float64, are white.

    Likelihoods are those of the coordinates W.
    """
    n, D = W.shape
    recorder: Recorder[Kernels] = Recorder(on_iterate)

    def iterations() -> tuple[Ending, str]:
        kernels, before = Kernels(W, np.broadcast_to(np.eye(D), (n, D, D))), -math.inf
        for number in range(max_iter + 1):
            log_sums = kernels.log_sums(W, True, n_jobs, label)
            value = float(log_sums.mean()) - math.log(n - 1)
            objective = value - kernels.penalty(smoothing) / n
            recorder.keep(kernels, **figures(D, value, objective))
            if number and objective - before <= tol:
                return Ending.CONVERGED, "the gain fell below tol"
            before = objective
            if number < max_iter:
                kernels = kernels.improved(log_sums, smoothing, n_jobs, label)
        return Ending.NOT_CONVERGED, "max_iter reached"

    return recorder.run(iterations)
