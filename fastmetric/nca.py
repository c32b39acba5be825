"""Neighbourhood Components Analysis: the objective as a function, and the estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric.learn import starts
from fastmetric.learn.linear import project
from fastmetric.learn.objective import Evaluation, Objective
from fastmetric.learn.posterior import class_posteriors
from fastmetric.learn.solvers import Outcome, Step, lbfgs

_KERNELS = ("gaussian",)
_METHODS = ("auto", "exact", "tree")
_SOLVERS = ("auto", "lbfgs")


def nca_value_and_grad(
    A: Any,
    X: Any,
    y: Any,
    *,
    kernel: str = "gaussian",
    rows: Any = None,
    method: str = "exact",
    rtol: float = 0.0,
    n_jobs: int | None = None,
) -> tuple[float, np.ndarray]:
    """Return the NCA objective sum_i P_i and its gradient with respect to A.

    P_i is the probability that row i, choosing another row j with probability proportional to
    exp(-|A x_i - A x_j|^2), chooses one of its own class.

    Parameters
    ----------
    A : array-like of shape (n_components, n_features)
        The linear map.
    X : array-like of shape (n_samples, n_features)
        The data. float32 is computed in float32, with sums in float64; all else in float64.
    y : array-like of shape (n_samples,)
        The class of each row.
    kernel : {"gaussian"}, default="gaussian"
        The kernel of the squared distance.
    rows : array-like of int, default=None
        The rows i to sum over, each against all rows j; None: all. A row given twice counts
        twice.
    method : {"exact", "tree", "auto"}, default="exact"
        How sums over pairs are computed: all pairs, or over k-d trees of the projected classes
        with certified error; "auto" takes the faster. Chosen `rows` are always summed exactly.
    rtol : float, default=0.0
        The relative error that a tree may make in each class sum.
    n_jobs : int or None, default=None
        Number of threads; None: all cores (one inside a worker process), -1: all cores. The
        result does not depend on it, to the last bit.

    Returns
    -------
    value : float
        The sum of P_i over `rows`, not rescaled.
    gradient : ndarray of shape (n_components, n_features)
        Its derivative with respect to `A`, float64.

    Examples
    --------
    >>> import numpy as np
    >>> from fastmetric import nca_value_and_grad
    >>> X, y = np.array([[0.0], [1.0], [3.0]]), [0, 0, 1]
    >>> value, gradient = nca_value_and_grad(np.eye(1), X, y)
    >>> round(value, 6), gradient.round(6)
    (1.952239, array([[0.276424]]))
    """
    _validate.choice("kernel", kernel, _KERNELS)
    _validate.choice("method", method, _METHODS)
    _validate.tolerances(rtol, 0.0)
    n_jobs = _validate.jobs(n_jobs)
    X, y = _validate.labelled_arrays(X, y)
    A = _validate.transformation(A, X.shape[1])
    rows = None if rows is None else _validate.row_indices(rows, len(X))
    problem = Objective(X, y, n_jobs, method=method, rtol=rtol)
    value, gradient, _ = problem.evaluate(A, rows)
    return value, gradient


class NCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):
    """Neighbourhood Components Analysis, without a matrix of all pairs.

    Learns a linear map A (n_components, n_features) under which a row's stochastic neighbour,
    chosen with probability proportional to exp(-|A x_i - A x_j|^2), is likely to be of its own
    class. Maximises sum_i P_i - alpha ‖A‖²; time O(n² d) per iteration, memory O(n d).

    A drop-in replacement for scikit-learn's ``NeighborhoodComponentsAnalysis`` that predicts, too:
    by the share of each class in the kernel sum at a new point.

    Parameters
    ----------
    n_components : int, default=None
        Dimension of the projected space; None: the number of features, or of the rows of an
        `init` array.
    kernel : {"gaussian"}, default="gaussian"
        The kernel of the squared distance in the projected space.
    method : {"auto", "exact", "tree"}, default="auto"
        How sums over pairs are computed: all pairs, or over k-d trees of the projected classes
        with certified error. "auto" takes the faster, anew for every map: it counts what the
        trees would do for a few rows.
    rtol : float, default=0.0
        The relative error that trees may make in a class sum; see `error_bound_`.
    solver : {"auto", "lbfgs"}, default="auto"
        The optimiser; "auto" is "lbfgs", L-BFGS on all rows.
    init : {"auto", "rca", "lda", "pca", "identity", "random"} or array, default="auto"
        The start. "auto": "lda" if n_components < n_classes, else "pca" if it is smaller than
        min(n_features, n_samples), else "identity". "rca" whitens the scatter within classes
        and keeps the directions of largest scatter; beyond n_classes - 1 of them, where all
        are equal, it takes any. An array has shape (n_components, n_features).
    alpha : float, default=0.0
        Weight of the penalty ‖A‖².
    max_iter : int, default=50
        Largest number of iterations.
    tol : float, default=1e-5
        Tolerance of the optimiser, on the relative gain and on the gradient.
    warm_start : bool, default=False
        Start from the `components_` of the previous fit, if there is one.
    callback : callable, default=None
        Called after every iteration with the flat transformation and the number of the
        iteration. Raise StopIteration in it to end the fit there.
    verbose : int, default=0
        1: one line per iteration, and progress bars in a terminal, in `predict` too.
    n_jobs : int or None, default=None
        Number of threads. None: all cores in the main process, one inside a worker process of
        joblib, multiprocessing or Dask; -1: all cores, -2: all but one. The result does not
        depend on it.
    random_state : int, RandomState or None, default=None
        Draws the start of ``init="random"``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The learnt map: transform(X) = X @ components_.T.
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    objective_ : float
        The mean of P_i over the training rows, without the penalty.
    error_bound_ : float
        How far the true mean may be from `objective_`, certified; 0 for exact sums.
    history_ : dict of ndarray
        One entry for the start and for each iteration: "objective" (mean of P_i),
        "gradient_norm" (largest entry, of the penalised sum), "seconds", "evaluations".
    n_iter_ : int
        Number of iterations.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    Notes
    -----
    Ctrl-C during `fit` raises KeyboardInterrupt and leaves the estimator fitted at the last
    finished iteration, or as it was if there is none.

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

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: str = "gaussian",
        method: str = "auto",
        rtol: float = 0.0,
        solver: str = "auto",
        init: Any = "auto",
        alpha: float = 0.0,
        max_iter: int = 50,
        tol: float = 1e-5,
        warm_start: bool = False,
        callback: Callable[[np.ndarray, int], Any] | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.method = method
        self.rtol = rtol
        self.solver = solver
        self.init = init
        self.alpha = alpha
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
            d, init = self._check_start(X, len(classes))
            problem = Objective(X, y, self.n_jobs, method=self.method, rtol=self.rtol)
            if isinstance(init, str):
                init = starts.start(init, d, problem, check_random_state(self.random_state))
            outcome = self._maximise(problem, init)
            self._store(outcome, problem, classes)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if not outcome.converged:
            warnings.warn(
                f"NCA has not converged after {self.n_iter_} iterations ({outcome.message}). "
                "Raise max_iter or tol, or scale the features.",
                ConvergenceWarning,
                stacklevel=2,
            )
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
        return project(X, origin, self.components_.astype(X.dtype, copy=False), self.n_jobs)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the share of each class in the kernel sum over all training rows.

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

    def _posteriors(self, X: np.ndarray) -> Any:
        """Yield ranges of rows with their class posteriors."""
        dtype = self._reference.dtype
        query = project(X.astype(dtype, copy=False), self._center, self.components_, self.n_jobs)
        label = "predict" if self.verbose else None
        return class_posteriors(query, self._reference, self._offsets, self.n_jobs, label)

    def _check_parameters(self) -> None:
        """Raise on a parameter out of range."""
        _validate.choice("kernel", self.kernel, _KERNELS)
        _validate.choice("method", self.method, _METHODS)
        _validate.choice("solver", self.solver, _SOLVERS)
        _validate.tolerances(self.rtol, 0.0)
        _validate.number("alpha", self.alpha)
        _validate.number("tol", self.tol)
        _validate.integer("max_iter", self.max_iter, 1)
        _validate.jobs(self.n_jobs)
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback should be callable or None; got {self.callback!r}.")

    def _check_start(self, X: np.ndarray, n_classes: int) -> tuple[int, str | np.ndarray]:
        """Return the projected dimension, and the start: a name other than "auto", or an array."""
        n, n_features = X.shape
        d = n_features
        if self.n_components is not None:
            d = _validate.integer("n_components", self.n_components, 1, n_features)
        if self.warm_start and hasattr(self, "components_"):
            given, name = self.components_, "components_ (warm_start)"
        elif isinstance(self.init, str):
            init = _validate.choice("init", self.init, starts.NAMES)
            return d, starts.resolve(init, d, n_features, n, n_classes)
        else:
            given, name = self.init, "init"
        A = _validate.transformation(given, n_features, name)
        if self.n_components is not None and len(A) != d:
            raise ValueError(
                f"{name} has {len(A)} rows; n_components is {d}. Give one row per component."
            )
        return len(A), A

    def _maximise(self, problem: Objective, start: np.ndarray) -> Outcome:
        """Run the solver from `start`, with a line per iteration if verbose."""
        n, (d, n_features) = len(problem.X), start.shape
        if self.verbose:
            print(f"[NCA] {problem.method}, lbfgs: {n} rows, {n_features} features to {d}")
            print("[NCA] iteration   objective    gradient   seconds", flush=True)

        def value_and_grad(A: np.ndarray, n_iter: int) -> Evaluation:
            return problem.evaluate(A, label=f"iteration {n_iter}" if self.verbose else None)

        def on_step(step: Step) -> None:
            if self.verbose:
                figures = f"{step.value / n:11.6f} {step.gradient_norm:11.3e} {step.seconds:9.2f}"
                print(f"[NCA] {step.n_iter:9d} {figures}", flush=True)
            if self.callback is not None:
                with engine.ctrl_c_at_once():
                    self.callback(step.A.flatten(), step.n_iter)

        return lbfgs(
            value_and_grad,
            start,
            alpha=self.alpha,
            max_iter=self.max_iter,
            tol=self.tol,
            on_step=on_step,
        )

    def _store(self, outcome: Outcome, problem: Objective, classes: np.ndarray) -> None:
        """Set the fitted attributes."""
        n = len(problem.X)
        self.components_ = outcome.last.A.astype(problem.X.dtype)
        self.classes_ = classes
        self.objective_ = outcome.last.value / n
        self.error_bound_ = outcome.last.error_bound / n
        self.history_ = outcome.history | {"objective": outcome.history["objective"] / n}
        self.n_iter_ = outcome.last.n_iter
        self._n_features_out = len(self.components_)
        self._center, self._offsets = problem.center, problem.offsets
        self._reference = problem.project(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
