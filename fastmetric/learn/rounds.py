"""A metric for nearest neighbours from coincidences: rounds of search and ascent.

A round looks for new impostors, fits the length scale of every row, takes a few steps of a
solver, and moves a short way towards where they lead. Short, because impostors that come into
reach on the way are only seen in the next round; a long step into their midst is not undone by
the many pairs it brings in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmetric.learn import coincidence_solvers as solvers
from fastmetric.learn.coincidence import START_NOISE, Coincidence, Scatter
from fastmetric.learn.coincidence_solvers import Climb, Model, Recorder
from fastmetric.learn.impostors import ActiveSet, target_neighbors
from fastmetric.learn.linear import column_means, project

_LONGEST_MOVE = 0.05  # of a map in a round, as a share of its size
_PATIENCE = 10  # rounds without a better score
_HALVINGS = 20
_FEWEST_STEPS = 2  # of L-BFGS: the first, one gradient long, only finds out how far to go


class Settings(NamedTuple):
    """How to go about it."""

    n_neighbors: int  # targets of a row
    solver: str
    refresh: int  # iterations of the solver in a round
    n_passes: int  # the targets of the second one and on are found under the map so far
    max_iter: int  # in a pass
    tol: float


class State(NamedTuple):
    """A model, and kappa^2 of the rows it was fitted with."""

    model: Model
    kappa_sq: np.ndarray  # (n,)
    scaled: np.ndarray  # (n,) bool: whose kappa^2 means something

    def unit(self) -> float:
        """Return the median kappa of the rows that were ever active; 1 without any."""
        return _median_scale(self.kappa_sq, self.scaled)

    def length_scales(self) -> np.ndarray:
        """Return kappa of all rows (n,) in these units, NaN for those that were never active."""
        return np.where(self.scaled, np.sqrt(self.kappa_sq) / self.unit(), np.nan)


def _median_scale(kappa_sq: np.ndarray, scaled: np.ndarray) -> float:
    """Return the median kappa of the rows `scaled`; 1 without any."""
    return float(np.sqrt(np.median(kappa_sq[scaled]))) if scaled.any() else 1.0


class Rounds:
    """The run from a start to the end: rows X (n, D) of classes y (n,), and kappa^2 of each."""

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        settings: Settings,
        recorder: Recorder,
        judge: Callable[[np.ndarray], float] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        """Take what judges a map (the share of errors on rows held out), if anything does."""
        self.X, self.y, self.settings, self.recorder = X, y, settings, recorder
        self.judge, self.n_jobs = judge, n_jobs
        self.center = column_means(X, n_jobs)
        self.kept: State | None = None  # the last, or the best by `judge`
        self.errors: list[float] = []
        self._begin(X)

    def _begin(self, rows: np.ndarray) -> None:
        """Begin a pass, with the targets that are nearest among these rows."""
        targets = target_neighbors(rows, self.y, self.settings.n_neighbors, self.n_jobs)
        self.active = ActiveSet(self.y, targets, self.n_jobs)
        self.kappa_sq = np.ones(len(self.X))
        self.scaled = np.zeros(len(self.X), bool)  # whose kappa^2 means something

    def run(self, W: np.ndarray) -> Climb:
        """Learn from the start W (p, D)."""
        climb = self._run_pass(W)
        for _ in range(1, self.settings.n_passes):
            self._begin(self._project(climb.model.W))
            climb = self._run_pass(climb.model.W)
        return climb

    def _run_pass(self, W: np.ndarray) -> Climb:
        """Learn from W with the targets at hand."""
        settings = self.settings
        problem, new = self._problem(W)
        noise = START_NOISE * _median_scale(self.kappa_sq, self.scaled) ** 2 / len(W)
        model = Model(W, noise, problem.log_likelihood(W, noise))
        began = len(self.errors)
        self._keep(model, problem)
        if not problem.n_pairs:
            return Climb(model, True, "no row has impostors")
        for left in range(settings.max_iter, 0, -settings.refresh):
            problem.search_scales(model.W, model.noise)
            before = problem.log_likelihood(model.W, model.noise)
            steps = min(settings.refresh, left)
            model = self._moved(problem, model._replace(log_likelihood=before), steps)
            self._keep(model, problem)
            if self._is_over(began):
                return Climb(model, True, "the error on rows held out no longer falls")
            least = settings.tol * problem.n_pairs
            if model.log_likelihood - before <= least and new <= least:
                return Climb(model, True, "the gain fell below tol")
            problem, new = self._problem(model.W)
        return Climb(model, False, "max_iter reached")

    def _project(self, W: np.ndarray) -> np.ndarray:
        """Return the rows under W, centred."""
        return project(self.X, self.center, W.astype(self.X.dtype), self.n_jobs)

    def _problem(self, W: np.ndarray) -> tuple[Coincidence, int]:
        """Return the likelihood of the pairs so far, those under W with them; and the new ones."""
        active, Z = self.active, self._project(W)
        reach = active.reach(Z)
        new = active.refresh(Z, reach)
        fresh = active.active & ~self.scaled
        self.kappa_sq[fresh] = reach[fresh]
        self.scaled |= fresh
        return Coincidence(self.X, active.pairs(), self.kappa_sq, self.n_jobs, self.center), new

    def _moved(self, problem: Coincidence, model: Model, steps: int) -> Model:
        """Return the model after some steps of the solver, a short way along at most."""
        solve = solvers.SOLVERS[self.settings.solver]
        if solve is solvers.lbfgs:
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

    def _keep(self, model: Model, problem: Coincidence) -> None:
        """Keep a model, and judge it."""
        figures: dict[str, float] = {
            "pairs": problem.n_pairs,
            "active": int(self.active.active.sum()),
        }
        better = True
        if self.judge is not None:
            error = figures["validation"] = self.judge(model.W)
            better = error < min(self.errors, default=np.inf)
            self.errors.append(error)
        if better:
            self.kept = State(model, self.kappa_sq.copy(), self.scaled.copy())
        self.recorder.keep(model, **figures)

    def _is_over(self, began: int) -> bool:
        """Return whether the best model of a pass, by the rows held out, is long past."""
        errors = self.errors[began:]
        return bool(errors) and len(errors) - int(np.argmin(errors)) > _PATIENCE
