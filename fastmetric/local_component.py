"""Local Component Analysis: the estimator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric._typing import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    DensityMixin,
    Seed,
    TransformerMixin,
    available_if,
)
from fastmetric.learn.local_component import em, local_fit, streaming_rows
from fastmetric.learn.local_component.batch_em import Batches
from fastmetric.learn.local_component.covariance_model import (
    LocalDensity,
    LocalModel,
    Penalty,
    Shape,
)
from fastmetric.learn.local_component.em import Problem
from fastmetric.learn.local_component.per_row import Kernels
from fastmetric.learn.local_component.streaming_rows import Seen
from fastmetric.learn.optim.outcome import Ending, Iterate, Outcome, Recorder, report, say_iterate
from fastmetric.learn.rows import as_rows, mean_and_covariance

_COVARIANCES = ("full", "diag", "spherical", "low_rank", "local")
_NEIGHBOURS = 3000  # rows that partial_fit keeps by default
_ONLINE_BATCH = 1000
_MOST_BYTES = 4e9  # of the covariances of "local"


def learns_online(estimator: LocalComponentAnalysis) -> bool:
    """Return whether an estimator can learn from a few rows at a time; raise why it cannot."""
    for name, value in (("covariance", "local"), ("gaussian", "search"), ("nu", "auto")):
        given = getattr(estimator, name)
        if isinstance(given, str) and given == value:
            raise AttributeError(
                f"{name}={value!r} needs all rows at once, and partial_fit sees a few at a time. "
                "Choose another, or call fit."
            )
    return True


class LocalComponentAnalysis(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator
):
    """Local Component Analysis: the metric of largest leave-one-out likelihood.

    Learns the covariance Sigma of a Gaussian kernel by EM, so that every row is likely under the
    mean of the kernels around all *other* rows. PCA makes the whole cloud of rows round; here
    neighbourhoods become round, whatever the shape of the whole. The result is a transformer, for
    clustering and other methods based on local distances, and a density.

    Directions without any local structure, noise for example, can be given to a Gaussian
    (`gaussian`), which keeps the density good in many dimensions and `transform` short.

    Parameters
    ----------
    covariance : {"full", "diag", "spherical", "low_rank", "local"}, default="full"
        The form of Sigma: any, diagonal, a number, or `rank` directions and a number for all
        others. "local": one covariance per row, smoothed towards that of "full"; its
        `transform` is still that of "full", as no single map suits all rows.
    rank : int, default=None
        The number of directions of "low_rank".
    gaussian : bool or "search", default=False
        Whether directions may become Gaussian: in every iteration those in which a row's
        neighbours vary no less than all rows do. "search" tries other numbers of them, too, which
        EM alone does not find. For ``covariance="full"``.
    nu : float, pair of floats or "auto", default=0.0
        Added to the variances of the kernel and of the Gaussian part, in units of the squared
        features; a pair: one number for each. In many dimensions the
        prediction of new rows depends on it. "auto": chosen on held-out rows; the fit is then made
        on all.
    smoothing : float, default=1.0
        For "local": how many rows the common covariance counts for, in each row's own.
    batch_size : int, default=None
        Learn from so many rows at a time, rather than from all; an iteration is then a sweep
        over all rows.
    n_neighbors : int, default=None
        Compare rows with so many others, drawn anew for each batch; None: with all.
    discount : float, default=0.6
        What a sweep by batches leaves of the covariance before it.
    validation_fraction : float, default=0.2
        The share of the rows that ``nu="auto"`` holds out.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float, default=1e-5
        The fit ends when an iteration gains less in the mean log-likelihood, penalised.
    verbose : int, default=0
        1: one line per iteration, and progress bars in a terminal.
    n_jobs : int or None, default=None
        Number of threads. None: all cores in the main process, one inside a worker process of
        joblib, multiprocessing or Dask; -1: all cores, -2: all but one. The result does not
        depend on it.
    random_state : int, RandomState or None, default=None
        Draws batches, neighbours and held-out rows.

    Attributes
    ----------
    components_ : ndarray of shape (n_local_, n_features)
        The local directions: transform(X) = (X - mean_) @ components_.T. Of "full" and "low_rank"
        the first ones have the most structure: the largest total variance for their local
        variance, which is 1. They do not depend on the units of the features.
    gaussian_components_ : ndarray of shape (n_features - n_local_, n_features)
        The Gaussian directions, in which the rows have variance 1 (with `nu`).
    n_local_ : int
        Number of local directions.
    covariance_ : ndarray of shape (n_features, n_features)
        The kernel's covariance, `nu` included; with a Gaussian part that of the neighbours in all
        directions. For "local" (n_samples, n_features, n_features).
    mean_ : ndarray of shape (n_features,)
        The mean of the rows.
    nu_ : ndarray of shape (2,)
        The penalties in use: of the kernel and of the Gaussian part.
    log_likelihood_ : float
        The mean log density of the training rows, each left out of its own. After batches it is an
        estimate if there are more than 14,000 rows.
    history_ : dict of ndarray
        One entry for the start and for each iteration: "log_likelihood"; "objective", minus the
        penalty, which an iteration never lowers; "n_local"; "seconds". With batches one entry for
        each sweep, with means over its batches.
    n_iter_ : int
        Number of iterations.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    See Also
    --------
    KernelDensity : A density, which takes the learnt covariance as its bandwidth.
    MeanShift : Clusters, in the learnt metric.
    sklearn.decomposition.PCA : Whitens the whole, not neighbourhoods.

    Notes
    -----
    With ``nu=0`` the result is equivariant under linear maps of the features. Then every
    direction has to vary: a constant feature, or no more rows than features, have no density and
    raise. Where rows have equal values in some direction (integers, duplicates) the likelihood may
    grow without bound: the fit then stops, at a kernel whose variance is some 1e-12 of the total
    one, and warns. Give `nu` > 0 for such data, the square of the unit of rounding for example.

    Ctrl-C during `fit` raises KeyboardInterrupt and leaves the estimator fitted at the last
    finished iteration, or as it was if there is none.

    References
    ----------
    N. Le Roux, F. Bach: Local Component Analysis, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from fastmetric import LocalComponentAnalysis
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> X[:, 0] += np.repeat([-5, 5], 100)  # two clusters, along one of three features
    >>> local = LocalComponentAnalysis().fit(X)
    >>> Z = local.transform(X)  # now the clusters are round
    >>> bool(np.abs(np.corrcoef(Z[:, 0], X[:, 0])[0, 1]) > 0.99)
    True
    >>> local.score_samples([[5.0, 0, 0]]) > local.score_samples([[0.0, 0, 0]])
    array([ True])
    """

    # What a fit leaves behind, besides the attributes above.
    _roots: np.ndarray | None  # (n, D, D), of the rows' own covariances
    _seen: tuple  # the state from which partial_fit continues

    def __init__(
        self,
        *,
        covariance: Literal["full", "diag", "spherical", "low_rank", "local"] = "full",
        rank: int | None = None,
        gaussian: bool | Literal["search"] = False,
        nu: float | Sequence[float] | Literal["auto"] = 0.0,
        smoothing: float = 1.0,
        batch_size: int | None = None,
        n_neighbors: int | None = None,
        discount: float = 0.6,
        validation_fraction: float = 0.2,
        max_iter: int = 200,
        tol: float = 1e-5,
        verbose: int = 0,
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.covariance = covariance
        self.rank = rank
        self.gaussian = gaussian
        self.nu = nu
        self.smoothing = smoothing
        self.batch_size = batch_size
        self.n_neighbors = n_neighbors
        self.discount = discount
        self.validation_fraction = validation_fraction
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> LocalComponentAnalysis:
        """Learn the kernel's covariance from rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data, at least two rows.
        y : None
            Ignored.

        Returns
        -------
        self : LocalComponentAnalysis
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            X = _validate.unlabelled_data(self, X, least_rows=2)
            self._check_parameters(*X.shape)
            rng = _validate.random_state(self.random_state)
            rows = as_rows(X, self.n_jobs)
            fitted = local_fit.fit(rows, self._settings(len(X)), rng, self._print)
            problem, model, outcome = fitted.problem, fitted.model, fitted.outcome
            self._set_model(model, problem.mean, problem.rows(model), fitted.roots)
            self._set_run(problem, outcome, fitted.log_likelihood)
            local = model.covariance - problem.penalty.local * np.eye(X.shape[1])
            size = int(self.n_neighbors or _NEIGHBOURS)
            seen, _ = streaming_rows.first_seen(rows, size, rng, (problem.mean, problem.cov))
            self._seen = tuple(seen._replace(local=local))
        self._report(outcome)
        return self

    @available_if(learns_online)
    def partial_fit(self, X: Any, y: Any = None) -> LocalComponentAnalysis:
        """Continue learning with new rows, in memory that does not grow.

        Of the rows seen so far their moments are kept and a random sample of `n_neighbors` of them
        (None: 3,000). New rows are compared with the sample, `batch_size` at a time (None: 1,000),
        and the density has its kernels around the sample. The first rows should be
        more than the features, or `nu` more than 0.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New rows; at least two in the first call.
        y : None
            Ignored.

        Returns
        -------
        self : LocalComponentAnalysis
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            first = not hasattr(self, "components_")
            X = _validate.unlabelled_data(self, X, least_rows=2 if first else 1, first=first)
            self._check_parameters(None, X.shape[1])
            size = int(self.n_neighbors or _NEIGHBOURS)
            if first:
                rows = as_rows(X, self.n_jobs)
                rng = _validate.random_state(self.random_state)
                moments = mean_and_covariance(rows)
                seen, places = streaming_rows.first_seen(rows, size, rng, moments)
            else:
                before = self._remembered()
                rows = as_rows(_validate.in_precision_of(X, before.sample, "X"), self.n_jobs)
                rng = streaming_rows.generator(self.random_state, before.n)
                seen, places = streaming_rows.joined(before, rows, size, rng)
            problem = Problem(
                rows, self._shape, self._given_penalty(), moments=(seen.mean, seen.cov)
            )
            batches = Batches(int(self.batch_size or _ONLINE_BATCH), size, float(self.discount))
            # The first kernel is as wide as the data: no direction is any more Gaussian than local.
            start = problem.start() if first else problem.model(seen.local)
            model, local, value = streaming_rows.learnt(problem, start, seen, places, batches)
            self._set_model(model, seen.mean, problem.rows(model, seen.sample))
            self._seen = tuple(seen._replace(local=local))
            recorder: Recorder[LocalModel] = Recorder(first=1)
            recorder.keep(model, **em.figures(model.q, value, problem.objective(model, value)))
            self._set_run(problem, recorder.outcome(Ending.CONVERGED, "all rows were seen"), value)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return rows in the local coordinates, in which the kernel is round.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_local_)
            (X - mean_) @ components_.T.
        """
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        return as_rows(X, self.n_jobs).project(self.mean_, self.components_, precise=True)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density at each row, with no training row left out.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            float32 if `X` is, else float64.
        """
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        logs = self._log_densities(_validate.in_precision_of(X, self._remembered().sample, "X"))
        return logs.astype(X.dtype, copy=False)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        y : None
            Ignored.

        Returns
        -------
        log_likelihood : float
            The mean of `score_samples`.
        """
        return float(self.score_samples(X).mean(dtype=np.float64))

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> np.ndarray:
        """Draw rows from the density.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        random_state : int, RandomState or None, default=None
            The source of randomness.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows, in the precision of the training data.
        """
        check_is_fitted(self)
        n_samples = _validate.integer("n_samples", n_samples, 1)
        rng = _validate.random_state(random_state)
        density = LocalDensity(self._fitted_model(), self.mean_, self._rows)
        drawn = local_fit.draw(density, self._roots, n_samples, rng)
        return drawn.astype(self._rows.dtype, copy=False)

    def _check_parameters(self, n: int | None = None, D: int | None = None) -> None:
        """Raise on a parameter out of range; also for n rows of D features, if these are known."""
        _validate.choice("covariance", self.covariance, _COVARIANCES)
        if not isinstance(self.gaussian, bool | np.bool_):
            _validate.choice("gaussian", self.gaussian, ("search",))
        if self.gaussian and self.covariance != "full":
            raise ValueError(
                f"gaussian={self.gaussian!r} goes with covariance='full', the only one that can "
                f"be split; got covariance={self.covariance!r}."
            )
        if self.covariance == "low_rank":
            _validate.integer("rank", self.rank, 1, None if D is None else max(D - 1, 1))
        elif self.rank is not None:
            raise ValueError(
                f"rank={_validate.shown(self.rank)} goes with covariance='low_rank' only."
            )
        if not isinstance(self.nu, str):
            self._given_penalty()
        else:
            _validate.choice("nu", self.nu, ("auto",))
        if not _validate.number("smoothing", self.smoothing) > 0:
            raise ValueError(f"smoothing should be more than 0; got {self.smoothing!r}.")
        for name, least in (("batch_size", 1), ("n_neighbors", 2)):
            if getattr(self, name) is not None:
                _validate.integer(name, getattr(self, name), least)
        if _validate.number("discount", self.discount) >= 1:
            raise ValueError(f"discount should be less than 1; got {self.discount!r}.")
        in_batches = self.batch_size is not None or self.n_neighbors is not None
        if in_batches and (self.gaussian == "search" or self.covariance == "local"):
            given = "gaussian='search'" if self.gaussian == "search" else "covariance='local'"
            raise ValueError(f"{given} learns from all rows: batch_size and n_neighbors are None.")
        _validate.share("validation_fraction", self.validation_fraction)
        _validate.integer("max_iter", self.max_iter, 1)
        _validate.number("tol", self.tol)
        _validate.verbosity(self.verbose)
        _validate.random_state(self.random_state)
        _validate.jobs(self.n_jobs)
        size = 8.0 * (n or 0) * (D or 0) ** 2
        if self.covariance == "local" and size > _MOST_BYTES:
            raise ValueError(
                f"covariance='local' keeps a matrix per row: {n:,} rows of {D} features would take "
                f"{size / 1e9:.1f} GB, of {_MOST_BYTES / 1e9:.0f} GB at most. Give fewer rows or "
                "features, or another covariance."
            )

    def _given_penalty(self) -> Penalty:
        """Return nu, a number or a pair, as two numbers."""
        values: Any
        several = isinstance(self.nu, tuple | list) or (
            isinstance(self.nu, np.ndarray) and self.nu.ndim == 1
        )
        values = self.nu if several else (self.nu, self.nu)
        pair = [x for x in map(_validate.real, values) if x is not None and 0 <= x < np.inf]
        if not len(pair) == len(values) == 2:
            raise ValueError(
                "nu should be a finite number, at least 0, a pair of them or 'auto'; got "
                f"{_validate.shown(self.nu)}."
            )
        return Penalty(*pair)

    @property
    def _shape(self) -> Shape:
        """Return what the model may be like; the start of "local" is full."""
        form = "full" if self.covariance == "local" else self.covariance
        return Shape(form, int(self.rank or 0), bool(self.gaussian))

    @property
    def _label(self) -> str | None:
        """Return the name of a progress bar; None: there is none."""
        return "pairs" if self.verbose else None

    def _batches(self, n: int) -> Batches | None:
        """Return how n rows are split into batches; None: all at once."""
        if self.batch_size is None and self.n_neighbors is None:
            return None
        size, neighbours = (
            n if given is None else min(int(given), n)
            for given in (self.batch_size, self.n_neighbors)
        )
        return Batches(size, neighbours, float(self.discount))

    def _settings(self, n: int) -> local_fit.Settings:
        """Return the parameters as a fit of n rows takes them."""
        settings = local_fit.Settings(
            self._shape,
            None if isinstance(self.nu, str) else self._given_penalty(),
            self._batches(n),
            search=isinstance(self.gaussian, str) and self.gaussian == "search",
            per_row=self.covariance == "local",
            smoothing=self.smoothing,
            validation_fraction=self.validation_fraction,
            max_iter=self.max_iter,
            tol=self.tol,
            label=self._label,
        )
        return local_fit.Settings(*map(_validate.plain, settings))

    def _set_model(
        self,
        model: LocalModel,
        mean: np.ndarray,
        rows: np.ndarray,
        roots: np.ndarray | None = None,
    ) -> None:
        """Set what describes the density, with kernels around rows in its coordinates (n, D).

        `roots` (n, D, D) are those of the rows' own covariances, in these coordinates.
        """
        self._B, self._inverse, self._log_det = model.B, model.inverse, model.log_det
        self._rows = np.ascontiguousarray(rows[:, : model.q])
        self._density: LocalDensity | None = None
        self._roots = roots
        self.mean_, self.covariance_, self.n_local_ = mean, model.covariance, model.q
        self.components_, self.gaussian_components_ = model.B[: model.q], model.B[model.q :]
        if roots is not None:
            spread = model.inverse @ roots
            self.covariance_ = spread @ spread.transpose(0, 2, 1)

    def _set_run(self, problem: Problem, outcome: Outcome, log_likelihood: float) -> None:
        """Set the attributes that describe the run."""
        self.nu_ = np.array(problem.penalty)
        self.history_, self.n_iter_ = outcome.history(), outcome.last.number
        self.log_likelihood_ = log_likelihood

    def _fitted_model(self) -> LocalModel:
        """Return the model of the fit."""
        return LocalModel(self._B, self._inverse, self.n_local_, self._log_det, self.covariance_)

    def _log_densities(self, X: np.ndarray) -> np.ndarray:
        """Return the log densities (m,) of rows X (m, D), float64."""
        if self._density is None:
            self._density = LocalDensity(
                self._fitted_model(),
                self.mean_,
                _validate.squarable(self._rows, "X") if self.n_local_ else self._rows,
                self.n_jobs,
            )
        if self._roots is None:
            W = self._density.coordinates(as_rows(X, self.n_jobs))
            if self.n_local_:
                _validate.squarable(W[:, : self.n_local_], "X")
            return self._density.log_densities(W, self._label)
        W = np.subtract(X, self.mean_, dtype=np.float64) @ self._B.T
        kernels = Kernels(self._rows.astype(np.float64), self._roots)
        return local_fit.log_densities_per_row(kernels, W, self._log_det, self.n_jobs, self._label)

    def _print(self, iterate: Iterate) -> None:
        """Print a line for an iteration if verbose."""
        if self.verbose:
            say_iterate("LocalComponentAnalysis", iterate)

    def _report(self, outcome: Outcome) -> None:
        """Report how the fit ended, unless it converged."""
        advice = "Raise max_iter or tol."
        if outcome.collapsed:
            advice = (
                "It grows without bound as the kernel narrows in a direction in which rows have "
                "equal values. Give nu > 0."
            )
        report(outcome, "LocalComponentAnalysis", advice, stacklevel=4)
        if self.n_local_ == 0:
            warnings.warn(
                "No local direction is left: the density is a single Gaussian, and transform "
                "returns no columns.",
                stacklevel=3,
            )

    def _remembered(self) -> Seen:
        """Return what is kept of the rows seen, for partial_fit."""
        return Seen(*self._seen)

    @property
    def _n_features_out(self) -> int:
        """Return the number of columns of `transform`."""
        return self.n_local_

    def __getstate__(self) -> dict[str, Any]:
        # The density and its tree are made again from the arrays.
        state = super().__getstate__()
        return state | {"_density": None} if "_density" in state else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
