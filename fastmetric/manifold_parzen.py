"""Manifold Parzen Windows: a density whose kernels lie along the data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric._typing import BaseEstimator, DensityMixin, Seed
from fastmetric.learn import kernel_table
from fastmetric.learn.manifold.covariance_grid import ShapeGrid
from fastmetric.learn.manifold.mixture_density import log_densities
from fastmetric.learn.manifold.neighbourhood_pca import (
    LocalGaussians,
    Neighbourhood,
    neighbourhood_pca,
)

_NEIGHBORHOODS = ("hard", "soft")


class ManifoldParzen(DensityMixin, BaseEstimator):
    """Manifold Parzen Windows: kernel density estimation with kernels that lie along the data.

    The density is the mean of Gaussians around the training rows, as in kernel density
    estimation. But each has a shape of its own: it extends along the `n_components` leading
    directions of its row's neighbourhood, as far as the neighbours do, and is flat across them.
    Where rows lie near a surface of few dimensions, so does the mass of the density.

    Parameters
    ----------
    n_components : int
        q, the directions along which a kernel extends; at most `n_neighbors` and the number of
        features. 0 is kernel density estimation with the bandwidth sqrt(noise_variance).
    n_neighbors : int
        k, the rows that make up a neighbourhood. All other rows, if there are fewer.
    noise_variance : float
        Variance of the Gaussians in all directions, added to that of the neighbourhood.
    neighborhood : {"hard", "soft"}, default="hard"
        Whether all neighbours count the same, or less with their distance: by a Gaussian.
    bandwidth : float or None, default=None
        Standard deviation of the Gaussian weights in a soft neighbourhood. None: half the
        distance of the farthest neighbour, row by row.
    rtol : float, default=0.0
        Each density is within rtol times the true one, up to rounding. 0 <= rtol < 1.
    verbose : int, default=0
        1: progress bars in a terminal.
    n_jobs : int or None, default=None
        Number of threads; None: all cores (one inside a worker process), -1: all cores.

    Attributes
    ----------
    directions_ : ndarray of shape (n_samples, n_components, n_features)
        The directions of each kernel, orthonormal. Fewer than `n_components` if there are not
        as many other rows.
    variances_ : ndarray of shape (n_samples, n_components)
        The variance of the neighbours along each, decreasing, without the noise.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    See Also
    --------
    KernelDensity : A density of one kernel for all rows.
    DensityClassifier : Bayes' rule over one density per class.
    sklearn.mixture.GaussianMixture : A density of few Gaussians.

    Notes
    -----
    P. Vincent, Y. Bengio: Manifold Parzen Windows, NIPS 2002. Row i has the covariance
    V diag(s²/k) V' + noise_variance I, with s and V the leading singular values and vectors of the
    differences to its k neighbours.

    In up to 12 features, where few kernels contribute to a density, a k-d tree finds them, and the
    others are left out: at most `rtol` of the density; with 0, an amount of the order of rounding.
    In many features kernels that are found to be negligible are left out, too, together at most
    `rtol` or 1e-12 of the density (float32: 1e-7). Log densities are then computed by matrix
    products where their rounding changes them by less than about 1e-9 (float32: 0.01), and where
    the noise is too small for that, by differences, which is slower and loses no digits.

    Examples
    --------
    >>> import numpy as np
    >>> from fastmetric import ManifoldParzen
    >>> t = np.random.default_rng(0).uniform(0, 6, 300)
    >>> X = np.column_stack([np.cos(t), np.sin(t)])  # most of a circle
    >>> density = ManifoldParzen(1, n_neighbors=10, noise_variance=1e-4).fit(X)
    >>> density.score_samples([[0.0, 1.0], [0.0, 0.9]]).round(1)  # on it, and inside
    array([  1.1, -50.2])
    """

    def __init__(
        self,
        n_components: int,
        *,
        n_neighbors: int,
        noise_variance: float,
        neighborhood: Literal["hard", "soft"] = "hard",
        bandwidth: float | None = None,
        rtol: float = 0.0,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.noise_variance = noise_variance
        self.neighborhood = neighborhood
        self.bandwidth = bandwidth
        self.rtol = rtol
        self.verbose = verbose
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> ManifoldParzen:
        """Find the directions of every row's neighbourhood.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data, at least two rows.
        y : None
            Ignored.

        Returns
        -------
        self : ManifoldParzen
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            neighborhood = self._check_parameters()
            # A copy: the estimator must not change with the caller's array.
            X = _validate.unlabelled_data(self, X, copy=True, least_rows=2)
            _validate.squarable(X, "X")
            q = int(self.n_components)
            _check_components(q, self.n_neighbors, X.shape[1])
            _check_storage(min(q, len(X) - 1), X)
            label = "neighbourhoods" if self.verbose else None
            found = neighbourhood_pca(X, q, neighborhood, self.n_jobs, label)
            self.directions_, self.variances_ = found.directions, found.variances
            self._X, self._center, self._offsets = found.X, found.center, found.offsets
            self._n_components, self._noise_variance = q, float(self.noise_variance)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density at each row.

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
        return self._log_densities(X, [self._n_components], [self._noise_variance])[0, 0]

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

    def score_samples_grid(
        self, X: Any, *, n_components: Any = None, noise_variance: Any = None
    ) -> np.ndarray:
        """Return the log densities for many numbers of components and variances of the noise.

        As if the estimator had been fitted with each of them, from the directions it has: one
        fit with the largest `n_components`, and one pass over the data, serve the whole grid.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        n_components : array-like of int of shape (Q,), default=None
            Numbers from 0 to that of the fit. None: that of the fit alone.
        noise_variance : array-like of shape (S,), default=None
            Numbers above 0. None: that of the fit alone.

        Returns
        -------
        log_density : ndarray of shape (Q, S, n_samples)
            float32 if `X` is, else float64.

        Examples
        --------
        >>> import numpy as np
        >>> from fastmetric import ManifoldParzen
        >>> X = np.random.default_rng(0).standard_normal((200, 3))
        >>> model = ManifoldParzen(2, n_neighbors=8, noise_variance=0.1).fit(X[:150])
        >>> logs = model.score_samples_grid(
        ...     X[150:], n_components=[0, 1, 2], noise_variance=[0.05, 0.1, 0.2]
        ... )
        >>> logs.mean(axis=2).shape  # the score of each
        (3, 3)
        """
        check_is_fitted(self)
        counts, noises = [self._n_components], [self._noise_variance]
        if n_components is not None:
            counts = _listed("n_components", n_components)
        if noise_variance is not None:
            noises = _listed("noise_variance", noise_variance)
        for count in counts:
            _validate.integer("n_components", count, 0, self._n_components)
        noises = [_validate.positive("noise_variance", noise) for noise in noises]
        return self._log_densities(X, counts, noises)

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
        rows = kernel_table.draw_rows(len(self._X), None, rng.random_sample(n_samples))
        steps = np.sqrt(self._noise_variance) * rng.standard_normal((n_samples, self._X.shape[1]))
        along = rng.standard_normal((n_samples, self.variances_.shape[1]))
        along *= np.sqrt(self.variances_[rows])
        for part in np.array_split(np.arange(n_samples), 1 + n_samples // 1000):
            steps[part] += np.einsum("ij,ijk->ik", along[part], self.directions_[rows[part]])
        return (self._X[rows] + steps).astype(self._X.dtype, copy=False)

    def _log_densities(self, X: Any, counts: list[Any], noises: list[Any]) -> np.ndarray:
        """Return the log densities (Q, S, m) at the rows of X, in its precision."""
        rtol, _ = _validate.tolerances(self.rtol, 0.0)
        X = _validate.query_data(self, X)
        query = _validate.squarable(_validate.in_precision_of(X, self._X), "X")
        found = LocalGaussians(
            self._X, self._center, self.directions_, self.variances_, self._offsets
        )
        # Directions that do not exist have no variance: the density without them is the same.
        present = np.minimum(counts, self.variances_.shape[1])
        distinct, where = np.unique(present, return_inverse=True)
        grid = ShapeGrid(distinct.astype(np.intp), np.array(noises, np.float64))
        label = "density" if self.verbose else None
        with engine.one_thread_blas():
            logs = log_densities(found, query, grid, rtol, self.n_jobs, label)
        return logs[where].astype(X.dtype, copy=False)

    def _check_parameters(self) -> Neighbourhood:
        """Return the neighbourhood; raise on a parameter out of range, whatever the data."""
        _validate.integer("n_components", self.n_components, 0)
        n_neighbors = _validate.integer("n_neighbors", self.n_neighbors, 1)
        _validate.positive("noise_variance", self.noise_variance)
        soft = _validate.choice("neighborhood", self.neighborhood, _NEIGHBORHOODS) == "soft"
        _validate.tolerances(self.rtol, 0.0)
        _validate.verbosity(self.verbose)
        _validate.jobs(self.n_jobs)
        if self.bandwidth is None:
            return Neighbourhood(n_neighbors, soft)
        if not soft:
            raise ValueError(
                f"bandwidth={_validate.shown(self.bandwidth)} is for neighborhood='soft'; got "
                f"{self.neighborhood!r}. Leave bandwidth None."
            )
        return Neighbourhood(n_neighbors, soft, _validate.positive("bandwidth", self.bandwidth))


def _check_components(q: int, n_neighbors: int, n_features: int) -> None:
    """Raise if there cannot be so many directions."""
    if q > min(n_neighbors, n_features):
        raise ValueError(
            f"n_components={q} is too many: n_neighbors={n_neighbors} rows with "
            f"n_features={n_features} have at most {min(n_neighbors, n_features)} directions. "
            "Give fewer components, or more neighbours."
        )


def _check_storage(q: int, X: np.ndarray) -> None:
    """Raise if the directions will not fit into memory, with an estimate."""
    n, n_features = X.shape
    needed, available = n * q * (n_features + 2) * X.itemsize, _available_memory()
    if available is not None and needed > available:
        raise MemoryError(
            f"The directions of {n:,} rows take n_samples * n_components * n_features = "
            f"{n:,} * {q} * {n_features} numbers of {X.itemsize} bytes, {needed / 1e9:.1f} GB; "
            f"{available / 1e9:.1f} GB are available. Take fewer components or fewer rows"
            f"{', or give float32' * (X.itemsize == 8)}."
        )


def _available_memory() -> int | None:
    """Return the bytes that can still be allocated, None if the system does not report them."""
    try:
        text = Path("/proc/meminfo").read_text()
        return 1024 * int(text.split("MemAvailable:")[1].split()[0])
    except (OSError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _listed(name: str, values: Any) -> list[Any]:
    """Return an array-like (L,) or one value as a list, L >= 1."""
    if isinstance(values, np.ndarray):
        values = np.atleast_1d(values)
    elif isinstance(values, str | bytes) or not (
        isinstance(values, Sequence) or hasattr(values, "to_numpy")
    ):
        return [values]
    if not len(values):
        raise ValueError(
            f"{name} should be a list of values, at least one, or None for that of the fit; got "
            f"{_validate.shown(values)}."
        )
    return list(values)
