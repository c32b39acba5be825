"""A metric for nearest neighbours from coincidences: rounds of search and ascent.

A round searches for new impostors, fits the length scale of every row, takes a few steps of a
solver, and moves the map a short way towards their end. The move is short because new impostors
are found only in the next round, and the many pairs that a long move adds do not reverse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from fastmetric.learn.coincidence import likelihood_solvers as solvers
from fastmetric.learn.coincidence.impostors import ActiveSet, target_neighbors
from fastmetric.learn.coincidence.likelihood import START_NOISE, Coincidence, Scatter
from fastmetric.learn.coincidence.likelihood_solvers import Model
from fastmetric.learn.optim.outcome import Ending
from fastmetric.learn.rows import ArrayRows, Rows, column_means

_LONGEST_MOVE = 0.05  # of a map in a round, as a share of its size
_HALVINGS = 20
_FEWEST_STEPS = 2  # of L-BFGS: the first, one gradient long, only determines the scale of steps


class Settings(NamedTuple):
    """The settings of the rounds."""

    n_neighbors: int  # targets of a row
    solver: str
    refresh: int  # iterations of the solver in a round
    max_iter: int
    tol: float
    n_passes: int = 1  # at the start of each, targets are chosen anew

    @property
    def most_rounds(self) -> int:
        """Return the largest number of rounds."""
        return -(-self.max_iter // self.refresh)

    @property
    def rounds_of_a_pass(self) -> int:
        """Return the largest number of rounds between two choices of targets."""
        return -(-self.most_rounds // self.n_passes)


class State(NamedTuple):
    """A model, kappa^2 of the rows it was fitted with, and the number of pairs."""

    model: Model
    kappa_sq: np.ndarray  # (n,)
    scaled: np.ndarray  # (n,) bool: rows whose kappa^2 has been fitted
    n_pairs: int

    def unit(self) -> float:
        """Return the median kappa of the rows that were ever active; 1 without any."""
        return _median_scale(self.kappa_sq, self.scaled)

    def length_scales(self) -> np.ndarray:
        """Return kappa of all rows (n,) in these units, NaN for those that were never active."""
        return np.where(self.scaled, np.sqrt(self.kappa_sq) / self.unit(), np.nan)


def _median_scale(kappa_sq: np.ndarray, scaled: np.ndarray) -> float:
    """Return the median kappa of the rows `scaled`; 1 without any."""
    return float(np.sqrt(np.median(kappa_sq[scaled]))) if scaled.any() else 1.0


class ImpostorRounds:
    """The run from a start to the end: rows X (n, D) of classes y (n,), and kappa^2 of each."""

    def __init__(self, X: Rows, y: np.ndarray, settings: Settings) -> None:
        self.X, self.y, self.settings, self.n_jobs = X, y, settings, X.n_jobs
        self.center = column_means(X)
        self.ended = ""  # why the last pass did; it may also have run out of iterations

    def following(self, settings: Settings) -> ImpostorRounds:
        """Return a run of the same rows by other settings."""
        return ImpostorRounds(self.X, self.y, settings)

    def run(
        self, W: np.ndarray, length: int, keep: Callable[[State, int], None]
    ) -> tuple[Ending, str]:
        """Learn from the start W (p, D), for so many rounds at most.

        `keep` is called with every state and the number of its round.
        """
        for number, state in enumerate(islice(self.states(W), length + 1)):
            keep(state, number)
        converged = bool(self.ended) or length < self.settings.most_rounds
        ending = Ending.CONVERGED if converged else Ending.NOT_CONVERGED
        return ending, self.ended or "max_iter reached"

    def states(self, W: np.ndarray) -> Iterator[State]:
        """Yield the state at W (p, D) and after each round.

        The targets of the first pass are nearest in the input space; of a later one, under the
        map so far.
        """
        settings, rows = self.settings, self.X
        longest = settings.rounds_of_a_pass * settings.refresh
        for begun in range(0, settings.max_iter, longest):
            steps = min(longest, settings.max_iter - begun)
            for number, state in enumerate(self._one_pass(W, rows, steps)):
                if not begun or number:  # a later pass begins where the last one ended
                    yield state
            if not number:  # nothing to learn
                return
            W = state.model.W
            rows = ArrayRows(self._project(W), self.n_jobs)

    def _one_pass(self, W: np.ndarray, rows: Rows, steps: int) -> Iterator[State]:
        """Yield the state at W, and after each round of so many iterations altogether.

        Targets are the nearest among these rows.
        """
        settings, self.ended = self.settings, ""
        self._begin(rows)
        problem, new = self._problem(W)
        noise = START_NOISE * _median_scale(self.kappa_sq, self.scaled) ** 2 / len(W)
        model = Model(W, noise, problem.log_likelihood(W, noise))
        if not problem.n_pairs:
            self.ended = "no row has impostors"
        yield self._state(model, problem)
        if self.ended:
            return
        for left in range(steps, 0, -settings.refresh):
            problem.search_scales(model.W, model.noise)
            before = problem.log_likelihood(model.W, model.noise)
            model = self._moved(
                problem, model._replace(log_likelihood=before), min(settings.refresh, left)
            )
            least = settings.tol * problem.n_pairs
            if model.log_likelihood - before <= least and new <= least:
                self.ended = "the gain fell below tol"
            yield self._state(model, problem)
            if self.ended:
                return
            if left > settings.refresh:
                problem, new = self._problem(model.W)

    def _begin(self, rows: Rows) -> None:
        """Begin a pass, with the targets that are nearest among these rows."""
        targets = target_neighbors(rows, self.y, self.settings.n_neighbors)
        self.active = ActiveSet(self.y, targets, self.n_jobs)
        self.kappa_sq = np.ones(len(self.X))
        self.scaled = np.zeros(len(self.X), bool)  # rows whose kappa^2 has been fitted

    def _state(self, model: Model, problem: Coincidence) -> State:
        """Return a model with the length scales and the number of pairs of its fit."""
        return State(model, self.kappa_sq.copy(), self.scaled.copy(), problem.n_pairs)

    def _project(self, W: np.ndarray) -> np.ndarray:
        """Return the rows under W, centred."""
        return self.X.project(self.center, W.astype(self.X.dtype))

    def _problem(self, W: np.ndarray) -> tuple[Coincidence, int]:
        """Return the likelihood of the pairs so far, those under W with them; and the new ones."""
        active, Z = self.active, self._project(W)
        reach = active.reach(Z)
        new = active.refresh(Z, reach)
        fresh = active.active & ~self.scaled
        self.kappa_sq[fresh] = reach[fresh]
        self.scaled |= fresh
        return Coincidence(self.X, active.pairs(), self.kappa_sq, self.center), new

    def _moved(self, problem: Coincidence, model: Model, steps: int) -> Model:
        """Return the model after some steps of the solver, a short way along at most."""
        solve = solvers.SOLVERS[self.settings.solver]
        if solve is solvers.by_lbfgs:
            steps = max(steps, _FEWEST_STEPS)
        scatter = Scatter(problem)
        end = solve(problem, model.W, model.noise, max_iter=steps, tol=0.0, scatter=scatter).model
        move, growth = end.W - model.W, end.noise / model.noise
        length, longest = scatter.size(move), _LONGEST_MOVE * scatter.size(model.W)
        if length <= longest:
            return end
        share = longest / length
        for _ in range(_HALVINGS):
            W, noise = model.W + share * move, model.noise * growth**share
            value = problem.log_likelihood(W, noise)
            if value >= model.log_likelihood:
                return Model(W, noise, value)
            share /= 2
        return model
