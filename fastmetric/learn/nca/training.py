"""Training a map: which solver, on which rows, by which batches; and annealing of dimensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import svd

from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.penalised import PenalisedObjective, Value
from fastmetric.learn.optim.lbfgs import Outcome, Step, lbfgs
from fastmetric.learn.optim.row_batches import make_batches, random_batches
from fastmetric.learn.optim.step_rule import Batch, ascend
from fastmetric.learn.rows import column_deviations

SOLVERS = ("auto", "lbfgs", "stochastic", "minibatch")
_LBFGS_TO = 20_000  # rows, for "auto"

# A stochastic step looks at about so many pairs, by so many rows at most.
_PAIRS, _MOST_ROWS, _FEWEST_ROWS = 3e7, 500, 50
# A mini-batch, and what it should have of a class: rows alone in theirs teach nothing.
_MINIBATCH, _PER_CLASS = 1000, 20
_STEPS = {"stochastic": 10, "minibatch": 20}  # in an iteration

BETA_START = 0.5  # the share of the background, where it is learnt

# Annealing: rows to begin with, over those wanted; iterations between two raises of a penalty;
# raises at most, each tenfold; and what a row has shrunk to when it is dropped, over the largest.
_ROWS, _ITERATIONS, _RAISES, _SMALL = 2, 5, 6, 1e-3


class Settings(NamedTuple):
    """How to train."""

    solver: str  # not "auto"
    batch_size: int
    batches: str
    alpha: float
    learns_beta: bool
    max_iter: int
    tol: float
    verbose: bool = False


def choose_solver(name: str, n: int, n_classes: int) -> str:
    """Return what "auto" stands for with n rows of so many classes; other names unchanged."""
    if name != "auto":
        return name
    if n <= _LBFGS_TO:
        return "lbfgs"
    return "minibatch" if n_classes * _PER_CLASS <= _MINIBATCH else "stochastic"


def choose_batch_size(size: int | str, solver: str, n: int) -> int:
    """Return what "auto" stands for with n rows; a number of rows at most n."""
    if isinstance(size, str):
        most = min(_PAIRS / n, _MOST_ROWS) if solver == "stochastic" else _MINIBATCH
        size = int(max(_FEWEST_ROWS, min(most, n / 4)))
    return min(size, n)


class Trainer:
    """Trains maps on one problem."""

    def __init__(
        self,
        problem: Objective,
        settings: Settings,
        rng: np.random.RandomState,
        on_step: Callable[[Step], None],
    ) -> None:
        """Take what is to be told of every iteration; random numbers are for the batches."""
        self.problem, self.settings, self.rng, self.on_step = problem, settings, rng, on_step
        self._waiting: list[np.ndarray] = []  # batches of the present sweep

    def train(self, A: np.ndarray) -> Outcome:
        """Return the run of the solver from a map (d, D)."""
        alpha = np.full(len(A), self.settings.alpha)
        return self._run(A, alpha, self.settings.max_iter, self.on_step)

    def annealed(self, A: np.ndarray, d: int) -> np.ndarray:
        """Return a map of d rows from one of more, whose least rows are made to vanish one by one.

        A rotation of the projected space changes nothing but the penalty, so rows are first made
        orthogonal, the least one last. Its penalty is raised until it is small, the others
        making up for it meanwhile, and it is dropped. After steps by batches, the others go on at
        the size of the start.
        """
        by_batches = self.settings.solver != "lbfgs"
        size = self._size(A) if by_batches else 0.0
        while len(A) > d:
            A = _orthogonal(A)
            alpha = np.full(len(A), self.settings.alpha)
            least = max(float(A[-1] @ A[-1]), np.finfo(float).tiny)
            alpha[-1] += 0.01 * len(self.problem.X) / least
            for _ in range(_RAISES):
                outcome = self._run(A, alpha, _ITERATIONS, lambda step: None)
                if outcome.interrupted:  # there is no map of d rows yet
                    raise KeyboardInterrupt
                A = outcome.last.A
                norms = np.linalg.norm(A, axis=1)
                if norms[-1] <= _SMALL * norms.max():
                    break
                alpha[-1] *= 10
            A = A[:-1]
            if by_batches:  # their noise makes maps larger, never smaller
                A = A * (size / (self._size(A) or 1.0))
        return A

    def _size(self, A: np.ndarray) -> float:
        """Return the size of a map, in units in which every feature has variance one."""
        problem = self.problem
        units = column_deviations(problem.X, problem.center, problem.n_jobs)
        return float(np.linalg.norm(A * units))

    def _run(
        self, A: np.ndarray, alpha: np.ndarray, max_iter: int, on_step: Callable[[Step], None]
    ) -> Outcome:
        """Return a run of the solver with a penalty for each row of A."""
        settings = self.settings
        penalised = PenalisedObjective(A.shape, alpha, settings.learns_beta)
        theta = penalised.parameters(A, BETA_START)
        if settings.solver == "lbfgs":

            def evaluate(theta: np.ndarray, n_iter: int) -> Value:
                label = f"iteration {n_iter}" if settings.verbose else None
                return penalised.evaluate(self.problem, theta, label=label)

            return lbfgs(
                evaluate,
                penalised,
                theta,
                rows=len(self.problem.X),
                max_iter=max_iter,
                tol=settings.tol,
                on_step=on_step,
            )
        make = self._row_batch if settings.solver == "stochastic" else self._own_batch
        return ascend(
            partial(make, penalised),
            penalised,
            theta,
            penalised.units(self.problem),
            steps=_STEPS[settings.solver],
            max_iter=max_iter,
            on_step=on_step,
        )

    def _row_batch(self, penalised: PenalisedObjective, theta: np.ndarray) -> Batch:
        """Return some rows against all points, n / m times which is an unbiased sum."""
        if not self._waiting:
            self._waiting = random_batches(len(self.problem.X), self.settings.batch_size, self.rng)
        rows = self._waiting.pop()
        share = len(rows) / len(self.problem.X)
        return Batch(len(rows), partial(penalised.evaluate, self.problem, rows=rows, share=share))

    def _own_batch(self, penalised: PenalisedObjective, theta: np.ndarray) -> Batch:
        """Return some rows against each other; batches are made anew for every sweep."""
        labels, settings = self.problem.labels, self.settings
        if not self._waiting:
            A = penalised.split(theta)[0]
            batches = make_batches(
                settings.batches,
                len(labels),
                partial(self.problem.unsorted_projection, A),
                settings.batch_size,
                self.rng,
            )
            # A batch of one class has nothing to teach.
            mixed = [rows for rows in batches if np.ptp(labels[rows])]
            self._waiting = mixed or random_batches(len(labels), settings.batch_size, self.rng)
        rows = self._waiting.pop()
        share = len(rows) / len(labels)
        part = self.problem.restricted(rows)
        return Batch(len(rows), partial(penalised.evaluate, part, share=share))


def annealing_rows(d: int, n_features: int) -> int:
    """Return the rows of a map that annealing begins with."""
    return min(n_features, _ROWS * d)


def _orthogonal(A: np.ndarray) -> np.ndarray:
    """Return a rotation of the rows of A that are orthogonal, the largest first."""
    _, sizes, directions = svd(A, full_matrices=False)
    return sizes[:, None] * directions
