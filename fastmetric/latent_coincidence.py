"""Latent Coincidence Analysis: the estimator."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric._typing import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    Matrix,
    Seed,
    TransformerMixin,
)
from fastmetric._validate import given_pairs
from fastmetric.learn.coincidence import coincidence_fit
from fastmetric.learn.coincidence import likelihood_solvers as solvers
from fastmetric.learn.coincidence.impostor_rounds import Settings
from fastmetric.learn.coincidence.likelihood_solvers import Model
from fastmetric.learn.coincidence.streaming_pairs import PairSteps
from fastmetric.learn.optim.outcome import (
    Ending,
    Iterate,
    Outcome,
    Recorder,
    report,
    say,
    say_iterate,
)
from fastmetric.learn.rows import as_rows

_INITS = ("auto", "rca", "pca", "identity")
_ADVICE = "Raise max_iter or tol."


class LatentCoincidenceAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Latent Coincidence Analysis: a metric from pairs labelled as coinciding or not.

    Rows x, x' are mapped to latent points, normal around W x and W x' with variance sigma^2 in
    every direction, that coincide with probability exp(-|z - z'|^2 / 2 kappa^2). `fit_pairs`
    maximises the likelihood of pairs that were seen to coincide or not, with kappa = 1.
    `fit` learns a metric for nearest neighbours from labelled rows: a row should coincide with its
    nearest rows of the same class, and not with rows of other classes that come closer than
    these, its impostors; every row has a length scale kappa of its own.

    Parameters
    ----------
    n_components : int, default=None
        Dimension of the latent space; None: the number of features, or of the rows of an `init`
        array.
    n_neighbors : int, default=3
        Rows of the same class that each row should coincide with, in `fit`.
    solver : {"lbfgs", "em"}, default="lbfgs"
        "lbfgs": L-BFGS on the likelihood. "em": EM as in the paper, but on z - z', which takes
        many more steps. Neither solver decreases the likelihood.
    init : {"auto", "rca", "pca", "identity"} or array, default="auto"
        The start. "auto": "pca" if n_components is smaller than min(n_features, n_samples), else
        "identity"; but with `early_stopping` and fewer than 1,000 rows "rca" (which whitens the
        rows within classes, `fit` only), unless the other one has clearly fewer errors on rows
        held out. An array has shape (n_components, n_features).
    refresh : int, default=3
        Iterations of the solver between two searches for impostors, in `fit`; of L-BFGS at least
        two, because the first one determines only the scale of the steps.
    n_passes : int or "auto", default="auto"
        In `fit`, choose the neighbours of each row so many times, at equal distances in the run:
        first in the input space, then under the map so far. 1: in the input space only, as in the
        paper. "auto": 1; with fewer than 1,000 rows 20, or 1 if `early_stopping` finds fewer
        errors that way.
    early_stopping : bool, default=True
        In `fit`, determine on held-out rows the number of iterations with the fewest errors of
        `n_neighbors` nearest neighbours, and then learn from all rows for that number; for none
        if the errors do not become clearly fewer (by one standard error). A trial ends after ten
        searches without fewer errors. With fewer than 1,000 rows every row is held out three
        times, a fifth of them at a time.
    validation_fraction : float, default=0.1
        The share of the rows that `early_stopping` holds out, of 1,000 rows or more.
    max_iter : int, default=200
        Largest number of iterations of the solver.
    tol : float, default=1e-4
        The run ends when an iteration (in `fit` a pass, when all of them between two searches)
        raises the mean log-likelihood of a pair by less; for L-BFGS on pairs also when its
        gradient is smaller. Single steps of EM are small: give it much less.
    verbose : int, default=0
        1: one line per iteration, or per search for impostors.
    n_jobs : int or None, default=None
        Number of threads. None: all cores in the main process, one inside a worker process of
        joblib, multiprocessing or Dask; -1: all cores, -2: all but one. The result does not
        depend on it.
    random_state : int, RandomState or None, default=None
        Draws the rows that `early_stopping` holds out, and the order in which
        `partial_fit_pairs` takes pairs.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The learnt map W: transform(X) = X @ components_.T.
    noise_variance_ : float
        sigma^2, in units in which kappa = 1; after `fit`, in which the median kappa is.
    log_likelihood_ : float
        The sum over all pairs learnt from; after `fit`, over those active when the map was found;
        after `partial_fit_pairs`, over those of the call, each before the step that used it.
    length_scales_ : ndarray of shape (n_samples,)
        kappa of each row, in units of their median; NaN for rows that never had impostors: these
        are in no pair as the first row, and their kappa is not determined. After `fit` only.
    history_ : dict of ndarray
        One entry for the start and for each iteration (in `fit`, for each search):
        "log_likelihood", "noise_variance", "seconds"; in `fit` also "pairs" and "active" (rows),
        and "validation" (the share of errors held out, in the trials) with early_stopping. One
        entry for each call of `partial_fit_pairs`, with "pairs".
    n_iter_ : int
        Number of iterations; in `fit`, of searches for impostors. At least one. After
        `partial_fit_pairs`, of all steps so far.
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted. After `fit` only.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    See Also
    --------
    LatentCoincidenceClassifier : One such model per class.
    NCA : A map from labels of rows.

    Notes
    -----
    Ctrl-C during a fit raises KeyboardInterrupt and leaves the estimator fitted at the last
    finished iteration, or as it was if there is none: the trials of early_stopping do not count.
    `partial_fit_pairs` leaves it as it was.

    A matrix of n_features x n_features is formed: with thousands of features, project them first,
    by PCA for example.

    References
    ----------
    M. Der, L. K. Saul: Latent Coincidence Analysis: A Hidden Variable Model for Distance Metric
    Learning, NIPS 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastmetric import LatentCoincidenceAnalysis
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = LatentCoincidenceAnalysis(n_components=2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    >>> pairs = [[0, 1], [0, 60], [60, 61], [60, 120]]
    >>> metric.fit_pairs(pairs, [1, -1, 1, -1], X=X).components_.shape
    (2, 4)
    """

    # What a fit leaves behind
    components_: np.ndarray
    noise_variance_: float
    history_: dict[str, np.ndarray]
    _pair_steps: dict[str, Any]  # the memory of partial_fit_pairs

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 3,
        solver: Literal["lbfgs", "em"] = "lbfgs",
        init: Literal["auto", "rca", "pca", "identity"] | Matrix = "auto",
        refresh: int = 3,
        n_passes: int | Literal["auto"] = "auto",
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        max_iter: int = 200,
        tol: float = 1e-4,
        verbose: int = 0,
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.solver = solver
        self.init = init
        self.refresh = refresh
        self.n_passes = n_passes
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> LatentCoincidenceAnalysis:
        """Learn a metric for nearest neighbours from labelled rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data, at least two rows.
        y : array-like of shape (n_samples,)
            The class of each row, at least two classes.

        Returns
        -------
        self : LatentCoincidenceAnalysis
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            X, classes, y = _validate.training_data(self, X, y)
            _validate.squarable(X, "X", len(X) ** 2)
            given = self._given(X.shape[1])
            ways = coincidence_fit.schedules(self._settings(), self.n_passes, len(X))
            rng = _validate.random_state(self.random_state)
            state, outcome = coincidence_fit.fit(
                as_rows(X, self.n_jobs), y, ways, given, rng, self._print, self._print_errors
            )
            self._set_model(state.model, outcome, X.dtype, unit=state.unit())
            self.length_scales_ = state.length_scales()
            self.classes_ = classes
            self._forget("_pair_steps")
        report(outcome, "LatentCoincidenceAnalysis", _ADVICE)
        return self

    def fit_pairs(self, pairs: Any, y: Any, X: Any = None) -> LatentCoincidenceAnalysis:
        """Learn the map from pairs that were seen to coincide, or not.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features) or (n_pairs, 2)
            The two rows of each pair; or their numbers in `X`, which copies nothing.
        y : array-like of shape (n_pairs,)
            +1: the pair coincides, -1: it does not.
        X : array-like of shape (n_samples, n_features), default=None
            The rows whose numbers `pairs` holds.

        Returns
        -------
        self : LatentCoincidenceAnalysis
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            X, firsts, seconds, coincide = given_pairs.pairs(self, pairs, y, X)
            rows = as_rows(X, self.n_jobs)
            given = self._given(X.shape[1])
            start = coincidence_fit.problem_of_pairs(rows, (firsts, seconds, coincide), given)
            outcome = coincidence_fit.fit_pairs(*start, self._settings(), self._print)
            self._set_model(outcome.last.model, outcome, X.dtype, unit=1.0)
            self._forget("length_scales_", "classes_", "_pair_steps")
        report(outcome, "LatentCoincidenceAnalysis", _ADVICE)
        return self

    def partial_fit_pairs(self, pairs: Any, y: Any, X: Any = None) -> LatentCoincidenceAnalysis:
        """Continue learning with new pairs, each of which is used once and not kept.

        A step by every 100 pairs of the call, in random order, and one by the rest, from the map
        so far: that of earlier calls, of `fit_pairs` or of `fit`. The first call of all makes the
        start from its pairs, ideally of both kinds. `solver`, `max_iter` and `tol` have no effect.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features) or (n_pairs, 2)
            The two rows of each pair; or their numbers in `X`.
        y : array-like of shape (n_pairs,)
            +1: the pair coincides, -1: it does not.
        X : array-like of shape (n_samples, n_features), default=None
            The rows whose numbers `pairs` holds.

        Returns
        -------
        self : LatentCoincidenceAnalysis
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            first = not hasattr(self, "components_")
            X, firsts, seconds, coincide = given_pairs.pairs(self, pairs, y, X, first)
            rows = as_rows(X, self.n_jobs)
            if first:
                pairs_of_rows = firsts, seconds, coincide
                given = self._given(X.shape[1])
                _, W, noise = coincidence_fit.problem_of_pairs(rows, pairs_of_rows, given)
            else:
                W, noise = _validate.components_so_far(self), self.noise_variance_
            going_on = hasattr(self, "_pair_steps")
            steps = PairSteps.resumed(self._pair_steps) if going_on else PairSteps(W, noise)
            recorder: Recorder[Model] = Recorder(self._print)
            earlier = self.history_ if going_on else {}
            order = _validate.random_state(self.random_state).permutation(len(coincide))
            log_likelihood = steps.learn(rows, firsts[order], seconds[order], coincide[order])
            model = Model(steps.W, steps.noise, log_likelihood)
            solvers.keep(recorder, model, pairs=len(coincide))
            outcome = recorder.outcome(Ending.CONVERGED, "all pairs were seen")
            self._set_model(model, outcome, X.dtype, unit=1.0)
            self.n_iter_, self._pair_steps = steps.count, steps.state()
            for name, past in earlier.items():
                self.history_[name] = np.append(past, self.history_[name])
            self._forget("length_scales_", "classes_")
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
        W = self.components_.astype(X.dtype, copy=False)
        return as_rows(X, self.n_jobs).project(origin, W)

    def _check_parameters(self) -> None:
        """Raise on a parameter out of range."""
        _validate.choice("solver", self.solver, tuple(solvers.SOLVERS))
        _validate.integer("n_neighbors", self.n_neighbors, 1)
        _validate.integer("refresh", self.refresh, 1)
        _validate.integer_or_auto("n_passes", self.n_passes, 1)
        _validate.integer("max_iter", self.max_iter, 1)
        _validate.number("tol", self.tol)
        _validate.flag("early_stopping", self.early_stopping)
        _validate.share("validation_fraction", self.validation_fraction)
        _validate.verbosity(self.verbose)
        _validate.random_state(self.random_state)
        _validate.jobs(self.n_jobs)

    def _settings(self) -> Settings:
        """Return the settings of the rounds."""
        given = self.n_neighbors, self.solver, self.refresh, self.max_iter, self.tol
        return Settings(*map(_validate.plain, given))

    def _given(self, n_features: int) -> coincidence_fit.Given:
        """Return the other parameters of a fit, checked against the number of features."""
        p, init = n_features, self.init
        if self.n_components is not None:
            p = _validate.integer("n_components", self.n_components, 1, n_features)
        if isinstance(init, str):
            _validate.choice("init", init, _INITS)
        else:
            init = _validate.transformation(init, n_features, "init")
            if self.n_components not in (None, len(init)):
                raise ValueError(
                    f"init has {len(init)} rows; n_components is {p}. Give one row per component."
                )
        return coincidence_fit.Given(p, init, self.early_stopping, self.validation_fraction)

    def _print(self, iterate: Iterate[Model]) -> None:
        """Print a line for an iteration if verbose."""
        if self.verbose:
            say_iterate("LatentCoincidenceAnalysis", iterate)

    def _print_errors(self, share: float) -> None:
        """Print the share of errors on rows held out if verbose."""
        if self.verbose:
            say("LatentCoincidenceAnalysis", f"validation {share:.6g}")

    def _set_model(self, model: Model, outcome: Outcome, dtype: np.dtype, unit: float) -> None:
        """Set what was learnt, in units in which the length scale `unit` is 1."""
        self.components_ = (model.W / unit).astype(dtype)
        self._n_features_out = len(self.components_)
        self.noise_variance_ = model.noise / unit**2
        self.log_likelihood_ = model.log_likelihood
        self.history_, self.n_iter_ = outcome.history(), max(outcome.last.number, 1)
        self.history_["noise_variance"] /= unit**2

    def _forget(self, *names: str) -> None:
        """Drop what an earlier fit of another kind left behind."""
        for name in names:
            if hasattr(self, name):
                delattr(self, name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
