"""Mean shift: clusters are the basins of attraction of a density's modes, their centres."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric._typing import BaseEstimator, ClusterMixin, Matrix, Vector
from fastmetric.learn import kernel_table
from fastmetric.learn.kernel_sums.bandwidths import Metric, gradient_bandwidth, metric_of
from fastmetric.learn.kernel_sums.log_sums import FEW, KernelSums
from fastmetric.learn.modes.mode_search import Modes, SearchSettings, bins, find_modes, nearest
from fastmetric.learn.optim.outcome import warn_not_converged


class MeanShift(ClusterMixin, BaseEstimator):
    """Clusters around the modes of a Gaussian kernel density; the parameters of scikit-learn's.

    Every row moves to a mode of the density, and rows that reach the same mode are a cluster.
    The metric is that of the bandwidth: a covariance that was learnt, for example by
    LocalComponentAnalysis, is given as a matrix.

    Parameters
    ----------
    bandwidth : float or array-like, default=None
        A number, or one per feature: the standard deviation of the kernel. A matrix (n_features,
        n_features): its covariance. None: by the normal reference rule for the gradient of a
        density, one number per feature, see Notes.
    seeds : array-like of shape (n_seeds, n_features), default=None
        The starts. None: every row, or see `bin_seeding`.
    bin_seeding : bool, default=False
        Start from the middles of cells, one bandwidth wide, that hold rows. Ignored if seeds are
        given.
    min_bin_freq : int, default=1
        The least number of rows in such a cell.
    cluster_all : bool, default=True
        False: rows farther than one bandwidth from the centre of their cluster get the label -1.
    n_jobs : int or None, default=None
        Number of threads; None: all cores (one inside a worker process), -1: all cores.
    max_iter : int, default=300
        Steps of a trajectory at most.
    rtol : float, default=1e-3
        Relative accuracy of the sums on the way; 0: exact. The last steps are exact in any case.
    tol : float, default=1e-6
        A mode is where bandwidth times gradient of the log density is at most this; never below
        the rounding of the coordinates.
    verbose : int, default=0
        1: progress bars in a terminal.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The modes, by decreasing density.
    labels_ : ndarray of shape (n_samples,)
        The cluster of each row.
    n_iter_ : int
        Steps of the longest trajectory.
    log_densities_ : ndarray of shape (n_clusters,)
        The log densities at the centres.
    log_density_bounds_ : ndarray of shape (n_clusters, 2)
        Certified bounds of the true ones, of rows and centres as they are after the bandwidth's
        map, which rounds them; a number as bandwidth has none.
    gradient_norms_ : ndarray of shape (n_clusters,)
        Bandwidth times length of the gradient of the log density at the centres, by exact sums.
    bandwidth_ : float or ndarray
        The bandwidth in use.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    See Also
    --------
    KernelDensity : The density whose modes are the centres.
    LocalComponentAnalysis : Learns a covariance to take as the bandwidth.
    sklearn.cluster.MeanShift : The same by a flat kernel.

    Notes
    -----
    Exact: the centres are points of zero gradient to within `tol`, by sums over all rows, and not
    saddles, unless `fit` warns (in more than 8 dimensions, or along directions hardly curved, a
    saddle may go unnoticed). No step decreases the density, to within `rtol`. Approximate: the
    cluster of a row near the boundary of two basins. Steps are lengthened, by a quarter of a
    bandwidth at most, where that increases the density. A trajectory that enters a cell, 0.05
    bandwidths wide, that a trajectory of higher density has visited is merged with that one, and
    so are rows that begin in one cell; in `predict`, too, among the rows of one call.

    With `seeds` or `bin_seeding` the other rows, and those of `predict`, go to the nearest centre;
    without, to the centre nearest to their mode.

    The default bandwidth is the deviation of each feature times (4 / (d + 4))^(1 / (d + 6))
    n^(-1 / (d + 6)), best for the gradient if the data were normal; 1 for constant features.
    Many, small or distant clusters need a smaller bandwidth.

    Examples
    --------
    >>> import numpy as np
    >>> from fastmetric import MeanShift
    >>> X = np.array([[1.0, 1.0], [1.2, 0.9], [0.9, 1.1], [8.0, 8.0], [8.1, 7.9]])
    >>> clusters = MeanShift(bandwidth=1.0).fit(X)
    >>> clusters.labels_
    array([0, 0, 0, 1, 1])
    >>> clusters.cluster_centers_.round(2)
    array([[1.03, 1.  ],
           [8.05, 7.95]])
    >>> clusters.predict([[7.0, 9.0]])
    array([1])
    """

    def __init__(
        self,
        *,
        bandwidth: float | Vector | Matrix | None = None,
        seeds: Matrix | None = None,
        bin_seeding: bool = False,
        min_bin_freq: int = 1,
        cluster_all: bool = True,
        n_jobs: int | None = None,
        max_iter: int = 300,
        rtol: float = 1e-3,
        tol: float = 1e-6,
        verbose: int = 0,
    ) -> None:
        self.bandwidth = bandwidth
        self.seeds = seeds
        self.bin_seeding = bin_seeding
        self.min_bin_freq = min_bin_freq
        self.cluster_all = cluster_all
        self.n_jobs = n_jobs
        self.max_iter = max_iter
        self.rtol = rtol
        self.tol = tol
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> MeanShift:
        """Find the modes, and the cluster of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data.
        y : None
            Ignored.

        Returns
        -------
        self : MeanShift
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            self._check_parameters()
            # A copy: the estimator must not change with the caller's array.
            X = self._X = _validate.unlabelled_data(self, X, copy=True)
            seeds = self._checked_seeds()
            self.bandwidth_ = self._choose_bandwidth(X)
            metric, sums = self._sums = self._prepare()
            starts = self._starts(seeds, metric, sums)
            self._by_climbing = starts is None
            modes = find_modes(sums, sums.X if starts is None else starts, self._how())
            self._take(modes, metric, sums)
            near = modes.of_starts if starts is None else self._nearest(sums.X)
            self.labels_ = self._labels(sums.X, near, sums.bandwidth)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the cluster of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Numbers of the clusters.
        """
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        with engine.one_thread_blas():
            metric, sums = self._sums = getattr(self, "_sums", None) or self._prepare()
            rows = metric.points(_validate.in_precision_of(X, self._X), self.n_jobs)
            rows = np.ascontiguousarray(_validate.squarable(rows, "X"))
            if self._by_climbing:
                modes = find_modes(sums, rows, self._how())
                near = self._nearest(modes.points)[modes.of_starts]
            else:
                near = self._nearest(rows)
            return self._labels(rows, near, sums.bandwidth)

    def __getstate__(self) -> dict:
        # The sums and their tree are made again from the arrays.
        return {name: value for name, value in super().__getstate__().items() if name != "_sums"}

    def _check_parameters(self) -> None:
        """Raise on a parameter out of range; bandwidth and seeds are looked at beside the data."""
        _validate.flag("bin_seeding", self.bin_seeding)
        _validate.flag("cluster_all", self.cluster_all)
        _validate.integer("min_bin_freq", self.min_bin_freq, 1)
        _validate.integer("max_iter", self.max_iter, 1)
        _validate.tolerances(self.rtol, 0.0)
        _validate.number("tol", self.tol)
        _validate.verbosity(self.verbose)
        _validate.jobs(self.n_jobs)

    def _choose_bandwidth(self, X: np.ndarray) -> float | np.ndarray:
        """Return a copy of the bandwidth that was given, or that of the rule."""
        if self.bandwidth is None:
            return gradient_bandwidth(X, self.n_jobs)
        return _validate.bandwidth(self.bandwidth, X)

    def _prepare(self) -> tuple[Metric, KernelSums]:
        """Return the metric of the bandwidth, and the sums over the rows in it."""
        metric = metric_of(self.bandwidth_, self._X, self.n_jobs)
        points = _validate.squarable(metric.points(self._X, self.n_jobs), "X")
        return metric, KernelSums(points, bandwidth=metric, n_jobs=self.n_jobs)

    def _checked_seeds(self) -> np.ndarray | None:
        """Return the seeds (m, d) in the precision of the rows, or None."""
        if self.seeds is None:
            return None
        seeds = _validate.float_array(self.seeds, "seeds")
        return _validate.in_precision_of(seeds, self._X, "seeds")

    def _starts(
        self, seeds: np.ndarray | None, metric: Metric, sums: KernelSums
    ) -> np.ndarray | None:
        """Return the starts (m, d), in the metric; None: the rows."""
        if seeds is not None:
            return _validate.squarable(metric.points(seeds, self.n_jobs), "seeds")
        if not self.bin_seeding:
            return None
        starts = bins(sums.X, sums.bandwidth, self.min_bin_freq)
        if not len(starts):
            raise ValueError(
                f"min_bin_freq={self.min_bin_freq}: no cell one bandwidth wide holds that many "
                "rows. Give less, or a larger bandwidth."
            )
        return starts

    def _how(self) -> SearchSettings:
        """Return the settings of the search."""
        label = "mean shift" if self.verbose else None
        return SearchSettings(float(self.rtol), float(self.tol), int(self.max_iter), label)

    def _take(self, modes: Modes, metric: Metric, sums: KernelSums) -> None:
        """Set the attributes of the modes; warn if some have not converged."""
        n, d = self._X.shape
        parts = math.log(n), kernel_table.KERNELS["gaussian"].log_volume(d), metric.log_scale
        # Few centres: no tree is built for them alone.
        method = "exact" if len(modes.points) <= FEW else "auto"
        volume, logs = sum(parts), sums.log_sums(modes.points, method=method)
        # The volume is rounded, too: d terms of log_scale, which may cancel, and four sums.
        size = np.abs(logs.estimate) + sum(map(abs, parts))
        if metric.map is not None:
            widths = metric.map if metric.map.ndim == 1 else np.diag(metric.map)
            size += np.abs(np.log(widths)).sum()
        rounding = (d + 4) * np.finfo(float).eps * size
        self._modes, self.n_iter_ = modes.points, modes.n_iter
        self.cluster_centers_ = metric.rows(modes.points)
        self.gradient_norms_ = modes.gradients
        self.log_densities_ = logs.estimate - volume
        bounds = logs.lower - volume - rounding, logs.upper - volume + rounding
        self.log_density_bounds_ = np.stack(bounds, axis=1)
        if modes.n_left:
            warn_not_converged(
                f"{modes.n_left} of {len(modes.points)} centres are not modes yet after max_iter="
                f"{self.max_iter} steps; the largest of gradient_norms_ is "
                f"{modes.gradients.max():.1e}. Raise max_iter, tol or the bandwidth.",
                stacklevel=3,
            )

    def _nearest(self, points: np.ndarray) -> np.ndarray:
        """Return the nearest mode (m,) of points (m, d) in the metric."""
        return nearest(self._modes, points, self.n_jobs)

    def _labels(self, points: np.ndarray, near: np.ndarray, h: float) -> np.ndarray:
        """Return the labels of points (m, d) whose modes are `near` (m,)."""
        if self.cluster_all:
            return near
        gaps = points - self._modes[near]
        return np.where(np.einsum("ij,ij->i", gaps, gaps) <= h * h, near, -1)
