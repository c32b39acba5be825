"""Kernel density estimation: the sums of kernels as a function, and the estimator."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric._typing import (
    AnyKernel,
    BaseEstimator,
    DensityMixin,
    Matrix,
    Seed,
    SumMethod,
    Vector,
)
from fastmetric.core.lattice.stencils import AXES
from fastmetric.learn import kernel_table
from fastmetric.learn.kernel_sums.bandwidths import Metric, loo_bandwidth, metric_of
from fastmetric.learn.kernel_sums.log_sums import METHODS, KernelSums
from fastmetric.learn.kernel_table import KERNELS
from fastmetric.learn.tree_building import SUMS_LEAF_SIZE

_RULES = ("scott", "silverman", "loo")
_METRICS = ("euclidean", "l2")  # two names of one metric


@engine.one_thread_blas()
def kernel_sums(
    X: Any,
    query: Any = None,
    *,
    kernel: AnyKernel = "gaussian",
    bandwidth: float | Vector | Matrix = 1.0,
    weights: Any = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    method: SumMethod = "auto",
    n_jobs: int | None = None,
    return_bounds: bool = False,
) -> Any:
    """Return the logs of the sums of kernels at the queries, not normalised.

    The sum at q is sum_j w_j k(r_j), with r_j = |q - x_j| / h. The kernels are "gaussian"
    exp(-r²/2), "exponential" exp(-r) and, zero from r = 1 on, "biweight" (1 - r²)²,
    "epanechnikov" 1 - r², "linear" 1 - r, "cosine" cos(πr/2) and "tophat" 1.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The points. float32 is computed in float32, with sums in float64; all else in float64.
    query : array-like of shape (n_queries, n_features), default=None
        Where the sums are taken, in the precision of `X`. None: at the points, each left out of
        its own sum.
    kernel : str, default="gaussian"
        One of the seven kernels.
    bandwidth : float or array-like, default=1.0
        h; or one h per feature, shape (n_features,); or a positive definite covariance, shape
        (n_features, n_features): r² is then the Mahalanobis distance.
    weights : array-like of shape (n_samples,), default=None
        The w_j >= 0, not all zero. None: all 1.
    rtol, atol : float, default=0.0
        Each sum is within rtol times the true sum plus `atol` of it. 0 <= rtol < 1.
    method : {"auto", "exact", "tree", "grid"}, default="auto"
        "exact" visits all pairs, "tree" replaces far groups of points within the tolerance.
        "grid" spreads the points of a Gaussian kernel onto a lattice, in at most three
        dimensions, for which `rtol` or `atol` is needed; sums that it cannot certify, far from all
        points, are those of the other methods. "auto" takes the fastest by counting their work.
    n_jobs : int or None, default=None
        Number of threads; None: all cores (one inside a worker process), -1: all cores.
    return_bounds : bool, default=False
        Whether to return certified bounds, too.

    Returns
    -------
    log_sums : ndarray of shape (n_queries,)
        The logs; -inf where no kernel reaches. float32 if `X` is.
    log_lower, log_upper : ndarray of shape (n_queries,)
        Only with `return_bounds`: the true log sums of the numbers given lie between them.

    See Also
    --------
    KernelDensity : The normalised density, as an estimator.
    KDTree : Nearest neighbours, and neighbours within a radius.

    Examples
    --------
    >>> from fastmetric import kernel_sums
    >>> X = [[0.0], [1.0], [3.0]]
    >>> kernel_sums(X, [[0.0]], kernel="linear", bandwidth=2.0).round(6)  # log(1 + 0.5 + 0)
    array([0.405465])
    >>> kernel_sums(X, kernel="epanechnikov", bandwidth=1.5).round(6)  # each point left out
    array([-0.587787, -0.587787,      -inf])
    """
    _validate.choice("kernel", kernel, kernel_table.NAMES)
    rtol, atol = _checked_accuracy(rtol, atol, method, kernel)
    n_jobs = _validate.jobs(n_jobs)
    _validate.flag("return_bounds", return_bounds)
    X = _validate.float_array(X, "X")
    _check_dimensions(method, X)
    weights = None if weights is None else _validate.sample_weights("weights", weights, X)
    if query is not None:
        query = _validate.in_precision_of(_validate.float_array(query, "query"), X)
    metric = metric_of(_validate.bandwidth(bandwidth, X), X, n_jobs)
    if query is not None:
        query = _validate.squarable(metric.points(query, n_jobs), "query")
    points = _validate.squarable(metric.points(X, n_jobs), "X")
    sums = KernelSums(points, weights, kernel=kernel, bandwidth=metric, n_jobs=n_jobs)
    logs = sums.log_sums(query, rtol=rtol, atol=atol, method=method, bounds=return_bounds)
    rounding = (None, -np.inf, np.inf)
    answer = tuple(_narrowed(*part, X.dtype) for part in zip(logs, rounding, strict=True))
    return answer if return_bounds else answer[0]


class KernelDensity(DensityMixin, BaseEstimator):
    """Kernel density estimation; a drop-in replacement for scikit-learn's.

    The density at q is the mean of kernels around the training rows, each of volume 1.

    Parameters
    ----------
    bandwidth : float, array-like or {"scott", "silverman", "loo"}, default=1.0
        A number, or one per feature: the kernel's width. A matrix (n_features, n_features): its
        square, a covariance. "scott", "silverman": the number that scikit-learn computes from
        the shape of `X`. "loo": the number of largest leave-one-out likelihood, see Notes.
    algorithm : {"auto", "kd_tree", "ball_tree"}, default="auto"
        Accepted for scikit-learn's sake, without effect.
    kernel : str, default="gaussian"
        "gaussian", "biweight", "tophat", "epanechnikov", "exponential", "linear" or "cosine".
    metric : {"euclidean", "l2"}, default="euclidean"
        Two names of the only metric; for another, give a matrix as `bandwidth`.
    atol, rtol : float, default=0.0
        Each density is within rtol times the true one plus `atol` of it. 0 <= rtol < 1.
    breadth_first : bool, default=True
        Accepted for scikit-learn's sake, without effect.
    leaf_size : int, default=40
        Points in a leaf of the tree, a matter of speed; below 160 it is 160.
    metric_params : dict, default=None
        None or empty: the metric has no parameters.
    method : {"auto", "exact", "tree", "grid"}, default="auto"
        How the sums are computed, see :func:`kernel_sums`.
    verbose : int, default=0
        1: progress bars in a terminal.
    n_jobs : int or None, default=None
        Number of threads; None: all cores (one inside a worker process), -1: all cores.

    Attributes
    ----------
    bandwidth_ : float or ndarray
        The bandwidth in use, in the shape in which it was given.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    See Also
    --------
    kernel_sums : Sums of kernels that are not normalised, with bounds.
    ManifoldParzen : A density whose kernels lie along the data.
    LocalComponentAnalysis : Learns the covariance of the kernel.
    DensityClassifier : Bayes' rule over one density per class.
    sklearn.neighbors.KernelDensity : The same density, by one thread.

    Notes
    -----
    "loo" maximises sum_i w_i log f_i(x_i), with f_i the estimate from all other rows, over one
    number h for all features, which are used as they are. The log of h is looked for on a grid,
    Scott's value times the largest range of a feature times powers of 2, and then near the best.
    If every row has a duplicate, the likelihood has no maximum: h is at least 1e-6 of the
    largest range, and `fit` warns where that decides.

    Examples
    --------
    >>> import numpy as np
    >>> from fastmetric import KernelDensity
    >>> X = np.random.default_rng(0).standard_normal((200, 1))
    >>> density = KernelDensity(bandwidth="loo").fit(X)
    >>> np.exp(density.score_samples([[0.0], [2.0]])).round(2)
    array([0.37, 0.05])
    >>> density.sample(2, random_state=0).shape
    (2, 1)
    """

    def __init__(
        self,
        *,
        bandwidth: float | Literal["scott", "silverman", "loo"] | Vector | Matrix = 1.0,
        algorithm: Literal["auto", "kd_tree", "ball_tree"] = "auto",
        kernel: AnyKernel = "gaussian",
        metric: Literal["euclidean", "l2"] = "euclidean",
        atol: float = 0.0,
        rtol: float = 0.0,
        breadth_first: bool = True,
        leaf_size: int = 40,
        metric_params: dict | None = None,
        method: SumMethod = "auto",
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.algorithm = algorithm
        self.kernel = kernel
        self.metric = metric
        self.atol = atol
        self.rtol = rtol
        self.breadth_first = breadth_first
        self.leaf_size = leaf_size
        self.metric_params = metric_params
        self.method = method
        self.verbose = verbose
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KernelDensity:
        """Take the rows, and choose the bandwidth.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0 of the rows, not all zero; None: all equal.

        Returns
        -------
        self : KernelDensity
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            # A copy: the estimator must not change with the caller's array.
            X = _validate.unlabelled_data(self, X, copy=True)
            _check_dimensions(self.method, X)
            if sample_weight is not None:
                sample_weight = _validate.sample_weights("sample_weight", sample_weight, X)
            self._X, self._weights, self._kernel = X, sample_weight, self.kernel
            self.bandwidth_ = self._choose_bandwidth()
            self._sums = self._prepare()
        return self

    @engine.one_thread_blas()
    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density at each row, with no training row left out.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            -inf where no kernel reaches. float32 if `X` is, else float64.
        """
        check_is_fitted(self)
        rtol, atol = _checked_accuracy(self.rtol, self.atol, self.method, self._kernel)
        X = _validate.query_data(self, X)
        _check_dimensions(self.method, X)
        metric, sums = self._sums = getattr(self, "_sums", None) or self._prepare()
        log_total = math.log(len(self._X) if self._weights is None else self._weights.sum())
        log_volume = log_total + KERNELS[self._kernel].log_volume(X.shape[1]) + metric.log_scale
        # 709: the largest exponent, for volumes beyond float64.
        atol = math.exp(min(math.log(atol) + log_volume, 709)) if atol else 0.0
        query = metric.points(_validate.in_precision_of(X, self._X), self.n_jobs)
        log_sums = sums.log_sums(
            _validate.squarable(query, "X"),
            rtol=rtol,
            atol=atol,
            method=self.method,
            bounds=False,
            label="density" if self.verbose else None,
        )
        return _narrowed(log_sums.estimate - log_volume, None, X.dtype)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the total log density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        y : None
            Ignored.

        Returns
        -------
        log_likelihood : float
            The sum of `score_samples`, not its mean.
        """
        return float(self.score_samples(X).sum(dtype=np.float64))

    @engine.one_thread_blas()
    def sample(self, n_samples: int = 1, random_state: Seed = None) -> np.ndarray:
        """Draw rows from the density, exactly, for every kernel.

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
        rows = kernel_table.draw_rows(len(self._X), self._weights, rng.random_sample(n_samples))
        steps = kernel_table.draw(KERNELS[self._kernel], n_samples, self._X.shape[1], rng)
        if np.ndim(self.bandwidth_) < 2:
            steps *= self.bandwidth_
        else:
            steps = steps @ np.linalg.cholesky(self.bandwidth_).T
        return (self._X[rows] + steps).astype(self._X.dtype, copy=False)

    def __getstate__(self) -> dict:
        # The sums and their tree are made again from the arrays.
        return {name: value for name, value in super().__getstate__().items() if name != "_sums"}

    def _check_parameters(self) -> None:
        """Raise on a parameter out of range; the bandwidth is looked at beside the data."""
        _validate.choice("algorithm", self.algorithm, ("auto", "kd_tree", "ball_tree"))
        _validate.choice("kernel", self.kernel, kernel_table.NAMES)
        if not (isinstance(self.metric, str) and self.metric in _METRICS):
            raise ValueError(
                f"metric={_validate.shown(self.metric)} is not known; distances are Euclidean. For "
                "a Mahalanobis metric give a matrix as bandwidth."
            )
        if self.metric_params is not None and not (
            isinstance(self.metric_params, dict) and len(self.metric_params) == 0
        ):
            raise ValueError(
                f"metric_params={_validate.shown(self.metric_params)} should be None or {{}}; "
                "Euclidean distances have no parameters. For a Mahalanobis metric give a matrix "
                "as bandwidth."
            )
        _checked_accuracy(self.rtol, self.atol, self.method, self.kernel)
        _validate.flag("breadth_first", self.breadth_first)
        _validate.integer("leaf_size", self.leaf_size, 1)
        _validate.verbosity(self.verbose)
        _validate.jobs(self.n_jobs)

    def _choose_bandwidth(self) -> float | np.ndarray:
        """Return the bandwidth: a copy of what was given, or the number of a rule."""
        n, d = self._X.shape
        if not isinstance(self.bandwidth, str):
            return _validate.bandwidth(self.bandwidth, self._X)
        _validate.choice("bandwidth", self.bandwidth, _RULES)
        if self.bandwidth == "loo":
            sums = self._kernel_sums(self._X, 1.0)
            return loo_bandwidth(self._X, self._weights, lambda h: self._loo_log_sums(sums, h))
        return float((n if self.bandwidth == "scott" else n * (d + 2) / 4) ** (-1 / (d + 4)))

    def _loo_log_sums(self, sums: KernelSums, h: float) -> np.ndarray:
        """Return the log sums (n,) at the training rows, each left out of its own."""
        label = "bandwidth" if self.verbose else None
        sums.set_bandwidth(h)
        return sums.log_sums(
            rtol=float(self.rtol), method=self.method, bounds=False, label=label
        ).estimate

    def _kernel_sums(self, points: np.ndarray, h: float) -> KernelSums:
        """Return the sums over `points`, with the weights and the kernel of the fit."""
        return KernelSums(
            _validate.squarable(points, "X"),
            self._weights,
            kernel=self._kernel,
            bandwidth=h,
            leaf_size=max(int(self.leaf_size), SUMS_LEAF_SIZE),
            n_jobs=self.n_jobs,
        )

    def _prepare(self) -> tuple[Metric, KernelSums]:
        """Return the metric of the bandwidth, and the sums over the points in it."""
        metric = metric_of(self.bandwidth_, self._X, self.n_jobs)
        return metric, self._kernel_sums(metric.points(self._X, self.n_jobs), metric.h)


def _narrowed(logs: np.ndarray, towards: float | None, dtype: np.dtype) -> np.ndarray:
    """Return float64 logs (m,) in `dtype`, rounded to the nearest, or towards an infinity."""
    with np.errstate(over="ignore"):
        narrow = logs.astype(dtype, copy=False)
    if towards is None:
        return narrow
    wrong = narrow > logs if towards < 0 else narrow < logs
    return np.where(wrong, np.nextafter(narrow, dtype.type(towards)), narrow)


def _checked_accuracy(rtol: Any, atol: Any, method: Any, kernel: str) -> tuple[float, float]:
    """Return rtol and atol; raise on one out of range, or on a method that cannot serve."""
    _validate.choice("method", method, METHODS)
    rtol, atol = _validate.tolerances(rtol, atol)
    if method == "grid":
        if kernel != "gaussian":
            raise ValueError(
                f"method='grid' sums Gaussians, but kernel={kernel!r}. Take kernel='gaussian', or "
                "method='auto'."
            )
        if rtol == 0 and atol == 0:
            raise ValueError(
                "method='grid' approximates, but rtol=0.0 and atol=0.0 ask for exact sums. Give a "
                "tolerance, for example rtol=1e-3, or take method='auto'."
            )
    return rtol, atol


def _check_dimensions(method: str, X: np.ndarray) -> None:
    """Raise where a lattice has too many dimensions for rows X (n, d)."""
    if method == "grid" and X.shape[1] > AXES:
        raise ValueError(
            f"method='grid' sums in at most {AXES} dimensions, but X has {X.shape[1]} features. "
            "Take method='auto'."
        )
