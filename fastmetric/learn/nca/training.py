"""Training a map: which solver, on which rows, by which batches; and annealing of dimensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import svd

from fastmetric.learn.nca.objective import Evaluation, Objective
from fastmetric.learn.nca.penalised import PenalisedObjective, Value
from fastmetric.learn.optim.lbfgs import lbfgs
from fastmetric.learn.optim.outcome import Ending, Iterate, Outcome, Recorder
from fastmetric.learn.optim.row_batches import make_batches, random_batches
from fastmetric.learn.optim.step_rule import StepRule, annealed_scale
from fastmetric.learn.rows import column_deviations

SOLVERS = ("auto", "lbfgs", "stochastic", "minibatch")
_LBFGS_TO = 20_000  # rows, for "auto"
# "auto" of the tolerance: beyond so many rows, far below the gain of 1e-5 at which L-BFGS stops.
_EXACT_TO, _RTOL = 5_000, 1e-6

# A stochastic step sums about so many pairs, by so many rows at most.
_PAIRS, _MOST_ROWS, _FEWEST_ROWS = 3e7, 500, 50
# A mini-batch, and what it should have of a class: a row alone in its class has no gradient.
_MINIBATCH, _PER_CLASS = 1000, 20
_STEPS = {"stochastic": 10, "minibatch": 20}  # in an iteration

BETA_START = 0.5  # the share of the background, where it is learnt
_SHARE_LENGTH = 1.0  # scale of the steps of the background share's logit

# Annealing: rows to begin with, over those wanted; iterations between two raises of a penalty;
# raises at most, each tenfold; and what a row has shrunk to when it is dropped, over the largest.
_ROWS, _ITERATIONS, _RAISES, _SMALL = 2, 5, 6, 1e-3


class Settings(NamedTuple):
    """How to train: the checked parameters of the estimator."""

    solver: str  # not "auto" for a `Trainer`
    batch_size: int | str
    batches: str
    alpha: float
    learns_beta: bool
    max_iter: int
    tol: float
    verbose: bool = False
    method: str = "exact"  # of the sums over pairs
    rtol: float | str = 0.0
    n_components: int | None = None
    init: str | np.ndarray = "auto"
    subsample: int | None = None  # rows
    annealing: bool = False
    early_stopping: bool = False
    validation_fraction: float = 0.1


class LearntMap(NamedTuple):
    """A map of an iterate, and its objective."""

    A: np.ndarray
    beta: float | None  # the share of the background, if it is learnt
    objective: float  # mean of P, without the penalty
    way: str  # the method that summed over pairs


class Batch(NamedTuple):
    """The rows of a step, and their objective as a function of the parameters."""

    size: int
    evaluate: Callable[[np.ndarray], Value]


class MapRecorder:
    """Keeps maps in a recorder, with the figures of their evaluations."""

    def __init__(self, recorder: Recorder[LearntMap], penalised: PenalisedObjective) -> None:
        self.recorder, self.penalised, self.evaluations = recorder, penalised, 0

    def keep(self, theta: np.ndarray, seen: list[tuple[int, Value]]) -> None:
        """Keep the map of flat parameters, with means over the batches `seen` (rows, value)."""
        rows = sum(size for size, _ in seen)
        found = _pooled([value.evaluation for _, value in seen])
        A, beta = self.penalised.split(theta)
        gradient = np.mean([value.gradient for _, value in seen], axis=0)
        figures = {
            "objective": found.value / rows,
            "gradient_norm": float(np.abs(gradient).max()),
            "pair_share": found.pair_share,
            "evaluations": self.evaluations,
        }
        if beta is not None:
            figures["beta"] = beta
        learnt = LearntMap(A, beta, found.value / rows, found.way)
        self.recorder.keep(learnt, **figures)


def _pooled(evaluations: list[Evaluation]) -> Evaluation:
    """Return the sums over the batches of an iteration, and the mean share of pairs."""
    return Evaluation(
        sum(one.value for one in evaluations),
        evaluations[-1].gradient,
        way=evaluations[-1].way,
        pair_share=float(np.mean([one.pair_share for one in evaluations])),
    )


def choose_solver(name: str, n: int, n_classes: int) -> str:
    """Return what "auto" stands for with n rows of so many classes; other names unchanged."""
    if name != "auto":
        return name
    if n <= _LBFGS_TO:
        return "lbfgs"
    return "minibatch" if n_classes * _PER_CLASS <= _MINIBATCH else "stochastic"


def choose_tolerance(rtol: float | str, n: int, method: str) -> float:
    """Return what "auto" stands for with n rows; other tolerances as floats.

    Few rows are summed exactly, except by a lattice, which has no exact sums.
    """
    if isinstance(rtol, str):
        return _RTOL if n > _EXACT_TO or method == "grid" else 0.0
    return float(rtol)


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
        on_iterate: Callable[[Iterate[LearntMap]], None] | None = None,
    ) -> None:
        """Call `on_iterate` with every iterate; `rng` draws the batches."""
        self.problem, self.settings, self.rng = problem, settings, rng
        self.on_iterate, self._batch_size = on_iterate, int(settings.batch_size)
        self._waiting: list[np.ndarray] = []  # batches of the present sweep

    def train(self, A: np.ndarray) -> Outcome[LearntMap]:
        """Return the run of the solver from a map (d, D)."""
        alpha = np.full(len(A), self.settings.alpha)
        recorder = Recorder(self.on_iterate)
        return self._run(A, alpha, self.settings.max_iter, recorder)

    def annealed(self, A: np.ndarray, d: int) -> np.ndarray:
        """Return a map of d rows from one of more, whose smallest rows vanish one by one.

        A rotation of the projected space changes only the penalty, so the rows are first made
        orthogonal, the smallest last. Its penalty is raised until it is small, while the others
        adapt, and it is dropped. After steps by batches, the others are rescaled to the size of
        the start.
        """
        by_batches = self.settings.solver != "lbfgs"
        size = self._size(A) if by_batches else 0.0
        while len(A) > d:
            A = _orthogonal(A)
            alpha = np.full(len(A), self.settings.alpha)
            least = max(float(A[-1] @ A[-1]), np.finfo(float).tiny)
            alpha[-1] += 0.01 * len(self.problem.X) / least
            for _ in range(_RAISES):
                outcome = self._run(A, alpha, _ITERATIONS, Recorder())
                if outcome.interrupted:  # there is no map of d rows yet
                    raise KeyboardInterrupt
                A = outcome.last.model.A
                norms = np.linalg.norm(A, axis=1)
                if norms[-1] <= _SMALL * norms.max():
                    break
                alpha[-1] *= 10
            A = A[:-1]
            if by_batches:  # their noise increases the scale of a map, never decreases it
                A = A * (size / (self._size(A) or 1.0))
        return A

    def _size(self, A: np.ndarray) -> float:
        """Return the size of a map, in units in which every feature has variance one."""
        problem = self.problem
        units = column_deviations(problem.X, problem.center)
        return float(np.linalg.norm(A * units))

    def _run(
        self, A: np.ndarray, alpha: np.ndarray, max_iter: int, recorder: Recorder[LearntMap]
    ) -> Outcome[LearntMap]:
        """Return a run of the solver with a penalty for each row of A."""
        penalised = PenalisedObjective(A.shape, alpha, self.settings.learns_beta)
        theta = penalised.parameters(A, BETA_START)
        maps = MapRecorder(recorder, penalised)
        run = self._by_lbfgs if self.settings.solver == "lbfgs" else self._by_batches
        return recorder.run(partial(run, maps, theta, max_iter))

    def _by_lbfgs(self, maps: MapRecorder, theta: np.ndarray, max_iter: int) -> tuple[Ending, str]:
        """Run L-BFGS on all rows."""
        n = len(self.problem.X)
        latest: list[tuple[np.ndarray, list[tuple[int, Value]]]] = []

        def value_and_slope(theta: np.ndarray) -> tuple[float, np.ndarray]:
            number = len(maps.recorder.figures)
            label = f"iteration {number}" if self.settings.verbose else None
            found = maps.penalised.evaluate(self.problem, theta, label=label)
            maps.evaluations += 1
            latest[:] = [(theta.copy(), [(n, found)])]
            if not number:
                maps.keep(*latest[0])
            return found.value, found.gradient

        end = lbfgs(
            value_and_slope,
            theta,
            max_iter=max_iter,
            tol=self.settings.tol,
            accepted=lambda: maps.keep(*latest[0]),
        )
        return end.ending, end.message

    def _by_batches(
        self, maps: MapRecorder, theta: np.ndarray, max_iter: int
    ) -> tuple[Ending, str]:
        """Take steps by batches; the figures of an iteration are means, taken before each step."""
        penalised, steps = maps.penalised, _STEPS[self.settings.solver]
        make = self._row_batch if self.settings.solver == "stochastic" else self._own_batch
        A = penalised.split(theta)[0]
        by_map = StepRule(A, penalised.units(self.problem))
        # The logit of the background's share has its own rule, as a map of one entry.
        by_share = StepRule(np.full((1, 1), _SHARE_LENGTH), np.ones((1, 1)))
        for iteration in range(max_iter):
            seen: list[tuple[int, Value]] = []
            for k in range(steps):
                batch = make(penalised, theta)
                found = batch.evaluate(theta)
                maps.evaluations += 1
                seen.append((batch.size, found))
                if not maps.recorder.figures:
                    maps.keep(theta, seen)
                progress = (iteration * steps + k + 0.5) / (max_iter * steps)
                scale = annealed_scale(progress)
                slope = found.gradient
                moved = [by_map.move(theta[: A.size], slope[: A.size], scale)]
                if penalised.learns_beta:
                    moved.append(by_share.move(theta[A.size :], slope[A.size :], scale))
                theta = np.concatenate(moved)
            maps.keep(theta, seen)
        return Ending.CONVERGED, "all steps were taken"

    def _row_batch(self, penalised: PenalisedObjective, theta: np.ndarray) -> Batch:
        """Return some rows against all points: n / m times their sum is unbiased."""
        if not self._waiting:
            self._waiting = random_batches(len(self.problem.X), self._batch_size, self.rng)
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
                self._batch_size,
                self.rng,
            )
            # A batch of one class has no gradient.
            mixed = [rows for rows in batches if np.ptp(labels[rows])]
            self._waiting = mixed or random_batches(len(labels), self._batch_size, self.rng)
        rows = self._waiting.pop()
        share = len(rows) / len(labels)
        part = self.problem.restricted(rows)
        return Batch(len(rows), partial(penalised.evaluate, part, share=share))


def annealing_rows(d: int, n_features: int) -> int:
    """Return the rows of a map that annealing begins with."""
    return min(n_features, _ROWS * d)


def _orthogonal(A: np.ndarray) -> np.ndarray:
    """Return A rotated so that its rows are orthogonal, the largest first."""
    _, sizes, directions = svd(A, full_matrices=False)
    return sizes[:, None] * directions
