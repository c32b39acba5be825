"""Fits and measures what Le Roux & Bach compare: clusterings, densities, batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import SpectralClustering
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix

from bench.papers.local_component.data import CLUSTERS, Clusters, Parts, noisy
from bench.papers.local_component.rows import FIGURE_5, PUBLISHED_ROWS, Row
from bench.shared.setup import clock
from fastmetric import LocalComponentAnalysis
from fastmetric.learn.local_component.penalty_choice import gaussian_nu, range_of_nu
from fastmetric.learn.optim.scalar_search import search_unimodal
from fastmetric.learn.rows import ArrayRows

_CONTRASTS = ("logcosh", "exp", "cube")
_NEIGHBORS = 10  # of the graph that is cut: our choice, see data
_SEARCH = {"tol": 1e-2}  # of the fits that nu is chosen by


def local(**parameters: Any) -> LocalComponentAnalysis:
    """Return the estimator."""
    return LocalComponentAnalysis(**parameters)


def quietly(fit: Callable[[], Any]) -> Any:
    """Return fit(); that it may stop at its largest number of iterations is part of the plan."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit()


# Figure 1


def straightened(model: Any, X: np.ndarray, text: np.ndarray) -> tuple[np.ndarray, float]:
    """Return X after the model's map, turned to fit the text, and how much it is distorted.

    The distortion is the ratio of the singular values of the map from the text to there.
    """
    Z = model.fit(X).transform(X)
    centred = text - text.mean(axis=0)
    map_back, *_ = np.linalg.lstsq(centred, Z - Z.mean(axis=0), rcond=None)
    U, lengths, V = np.linalg.svd(map_back)
    return (Z - Z.mean(axis=0)) @ (U @ V).T / lengths.min(), float(lengths.max() / lengths.min())


# Figures 3 and 4


class Clustering(NamedTuple):
    """One clustering: accuracy in percent; of a fit, its iterations, directions, seconds."""

    accuracy: float
    iterations: int | None = None
    local: int | None = None
    seconds: float | None = None


def accuracy(y: np.ndarray, labels: np.ndarray) -> float:
    """Return the percentage of rows in the right cluster, clusters named as is best."""
    counts = confusion_matrix(y, labels)
    return 100 * counts[linear_sum_assignment(-counts)].sum() / len(y)


def spectral(Z: np.ndarray, y: np.ndarray, problem: Clusters) -> float:
    """Return the accuracy of spectral clustering of Z (n, d)."""
    cut = SpectralClustering(
        problem.k, affinity="nearest_neighbors", n_neighbors=_NEIGHBORS, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a graph in pieces is the answer here
        return accuracy(y, cut.fit_predict(Z))


def whitened(X: np.ndarray, y: np.ndarray, problem: Clusters) -> Clustering:
    """Score the rows as they are."""
    return Clustering(spectral(X, y, problem))


def fast_ica(X: np.ndarray, y: np.ndarray, problem: Clusters) -> Clustering:
    """Score the first two independent components, by the best contrast."""
    best = 0.0
    for contrast in _CONTRASTS:
        ica = FastICA(algorithm="deflation", fun=contrast, random_state=0)
        best = max(best, spectral(quietly(partial(ica.fit_transform, X))[:, :2], y, problem))
    return Clustering(best)


def by_local(**parameters: Any) -> Callable[[np.ndarray, np.ndarray, Clusters], Clustering]:
    """Return what scores the rows after LocalComponentAnalysis."""

    def score(X: np.ndarray, y: np.ndarray, problem: Clusters) -> Clustering:
        model = local(**parameters)
        seconds = clock(lambda: quietly(lambda: model.fit(X))).best
        Z = model.transform(X)
        return Clustering(spectral(Z, y, problem), model.n_iter_, model.n_local_, seconds)

    return score


METHODS = {
    "whitened": whitened,
    "FastICA": fast_ica,
    "Local Component Analysis": by_local(),
    "… with Gaussian part": by_local(gaussian=True),
    "… with search": by_local(gaussian="search"),
}


def clustering(data: str, noise: int, variant: str, score: Callable, runs: int) -> Row:
    """Return the row of one variant on a problem with so many dimensions of noise."""
    problem = CLUSTERS[data]
    found = [score(*noisy(problem, noise, seed), problem) for seed in range(runs)]
    values, iterations, directions, seconds = (
        [value for value in column if value is not None] for column in zip(*found, strict=True)
    )
    return Row(
        data,
        f"{noise} noise dimensions",
        variant,
        values,
        iterations=iterations,
        local=directions,
        seconds=seconds,
        key=noise,
    )


# Figure 5


class Gaussian:
    """A single Gaussian, its variances raised by nu."""

    def __init__(self, nu: float) -> None:
        self.nu = nu

    def fit(self, X: np.ndarray) -> Gaussian:
        """Take mean and covariance of X (n, D)."""
        X = X.astype(np.float64)
        self.mean = X.mean(axis=0)
        cov = np.cov(X.T, bias=True) + self.nu * np.eye(X.shape[1])
        self.root = cholesky(cov, lower=True)
        return self

    def score(self, X: np.ndarray) -> float:
        """Return the mean log density of X (n, D)."""
        Z = solve_triangular(self.root, (X - self.mean).T, lower=True)
        log_volume = np.log(np.diag(self.root)).sum() + X.shape[1] / 2 * np.log(2 * np.pi)
        return float(-0.5 * (Z**2).sum(axis=0).mean() - log_volume)


DENSITIES: dict[str, dict[str, Any]] = {
    "isotropic": {"covariance": "spherical"},
    "diagonal": {"covariance": "diag"},
    "full": {},
    "single Gaussian": {},
    "with Gaussian part": {"gaussian": True},
    "with search": {"gaussian": "search"},
}


def density(variant: str, splits: Sequence[Parts]) -> Row:
    """Return the test negative log-likelihoods of a model, nu chosen on the validation rows."""
    fits = [_density(variant, parts) for parts in splits]
    values, seconds, iterations, directions = zip(*fits, strict=True)
    n_train = len(splits[0].train)
    return Row(
        "USPS",
        f"{n_train} rows",
        variant,
        values,
        FIGURE_5[variant][0] if n_train == PUBLISHED_ROWS else None,
        iterations if variant != "single Gaussian" else (),
        directions if variant != "single Gaussian" else (),
        seconds,
    )


def _density(variant: str, parts: Parts) -> tuple[float, float, int, int]:
    """Return negative log-likelihood, seconds, iterations, local directions of one split."""
    total = gaussian_nu(ArrayRows(parts.train), ArrayRows(parts.validation))
    if variant == "single Gaussian":
        timing = clock(lambda: Gaussian(total).fit(parts.train))
        return -timing.result.score(parts.test), timing.best, 0, 0
    parameters = DENSITIES[variant]

    split = "gaussian" in parameters

    def fitted(nu: float, **more: Any) -> LocalComponentAnalysis:
        # The Gaussian part has the single Gaussian's penalty, as in the paper.
        pair = (nu, total) if split else nu
        return quietly(lambda: local(nu=pair, **more).fit(parts.train))

    def value(nu: float) -> float:
        plain = parameters | {"gaussian": split}  # a search for every nu would take long
        return fitted(nu, **plain, **_SEARCH).score(parts.validation)

    nu = search_unimodal(value, *range_of_nu(ArrayRows(parts.train)))
    timing = clock(lambda: fitted(nu, **parameters, tol=1e-4))
    model = timing.result
    return -model.score(parts.test), timing.best, model.n_iter_, model.n_local_


# Figure 6


class Setting(NamedTuple):
    """How a fit by batches is made."""

    discount: float
    batch: int
    neighbors: int

    def __str__(self) -> str:
        return f"γ = {self.discount}, B = {self.batch}, N = {self.neighbors}"


def losses(parts: Parts, nu: float, setting: Setting | None, seed: int) -> tuple[float, ...]:
    """Return training and test negative log-likelihood, sweeps, seconds; None: of batch EM."""
    model = local(nu=nu, tol=1e-3, random_state=seed)
    if setting is not None:
        model.set_params(discount=setting.discount, batch_size=setting.batch)
        if setting.neighbors < len(parts.train):
            model.set_params(n_neighbors=setting.neighbors)
    seconds = clock(lambda: quietly(lambda: model.fit(parts.train))).best
    return -model.log_likelihood_, -model.score(parts.test), model.n_iter_, seconds


def nu_of(parts: Parts) -> float:
    """Return the nu of a full kernel with the highest validation likelihood, for all settings."""

    def value(nu: float) -> float:
        return quietly(lambda: local(nu=nu, **_SEARCH).fit(parts.train)).score(parts.validation)

    return search_unimodal(value, *range_of_nu(ArrayRows(parts.train)))


def pca() -> PCA:
    """Return PCA that whitens."""
    return PCA(whiten=True)
