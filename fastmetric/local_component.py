"""Local Component Analysis: the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    DensityMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric._local_fit import NEIGHBOURS, ONLINE_BATCH, LocalFit, learns_online
from fastmetric.learn.local_component import em, streaming_rows
from fastmetric.learn.local_component.batch_em import Batches
from fastmetric.learn.local_component.em import Problem, Step
from fastmetric.learn.rows import whitened


class LocalComponentAnalysis(
    LocalFit, ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator
):
    """Local Component Analysis: the metric under which a kernel density foretells rows best.

    Learns the covariance Sigma of a Gaussian kernel by EM, so that every row is likely under the
    mean of the kernels around all *other* rows. PCA makes the whole cloud of rows round; here
    neighbourhoods become round, whatever the shape of the whole. The result is a transformer, for
    clustering and all that lives on local distances, and a density.

    Directions without any local structure, noise for example, can be given to a Gaussian
    (`gaussian`), which keeps the density good in many dimensions and `transform` short.

    Parameters
    ----------
    covariance : {"full", "diag", "spherical", "low_rank", "local"}, default="full"
        The form of Sigma: any, diagonal, a number, or `rank` directions and a number for all
        others. "local": one covariance per row, smoothed towards that of "full"; its
        `transform` is still that of "full", as one map cannot serve them all.
    rank : int, default=None
        The number of directions of "low_rank".
    gaussian : bool or "search", default=False
        Whether directions may become Gaussian: in every iteration those in which a row's
        neighbours vary no less than all rows do. "search" tries other numbers of them, too, which
        EM alone does not find. For ``covariance="full"``.
    nu : float, pair of floats or "auto", default=0.0
        Added to the variances of the kernel and of the Gaussian part, in units of the squared
        features; a pair: to the ones and to the others. In many dimensions it decides how
        well new rows are foretold. "auto": chosen on held-out rows; the fit is then made on all.
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
        each sweep, of means on the way.
    n_iter_ : int
        Number of iterations.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    Notes
    -----
    With ``nu=0`` the result goes along with any linear change of the features. Then every
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

    def __init__(
        self,
        *,
        covariance: str = "full",
        rank: int | None = None,
        gaussian: Any = False,
        nu: Any = 0.0,
        smoothing: float = 1.0,
        batch_size: int | None = None,
        n_neighbors: int | None = None,
        discount: float = 0.6,
        validation_fraction: float = 0.2,
        max_iter: int = 200,
        tol: float = 1e-5,
        verbose: int = 0,
        n_jobs: int | None = None,
        random_state: Any = None,
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
            rng = check_random_state(self.random_state)
            penalty = self._choose_penalty(X, rng)
            problem = Problem(X, self._shape, penalty, self.n_jobs, self._label)
            outcome = self._learn(problem, rng)
            model = outcome.model
            self._set_model(model, problem.mean, problem.rows(model))
            if self.covariance == "local" and not outcome.interrupted:
                outcome = self._learn_each(problem, outcome)
            self._set_outcome(problem, outcome, rng)
            local = model.covariance - penalty.local * np.eye(X.shape[1])
            size = self.n_neighbors or NEIGHBOURS
            seen, _ = streaming_rows.first_seen(X, size, rng, (problem.mean, problem.cov))
            self._seen = tuple(seen._replace(local=local))
        self._report(outcome)
        return self

    @available_if(learns_online)
    def partial_fit(self, X: Any, y: Any = None) -> LocalComponentAnalysis:
        """Go on learning with new rows, in memory that does not grow.

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
            size = self.n_neighbors or NEIGHBOURS
            if first:
                moments = em.mean_and_covariance(X, self.n_jobs)
                rng = check_random_state(self.random_state)
                seen, places = streaming_rows.first_seen(X, size, rng, moments)
            else:
                before = self._remembered()
                X = _validate.in_precision_of(X, before.sample, "X")
                rng = streaming_rows.generator(self.random_state, before.n)
                seen, places = streaming_rows.joined(before, X, size, rng, self.n_jobs)
            problem = Problem(
                X, self._shape, self._given_penalty(), self.n_jobs, moments=(seen.mean, seen.cov)
            )
            batches = Batches(self.batch_size or ONLINE_BATCH, size, self.discount)
            # The first kernel is as wide as the data: no direction is any more Gaussian than local.
            start = problem.start() if first else problem.model(seen.local)
            model, local, value = streaming_rows.learnt(problem, start, seen, places, batches)
            self._set_model(model, seen.mean, problem.rows(model, seen.sample))
            self._seen = tuple(seen._replace(local=local))
            step = Step(model.q, value, problem.objective(model, value), 0.0)
            self.nu_, self.history_ = np.array(problem.penalty), em.history([step])
            self.log_likelihood_, self.n_iter_ = value, 1
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
        return whitened(X, self.mean_, self.components_, self.n_jobs)

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

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
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
        drawn = self._draw(n_samples, check_random_state(random_state))
        return drawn.astype(self._rows.dtype, copy=False)

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
