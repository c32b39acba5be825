"""The parts of a fit of Latent Coincidence Analysis: checks, starts, trials, what is kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from fastmetric import _validate
from fastmetric._neighbor_votes import VoteErrors
from fastmetric.learn.coincidence import likelihood_solvers as solvers
from fastmetric.learn.coincidence import trials as trial_fits
from fastmetric.learn.coincidence.impostor_rounds import ImpostorRounds, Settings
from fastmetric.learn.coincidence.likelihood import START_NOISE, Coincidence, make_pairs
from fastmetric.learn.coincidence.likelihood_solvers import Climb, Model, Recorder
from fastmetric.learn.coincidence.streaming_pairs import PairSteps
from fastmetric.learn.coincidence.trials import Start, Trial
from fastmetric.learn.linear_starts import pca, rca

_INITS = ("auto", "rca", "pca", "identity")
_PASSES_OF_FEW = 20  # with few rows, which is where neighbours in the input space mean least


class CoincidenceFit:
    """The parts of a fit; `LatentCoincidenceAnalysis` puts them together."""

    # Parameters
    n_components: int | None
    n_neighbors: int
    solver: str
    init: Any
    refresh: int
    n_passes: int | str
    early_stopping: bool
    validation_fraction: float
    max_iter: int
    tol: float
    verbose: int
    n_jobs: int | None
    random_state: Any

    # What a fit leaves behind
    components_: np.ndarray
    noise_variance_: float
    history_: dict[str, np.ndarray]
    n_iter_: int
    _pair_steps: PairSteps  # the memory of partial_fit_pairs

    def _check_parameters(self) -> None:
        """Raise on a parameter out of range."""
        _validate.choice("solver", self.solver, tuple(solvers.SOLVERS))
        _validate.integer("n_neighbors", self.n_neighbors, 1)
        _validate.integer("refresh", self.refresh, 1)
        if self.n_passes != "auto":
            _validate.integer("n_passes", self.n_passes, 1)
        _validate.integer("max_iter", self.max_iter, 1)
        _validate.number("tol", self.tol)
        _validate.flag("early_stopping", self.early_stopping)
        _validate.share("validation_fraction", self.validation_fraction)
        _validate.jobs(self.n_jobs)

    def _starts(self, X: np.ndarray, *, labelled: bool = True) -> list[Start]:
        """Return what to start from, or two that trials choose from, the preferred one first."""
        n, n_features = X.shape
        p = n_features
        if self.n_components is not None:
            p = _validate.integer("n_components", self.n_components, 1, n_features)
        if not isinstance(self.init, str):
            W = _validate.transformation(self.init, n_features, "init")
            if self.n_components not in (None, len(W)):
                raise ValueError(
                    f"init has {len(W)} rows; n_components is {p}. Give one row per component."
                )
            return [lambda X, y: W]
        init = _validate.choice("init", self.init, _INITS)
        most = min(n, n_features)
        if init in ("pca", "rca") and p > most:
            raise ValueError(
                f"init={init!r} gives at most min(n_samples, n_features) = {most} directions; "
                f"n_components is {p}. Choose init='identity' or fewer components."
            )
        if init == "rca" and not labelled:
            raise ValueError("init='rca' needs classes, which pairs do not have. Choose 'pca'.")

        def by_classes(X: np.ndarray, y: np.ndarray) -> np.ndarray:
            return rca(X, y, p, self.n_jobs)

        if init == "rca":
            return [by_classes]
        by_rows = init == "pca" or (init == "auto" and p < most)
        W = pca(X, p, self.n_jobs) if by_rows else np.eye(p, n_features)
        few = labelled and self.early_stopping and p <= most and n < trial_fits.FEW
        return [by_classes, lambda X, y: W] if init == "auto" and few else [lambda X, y: W]

    def _problem_of_pairs(
        self, X: np.ndarray, firsts: np.ndarray, seconds: np.ndarray, coincide: np.ndarray
    ) -> tuple[Coincidence, np.ndarray, float]:
        """Return the likelihood of pairs of rows, and the map and sigma^2 to start from."""
        (start,) = self._starts(X, labelled=False)
        W = start(X, coincide)
        pairs = make_pairs(len(X), firsts, seconds, coincide)
        problem = Coincidence(X, pairs, np.ones(len(X)), self.n_jobs)
        noise = START_NOISE / len(W)
        return problem, problem.scaled(W, noise) if isinstance(self.init, str) else W, noise

    def _schedules(self, n: int) -> list[Settings]:
        """Return how to learn from n rows: the ways that are to be tried."""
        passes = [self.n_passes]
        if self.n_passes == "auto":
            passes = [_PASSES_OF_FEW, 1] if n < trial_fits.FEW else [1]
        return [
            Settings(self.n_neighbors, self.solver, self.refresh, self.max_iter, self.tol, int(k))
            for k in passes
        ]

    def _trials(self, X: np.ndarray, y: np.ndarray, settings: Settings) -> list[Trial]:
        """Return the trials; none with classes of one row each, where nothing can be learnt."""
        rng = check_random_state(self.random_state)
        trials = []
        for learnt, held_out in trial_fits.parts(y, self.validation_fraction, rng):
            rows, labels = X[learnt], y[learnt]
            judge = VoteErrors(
                rows, labels, X[held_out], y[held_out], self.n_neighbors, self.n_jobs
            )
            trials.append(
                Trial(ImpostorRounds(rows, labels, settings, self.n_jobs), judge, held_out)
            )
        return trials

    def _say(self, figures: dict[str, float]) -> None:
        """Print a line of figures if verbose."""
        if self.verbose:
            shown = "  ".join(f"{name} {value:.6g}" for name, value in figures.items())
            print(f"[LatentCoincidenceAnalysis] {shown}", flush=True)

    def _set_model(self, model: Model, recorder: Recorder, dtype: np.dtype, unit: float) -> None:
        """Set what was learnt, in units in which the length scale `unit` is 1."""
        self.components_ = (model.W / unit).astype(dtype)
        self._n_features_out = len(self.components_)
        self.noise_variance_ = model.noise / unit**2
        self.log_likelihood_ = model.log_likelihood
        self.history_, self.n_iter_ = recorder.history(), max(recorder.n_iter, 1)
        self.history_["noise_variance"] /= unit**2

    def _forget(self, *names: str) -> None:
        """Drop what an earlier fit of another kind left behind."""
        for name in names:
            if hasattr(self, name):
                delattr(self, name)

    def _end(self, climb: Climb, interrupted: bool) -> None:
        """Say how a run ended, if it did not by itself."""
        if interrupted:
            raise KeyboardInterrupt
        if not climb.converged:
            warnings.warn(
                f"LatentCoincidenceAnalysis has not converged ({climb.message}). Raise max_iter "
                "or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )


def climbed(run: Callable[[], Climb], recorder: Recorder) -> tuple[Climb, bool]:
    """Return how a run ended, and whether Ctrl-C ended it after at least one iteration."""
    try:
        return run(), False
    except KeyboardInterrupt:
        if recorder.last is None or recorder.n_iter < 1:
            raise
        return Climb(recorder.last, False, "interrupted"), True
