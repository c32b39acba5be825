"""How NCA fits: its parameters become a problem, a start, a run of a solver, and attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastmetric import _validate, engine
from fastmetric.learn import linear_starts
from fastmetric.learn.kernel_sums.kernel_table import SMOOTH
from fastmetric.learn.kernel_sums.log_sums import METHODS
from fastmetric.learn.nca import training
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.early_stopping import Validation, hold_out
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.posterior import Posterior
from fastmetric.learn.optim import row_batches
from fastmetric.learn.optim.lbfgs import Outcome, Step
from fastmetric.learn.rows import column_means, project

_WHOLE_TO = 20_000  # rows over which the objective of a fit in batches is taken whole, in the end
_SOME = 1000  # rows for more than that


class NCAFit:
    """The parts of a fit; `NCA` puts them together."""

    # Parameters of NCA
    n_components: int | None
    kernel: str
    background: Any
    priors: Any
    method: str
    rtol: float
    solver: str
    batch_size: int | str
    batches: str
    subsample: float | None
    init: Any
    alpha: float
    annealing: bool
    early_stopping: bool
    validation_fraction: float
    max_iter: int
    tol: float
    warm_start: bool
    callback: Callable[[np.ndarray, int], Any] | None
    verbose: int
    n_jobs: int | None

    # What a fit leaves behind
    components_: np.ndarray
    classes_: np.ndarray
    history_: dict[str, np.ndarray]
    n_iter_: int
    _X: Any  # the rows, for partial_fit; None after a pickle of a fit
    _y: Any

    def _posteriors(self, X: np.ndarray) -> Any:
        """Yield ranges of rows with their class posteriors."""
        dtype = self._reference.dtype
        query = project(X.astype(dtype, copy=False), self._center, self.components_, self.n_jobs)
        posterior = Posterior(
            self._reference,
            self._offsets,
            Mixture(self._kernel, self._priors, self.background_ is not None, self.background_),
            method=self.method,
            rtol=self.rtol,
            n_jobs=self.n_jobs,
        )
        return posterior(query, "predict" if self.verbose else None)

    def _check_parameters(self) -> None:
        """Raise on a parameter out of range."""
        _validate.choice("kernel", self.kernel, SMOOTH)
        _validate.choice("method", self.method, METHODS)
        _validate.choice("solver", self.solver, training.SOLVERS)
        _validate.choice("batches", self.batches, row_batches.NAMES)
        _validate.tolerances(self.rtol, 0.0)
        _validate.number("alpha", self.alpha)
        _validate.number("tol", self.tol)
        _validate.integer("max_iter", self.max_iter, 1)
        _validate.share("validation_fraction", self.validation_fraction)
        _validate.flag("annealing", self.annealing)
        _validate.flag("early_stopping", self.early_stopping)
        _validate.background(self.background)
        if self.batch_size != "auto":
            _validate.integer("batch_size", self.batch_size, 2)
        _validate.jobs(self.n_jobs)
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback should be callable or None; got {self.callback!r}.")

    def _mixture(self, n_classes: int) -> Mixture:
        """Return how the densities of so many classes are made up."""
        flag = isinstance(self.background, bool | np.bool_)
        present = bool(self.background) if flag else True
        given = not flag and not isinstance(self.background, str)
        beta = np.full(n_classes, float(self.background)) if given else None
        return Mixture(self.kernel, _validate.priors(self.priors, n_classes), present, beta)

    def _learning_rows(
        self, y: np.ndarray, rng: np.random.RandomState
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows to learn the map from, and those held out."""
        rows = np.arange(len(y))
        if self.subsample is not None:
            size = _validate.sample_size("subsample", self.subsample, len(y))
            rows = np.sort(rng.permutation(len(y))[:size])
        held_out = rows[:0]
        if self.early_stopping:
            rows, held_out = hold_out(rows, y, self.validation_fraction, rng)
            _validate.some_held_out(len(held_out))
        if len(np.unique(y[rows])) < 2:
            raise ValueError(
                f"The {len(rows)} rows to learn from are of one class only; at least two classes "
                "are needed. Raise subsample, or lower validation_fraction."
            )
        return rows, held_out

    def _problem(
        self, X: np.ndarray, y: np.ndarray, rows: np.ndarray, mixture: Mixture
    ) -> Objective:
        """Return the objective on some rows, and the classes that they have."""
        if len(rows) < len(X):
            X, y = X[rows], y[rows]
        present, y = np.unique(y, return_inverse=True)
        mixture = mixture.of_classes(present)
        return Objective(X, y, self.n_jobs, mixture=mixture, method=self.method, rtol=self.rtol)

    def _check_start(
        self, n_features: int, n: int, n_classes: int, *, annealing: bool
    ) -> tuple[int, str | np.ndarray]:
        """Return the dimension to start with, and the start: a name but "auto", or an array."""
        d = n_features
        if self.n_components is not None:
            d = _validate.integer("n_components", self.n_components, 1, n_features)
        if self.warm_start and hasattr(self, "components_"):
            given, name = self.components_, "components_ (warm_start)"
        elif isinstance(self.init, str):
            init = _validate.choice("init", self.init, linear_starts.NAMES)
            d = training.annealing_rows(d, n_features) if annealing else d
            return d, linear_starts.resolve(init, d, n_features, n, n_classes)
        else:
            given, name = self.init, "init"
        A = _validate.transformation(given, n_features, name)
        fits = len(A) >= d if annealing else len(A) == d
        if self.n_components is not None and not fits:
            wanted = "at least one row" if annealing else "one row"
            raise ValueError(
                f"{name} has {len(A)} rows; n_components is {d}. Give {wanted} per component."
            )
        return len(A), A

    def _start(
        self,
        init: str | np.ndarray,
        d: int,
        problem: Objective,
        rng: np.random.RandomState,
        *,
        in_batches: bool,
    ) -> np.ndarray:
        """Return the map of d rows to start from."""
        if isinstance(init, str):
            init = linear_starts.start(init, d, problem, rng, self.alpha / len(problem.X))
            init = linear_starts.adapted(init, self.kernel, in_batches)
        return linear_starts.within_reach(init, problem) if self.kernel == "biweight" else init

    def _maximise(
        self,
        problem: Objective,
        solver: str,
        start: np.ndarray,
        validation: Validation | None,
        rng: np.random.RandomState,
    ) -> Outcome:
        """Run the solver from `start`, with a line per iteration if verbose."""
        n, n_features = problem.X.shape
        settings = training.Settings(
            solver,
            training.choose_batch_size(self.batch_size, solver, n),
            self.batches,
            self.alpha,
            self.background == "learn" if isinstance(self.background, str) else False,
            self.max_iter,
            self.tol,
            bool(self.verbose),
        )
        if self.verbose:
            by = "" if solver == "lbfgs" else f" by batches of {settings.batch_size}"
            d = len(start) if self.n_components is None else self.n_components
            print(
                f"[NCA] {self.kernel}, {problem.method}, {solver}{by}: {n} rows, {n_features} "
                f"features to {d}"
            )
            print("[NCA] iteration   objective    gradient   seconds  over", flush=True)

        def on_step(step: Step) -> None:
            over = validation is not None and validation.is_over(step)
            if self.verbose:
                figures = f"{step.value:11.6f} {step.gradient_norm:11.3e} {step.seconds:9.2f}"
                print(f"[NCA] {step.n_iter:9d} {figures}  {step.way}", flush=True)
            if self.callback is not None:
                with engine.ctrl_c_at_once():
                    self.callback(step.A.flatten(), step.n_iter)
            if over:
                raise StopIteration

        trainer = training.Trainer(problem, settings, rng, on_step)
        if self.annealing and self.n_components is not None:
            start = trainer.annealed(start, self.n_components)
        if validation is not None:
            validation.judge(start, training.BETA_START if settings.learns_beta else None)
        return trainer.train(start)

    def _judge(self, best: Step, problem: Objective, rng: np.random.RandomState) -> None:
        """Set the objective of a map that was learnt in batches."""
        n = len(problem.X)
        rows = None if n <= _WHOLE_TO else rng.permutation(n)[:_SOME]
        found = problem.evaluate(best.A, rows, beta=best.beta)
        self.objective_ = found.value / (n if rows is None else _SOME)
        self.error_bound_ = found.error_bound / n if rows is None else 1.0

    def _set_map(self, best: Step, outcome: Outcome, dtype: np.dtype) -> None:
        """Set the map that a run found, and the figures of the run."""
        self.components_ = best.A.astype(dtype)
        self._n_features_out = len(self.components_)
        self.objective_, self.error_bound_ = best.value, best.error_bound
        self.history_, self.n_iter_ = outcome.history(), outcome.last.n_iter

    def _remember(
        self,
        X: np.ndarray,
        y: np.ndarray,
        classes: np.ndarray,
        mixture: Mixture,
        online: bool = False,
    ) -> None:
        """Set what predictions and further rows need: all rows, projected and as they are."""
        self.classes_, self._X, self._y, self._online = classes, X, y, online
        order = np.argsort(y, kind="stable")
        sizes = np.bincount(y, minlength=len(classes))
        self._offsets = np.concatenate([[0], np.cumsum(sizes)])
        self._center = column_means(X, self.n_jobs)
        self._kernel, self._priors = mixture.kernel, mixture.priors
        self.background_ = mixture.shares(sizes) if mixture.background else None
        self._reference = project(X, self._center, self.components_, self.n_jobs)[order]

    def _new_rows(
        self, X: Any, y: Any, classes: Any, first: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return new rows (n, D), their class numbers (n,), and all classes."""
        if not first and self._X is None:
            raise ValueError(
                "The rows of fit are not part of its pickle, and partial_fit needs them. Fit "
                "again, or learn by partial_fit from the start: its rows are kept."
            )
        known = classes if first else self.classes_
        if not first and classes is not None:
            given = np.unique(classes)
            if not np.array_equal(given, known):
                raise ValueError(
                    f"classes={given.tolist()} are not those of the first rows, "
                    f"{known.tolist()}. Leave classes out, or begin anew with fit."
                )
        X, classes, y = _validate.new_rows(self, X, y, known, first)
        if not first:
            X = X.astype(self._X.dtype, copy=False)
        return X, y, classes
