"""Neighbourhood Components Analysis: the estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric._typing import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    Matrix,
    Seed,
    SmoothKernel,
    SumMethod,
    TransformerMixin,
    Vector,
)
from fastmetric.learn import linear_starts
from fastmetric.learn.kernel_table import SMOOTH
from fastmetric.learn.nca import nca_fit, starts, streaming, training
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.posterior import Posterior
from fastmetric.learn.nca.training import LearntMap
from fastmetric.learn.optim import row_batches
from fastmetric.learn.optim.outcome import Iterate, Outcome, report, say, say_iterate
from fastmetric.learn.pair_sums.ways import METHODS
from fastmetric.learn.rows import as_rows, column_means


class NCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):
    """Neighbourhood Components Analysis, from a hundred rows to millions.

    Learns a linear map A (n_components, n_features) under which a row's stochastic neighbour,
    chosen with probability proportional to k(|A x_i - A x_j|^2), is likely to be of its own
    class. Maximises sum_i P_i - alpha ‖A‖² in memory O(n d), never a matrix of all pairs.

    A drop-in replacement for scikit-learn's ``NeighborhoodComponentsAnalysis`` that predicts, too:
    by the posterior of each class at a new point, under the densities that the fit was made with.

    Parameters
    ----------
    n_components : int, default=None
        Dimension of the projected space; None: the number of features, or of the rows of an
        `init` array.
    kernel : {"gaussian", "biweight"}, default="gaussian"
        The kernel of the squared distance s in the projected space: exp(-s), or the compact
        (1 - s)^2 up to s = 1 and 0 beyond: most pairs need not be visited. A start that leaves
        most rows without neighbours is then scaled down.
    background : bool, float or "learn", default=False
        A share of each class's density that is normal, with the mean and covariance of its
        projected rows: for rows beyond a compact kernel's cutoff. True: 1 / (N_c + 1) for a class
        of N_c rows; a number between 0 and 1; or "learn", one number for all classes, learnt with
        the map, see `background_`.
    priors : {"equal"} or array-like of shape (n_classes,), default=None
        Prior probabilities of the classes, in the order of `classes_`; only their ratios
        matter. None: classic NCA, where every row counts the same.
    method : {"auto", "exact", "tree", "grid"}, default="auto"
        How sums over pairs are computed: all pairs, or over k-d trees of the projected classes
        with certified error; with the biweight in up to three dimensions, over the pairs within
        the cutoff. "grid" spreads the rows of each class onto a lattice, for the Gaussian in at
        most three components and a positive `rtol`: the time is linear in the rows. "auto" takes
        the fastest for every map, by counting the work of a few rows.
    rtol : float or "auto", default="auto"
        The relative error that trees may make in a class sum of Gaussians, which changes a P_i by
        about rtol / 2 at most. By a grid every P_i is within rtol / 2; with a background, each
        class sum within rtol. See `error_bound_`. "auto": 0, exact sums, up to 5,000 rows (and
        1e-6 for a grid); beyond, 1e-6.
    solver : {"auto", "lbfgs", "stochastic", "minibatch"}, default="auto"
        "lbfgs": L-BFGS on all rows. "stochastic": steps by a batch of rows against all points.
        "minibatch": steps by a batch of rows against each other, the fastest. "auto": "lbfgs" up
        to 20,000 rows, then "minibatch", or "stochastic" if there are more than 50 classes.
    batch_size : int or "auto", default="auto"
        Rows in a batch. "auto": for "stochastic" 30 million pairs, 50 to 500 rows; for "minibatch"
        1,000 rows; at most a quarter of all.
    batches : {"random", "farthest", "projection"}, default="random"
        How "minibatch" splits the rows, anew for each sweep: at random, or into clusters of the
        projected space, around points far from each other or by halving along random lines.
    subsample : int or float, default=None
        Learn the map from so many random rows, or such a share of them; predictions use all rows.
    init : {"auto", "rca", "lda", "pca", "identity", "random"} or array, default="auto"
        The start. "auto": "lda" if n_components < n_classes, else "pca" if it is smaller than
        min(n_features, n_samples), else "identity". "rca" whitens the scatter within classes
        and keeps the directions of largest scatter; beyond n_classes - 1 of them, where all
        are equal, it takes any. An array has shape (n_components, n_features).
    alpha : float, default=0.0
        Weight of the penalty ‖A‖².
    annealing : bool, default=False
        Begin with twice as many components, and make the smallest of them vanish one by one, by an
        increasing penalty; then continue as usual.
    early_stopping : bool, default=False
        Hold out a part of the rows, and stop when the mean P of these has not increased for
        ten iterations; the map with the largest is kept.
    validation_fraction : float, default=0.1
        The share of the rows that `early_stopping` holds out. They count for predictions again.
    max_iter : int, default=50
        Largest number of iterations. One of "stochastic" has 10 steps, of "minibatch" 20; the
        length of a step decreases to zero over all of them.
    tol : float, default=1e-5
        Tolerance of "lbfgs", on the relative gain and on the gradient.
    warm_start : bool, default=False
        Start from the `components_` of the previous fit, if there is one.
    callback : callable, default=None
        Called after every iteration with the flat transformation and the number of the
        iteration. Raise StopIteration in it to end the fit there.
    verbose : int, default=0
        1: what "auto" took, one line per iteration, and progress bars in a terminal, in
        `predict` too.
    n_jobs : int or None, default=None
        Number of threads. None: all cores in the main process, one inside a worker process of
        joblib, multiprocessing or Dask; -1: all cores, -2: all but one. The result does not
        depend on it.
    random_state : int, RandomState or None, default=None
        Draws batches, sub-samples, held-out rows and the start of ``init="random"``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The learnt map: transform(X) = X @ components_.T.
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    objective_ : float
        The mean of P_i over the rows that the map was learnt from, without the penalty; after
        "stochastic" or "minibatch" on more than 20,000 rows an estimate from 1,000 of them, unless
        all rows take little longer, as by a grid.
    error_bound_ : float
        How far the exact mean under `components_` may be from `objective_`, certified: rounding,
        that of a background aside, and the tolerance of trees; 1 for an estimate.
    background_ : ndarray of shape (n_classes,) or None
        The share of the background in each class; None without one.
    history_ : dict of ndarray
        One entry for the start and for each iteration: "objective" (mean of P_i, by the rows of
        the batches), "gradient_norm" (largest entry, of the penalised sum over all rows, or over
        those of a batch), "pair_share" (of the pairs that were visited), "seconds",
        "evaluations"; "validation" (the mean P held out) with early_stopping and "beta" with
        background="learn".
    n_iter_ : int
        Number of iterations.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    See Also
    --------
    nca_value_and_grad : The objective and its gradient as a function.
    LatentCoincidenceAnalysis : A map from pairs of rows, or a metric for neighbours.
    sklearn.neighbors.NeighborhoodComponentsAnalysis : The same map, by all pairs.

    Notes
    -----
    Ctrl-C during `fit` raises KeyboardInterrupt and leaves the estimator fitted at the last
    finished iteration, or as it was if there is none.

    `fit` keeps a reference to X for a later `partial_fit`; a saved estimator does not hold it.

    References
    ----------
    J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov: Neighbourhood Components Analysis,
    NIPS 2004. D. Oneață: Fast low-rank metric learning, 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastmetric import NCA
    >>> X, y = load_iris(return_X_y=True)
    >>> nca = NCA(n_components=2).fit(X, y)
    >>> nca.transform(X).shape
    (150, 2)
    >>> nca.score(X, y) > 0.95
    True
    """

    # What a fit leaves behind
    components_: np.ndarray
    classes_: np.ndarray
    history_: dict[str, np.ndarray]
    _X: Any  # the rows, for partial_fit; None in a saved fit
    _y: Any
    _step_rule: dict[str, Any] | None  # the memory of partial_fit

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: SmoothKernel = "gaussian",
        background: bool | float | Literal["learn"] = False,
        priors: Literal["equal"] | Vector | None = None,
        method: SumMethod = "auto",
        rtol: float | Literal["auto"] = "auto",
        solver: Literal["auto", "lbfgs", "stochastic", "minibatch"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        batches: Literal["random", "farthest", "projection"] = "random",
        subsample: float | None = None,
        init: Literal["auto", "rca", "lda", "pca", "identity", "random"] | Matrix = "auto",
        alpha: float = 0.0,
        annealing: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        max_iter: int = 50,
        tol: float = 1e-5,
        warm_start: bool = False,
        callback: Callable[[np.ndarray, int], Any] | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.background = background
        self.priors = priors
        self.method = method
        self.rtol = rtol
        self.solver = solver
        self.batch_size = batch_size
        self.batches = batches
        self.subsample = subsample
        self.init = init
        self.alpha = alpha
        self.annealing = annealing
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.callback = callback
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NCA:
        """Learn the map from labelled rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data, at least two rows.
        y : array-like of shape (n_samples,)
            The class of each row, at least two classes.

        Returns
        -------
        self : NCA
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            X, classes, y = _validate.training_data(self, X, y)
            mixture = self._mixture(len(classes))
            rng = _validate.random_state(self.random_state)
            init = self._check_init(X.shape[1], self.annealing)
            self._check_dimensions(init, X.shape[1])
            settings = self._settings(len(X), init)
            rows = as_rows(X, self.n_jobs)
            fitted = nca_fit.fit(rows, y, mixture, settings, rng, self._begin, self._on_iterate)
            self._set_map(fitted.best, fitted.outcome, X.dtype)
            self.objective_, self.error_bound_ = fitted.objective, fitted.error_bound
            self.history_ = fitted.history
            self._remember(X, y, classes, mixture.sharing(fitted.best.beta, len(classes)))
            self._step_rule, self._learnt_share = None, fitted.best.beta
        report(fitted.outcome, "NCA", "Raise max_iter or tol, or scale the features.")
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> NCA:
        """Continue learning with new rows, each compared with all rows so far.

        One pass of stochastic steps over the new rows, from the map so far. All rows are kept,
        those of an earlier `fit` too (but not through a file or a pickle).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New rows.
        y : array-like of shape (n_samples,)
            The class of each.
        classes : array-like of shape (n_classes,), default=None
            All classes there will be; needed at the first call if `y` does not have them all.

        Returns
        -------
        self : NCA
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            first = not hasattr(self, "components_")
            X, y, classes = self._new_rows(X, y, classes, first)
            if not first:
                X, y = np.concatenate([self._X, X]), np.concatenate([self._y, y])
            seen = 0 if first else len(self._X)
            mixture = self._mixture(len(classes))
            if not first:
                mixture = mixture.sharing(self._learnt_share, len(classes))
            present = np.unique(y)
            if len(present) < 2:
                raise ValueError(
                    f"The rows so far are of one class only ({classes[present[0]]!r}); at least "
                    "two are needed to learn anything. Give rows of another class with them."
                )
            init = self._check_init(X.shape[1], annealing=False) if first else "auto"
            self._check_dimensions(init if first else self.components_, X.shape[1])
            settings = self._settings(len(X), init)._replace(annealing=False)
            problem = nca_fit.make_objective(as_rows(X, self.n_jobs), y, mixture, settings)
            if first:
                d, init = starts.resolved_start(settings, X.shape[1], len(X), len(present))
                rng = _validate.random_state(self.random_state)
                # Not widened as for a fit in batches: few steps may not enlarge it again.
                A = starts.starting_map(init, d, problem, settings, rng, in_batches=False)
                self._learnt_share = None
            else:
                A = _validate.components_so_far(self)
            size = training.choose_batch_size(settings.batch_size, "stochastic", len(X))
            state = None if first else self._step_rule
            outcome, self._step_rule = streaming.learn(
                problem, A, seen, size, settings.alpha, state
            )
            self._set_map(outcome.last.model, outcome, X.dtype)
            self.error_bound_ = 1.0
            self._remember(X, y, classes, mixture, online=True)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Project rows into the learnt space.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components)
            X @ components_.T.
        """
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        origin = np.zeros(X.shape[1], X.dtype)
        A = self.components_.astype(X.dtype, copy=False)
        return as_rows(X, self.n_jobs).project(origin, A)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the posterior of each class, by the densities of all training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        P : ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        P = np.empty((len(X), len(self.classes_)), X.dtype)
        for rows, posterior in self._posteriors(X):
            P[rows] = posterior
        return P

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Members of `classes_`.
        """
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        numbers = np.empty(len(X), dtype=np.intp)
        for rows, posterior in self._posteriors(X):
            numbers[rows] = posterior.argmax(axis=1)
        return self.classes_[numbers]

    def _check_parameters(self) -> None:
        """Raise on a parameter out of range."""
        _validate.choice("kernel", self.kernel, SMOOTH)
        _validate.choice("method", self.method, METHODS)
        _validate.choice("solver", self.solver, training.SOLVERS)
        _validate.choice("batches", self.batches, row_batches.NAMES)
        _validate.tolerance_or_auto("rtol", self.rtol)
        _validate.grid(self.method, self.kernel, self.rtol)
        _validate.number("alpha", self.alpha)
        _validate.number("tol", self.tol)
        _validate.integer("max_iter", self.max_iter, 1)
        _validate.share("validation_fraction", self.validation_fraction)
        _validate.flag("annealing", self.annealing)
        _validate.flag("early_stopping", self.early_stopping)
        _validate.background(self.background)
        _validate.flag("warm_start", self.warm_start)
        _validate.integer_or_auto("batch_size", self.batch_size, 2)
        _validate.verbosity(self.verbose)
        _validate.jobs(self.n_jobs)
        _validate.callback(self.callback)
        _validate.random_state(self.random_state)

    def _mixture(self, n_classes: int) -> Mixture:
        """Return how the densities of so many classes are made up."""
        flag = isinstance(self.background, bool | np.bool_)
        present = bool(self.background) if flag else True
        given = not flag and not isinstance(self.background, str)
        beta = np.full(n_classes, float(self.background)) if given else None
        return Mixture(self.kernel, _validate.priors(self.priors, n_classes), present, beta)

    def _settings(self, n: int, init: str | np.ndarray) -> training.Settings:
        """Return the parameters as a fit of n rows takes them."""
        subsample = self.subsample
        if subsample is not None:
            subsample = _validate.sample_size("subsample", subsample, n)
        settings = training.Settings(
            self.solver,
            self.batch_size,
            self.batches,
            self.alpha,
            learns_beta=isinstance(self.background, str) and self.background == "learn",
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=bool(self.verbose),
            method=self.method,
            rtol=self.rtol,
            n_components=self.n_components,
            init=init,
            subsample=subsample,
            annealing=self.annealing,
            early_stopping=self.early_stopping,
            validation_fraction=self.validation_fraction,
        )
        return training.Settings(*map(_validate.plain, settings))

    def _check_init(self, n_features: int, annealing: bool) -> str | np.ndarray:
        """Return the start: a name, or an array with as many rows as there are components."""
        d = n_features
        if self.n_components is not None:
            d = _validate.integer("n_components", self.n_components, 1, n_features)
        given: Any
        if self.warm_start and hasattr(self, "components_"):
            given, name = self.components_, "components_ (warm_start)"
        elif isinstance(self.init, str):
            return _validate.choice("init", self.init, linear_starts.NAMES)
        else:
            given, name = self.init, "init"
        A = _validate.transformation(given, n_features, name)
        fits = len(A) >= d if annealing else len(A) == d
        if self.n_components is not None and not fits:
            wanted = "at least one row" if annealing else "one row"
            raise ValueError(
                f"{name} has {len(A)} rows; n_components is {d}. Give {wanted} per component."
            )
        return A

    def _check_dimensions(self, init: str | np.ndarray, n_features: int) -> None:
        """Raise where the method cannot sum in so many dimensions."""
        d = self.n_components or (n_features if isinstance(init, str) else len(init))
        _validate.grid_dimensions(self.method, d, f"there are {d} components")

    def _begin(self, problem: Objective, settings: training.Settings, d: int) -> None:
        """Print what is to be fitted, if verbose."""
        if not self.verbose:
            return
        (n, n_features), solver = problem.X.shape, settings.solver
        by = "" if solver == "lbfgs" else f" by batches of {settings.batch_size}"
        say(
            "NCA",
            f"{self.kernel}, {problem.method}, {solver}{by}: {n} rows, {n_features} features "
            f"to {d}",
        )

    def _on_iterate(self, iterate: Iterate[LearntMap]) -> None:
        """Print a line for an iteration if verbose, and call the callback."""
        if self.verbose:
            say_iterate("NCA", iterate, iterate.model.way)
        if self.callback is not None:
            with engine.ctrl_c_at_once():
                self.callback(iterate.model.A.flatten(), iterate.number)

    def _set_map(self, best: LearntMap, outcome: Outcome, dtype: np.dtype) -> None:
        """Set the map that a run found, and the figures of the run."""
        self.components_ = best.A.astype(dtype)
        self._n_features_out = len(self.components_)
        self.objective_ = best.objective
        self.history_, self.n_iter_ = outcome.history(), outcome.last.number

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
        rows = as_rows(X, self.n_jobs)
        self._center = column_means(rows)
        self._kernel, self._priors = mixture.kernel, mixture.priors
        self.background_ = mixture.shares(sizes) if mixture.background else None
        self._reference = rows.project(self._center, self.components_)[order]

    def _new_rows(
        self, X: Any, y: Any, classes: Any, first: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return new rows (n, D), their class numbers (n,), and all classes."""
        if not first and self._X is None:
            raise ValueError(
                "The rows of fit are not part of its pickle or file, and partial_fit needs them. "
                "Fit again, or learn by partial_fit from the start: its rows are kept."
            )
        known = None if first else self.classes_
        X, classes, y = _validate.new_rows(self, X, y, classes, known)
        if not first:
            X = X.astype(self._X.dtype, copy=False)
        return X, y, classes

    def _posteriors(self, X: np.ndarray) -> Any:
        """Yield ranges of rows with their class posteriors."""
        dtype = self._reference.dtype
        _validate.grid(self.method, self._kernel, self.rtol)
        d = len(self.components_)
        _validate.grid_dimensions(self.method, d, f"there are {d} components")
        rows = as_rows(X.astype(dtype, copy=False), self.n_jobs)
        query = rows.project(self._center, self.components_)
        posterior = Posterior(
            self._reference,
            self._offsets,
            Mixture(self._kernel, self._priors, self.background_ is not None, self.background_),
            method=self.method,
            rtol=training.choose_tolerance(self.rtol, len(self._reference), self.method),
            n_jobs=self.n_jobs,
        )
        return posterior(query, "predict" if self.verbose else None)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a file holds: not the rows of a fit, which may be large."""
        state = super().__getstate__()
        if "_X" in state and not state["_online"]:
            state |= {"_X": None, "_y": None}
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
