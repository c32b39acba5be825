"""Compiling everything beforehand, for images, clusters and talks."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import joblib
import numpy as np
from tqdm import tqdm

from fastmetric import _validate, engine
from fastmetric.kd_tree import KDTree
from fastmetric.kernel_density import kernel_sums
from fastmetric.latent_coincidence import LatentCoincidenceAnalysis
from fastmetric.learn.local_component.neighbour_list_e_step import NeighbourList
from fastmetric.learn.local_component.product_e_step import Neighbours, Products
from fastmetric.local_component import LocalComponentAnalysis
from fastmetric.manifold_parzen import ManifoldParzen
from fastmetric.mean_shift import MeanShift
from fastmetric.nca import NCA

_PRECISIONS = ("float64", "float32")


def warmup(*, n_jobs: int | None = None, verbose: int = 1) -> None:
    """Compile everything, so that no later call has to.

    Compiled code is kept on disk, where all processes find it. Calls of this function in images of
    containers or on every worker of a cluster take the place of the compiling in the first calls.
    Where all is compiled already, it takes some seconds.

    Parameters
    ----------
    n_jobs : int or None, default=None
        The number of processes that compile; None: one for each core.
    verbose : int, default=1
        Above 0, a progress bar on stderr.

    Examples
    --------
    >>> from fastmetric import warmup
    >>> warmup(verbose=0)  # doctest: +SKIP
    """
    _validate.verbosity(verbose)
    jobs = engine.effective_jobs(_validate.jobs(n_jobs))
    # The tasks that take longest come first.
    calls = [partial(call, precision) for call in _CALLS for precision in _PRECISIONS]
    with tqdm(total=len(calls), desc="compiling", disable=verbose <= 0) as bar:
        for _ in _results(calls, jobs):
            bar.update()


def _results(calls: Sequence[Callable[[], None]], jobs: int) -> Iterator[Any]:
    """Run calls in so many processes, and yield as they end."""
    if jobs == 1:
        yield from (_quietly(call) for call in calls)
        return
    pool = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from pool(joblib.delayed(_quietly)(call) for call in calls)


def _quietly(call: Callable[[], None]) -> float:
    """Run a call without its warnings; return the seconds it took."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()
    return time.perf_counter() - began


def _rows(n: int, d: int, precision: str) -> np.ndarray:
    """Return random rows (n, d)."""
    return np.random.default_rng(0).standard_normal((n, d)).astype(precision)


def _densities_by_trees(precision: str) -> None:
    """Sum kernels over trees."""
    X = _rows(25_000, 2, precision)  # enough for the first levels of a tree to be tasks
    kernel_sums(X, bandwidth=0.3, rtol=1e-2, method="tree")
    kernel_sums(X[:1500], bandwidth=1e-3, method="tree")  # sums that underflow


def _nca_by_trees(precision: str) -> None:
    """Fit NCA over trees."""
    X = _rows(1500, 3, precision)
    nca = NCA(2, solver="lbfgs", method="tree", rtol=1e-2, max_iter=2, init="pca")
    nca.fit(X, np.arange(1500) % 2).predict(X)


def _mean_shift(precision: str) -> None:
    """Take steps of mean shift over all pairs, trees and lattices."""
    for n, d in ((100, 4), (3000, 1), (3000, 5)):
        MeanShift(bandwidth=0.05 * d, max_iter=3).fit(_rows(n, d, precision))


def _densities(precision: str) -> None:
    """Sum kernels over all pairs, by differences and by products."""
    X = _rows(200, 3, precision)
    kernel_sums(X)
    kernel_sums(X, bandwidth=1e-3)  # sums that underflow
    kernel_sums(_rows(3000, 100, precision), bandwidth=5.0)


def _densities_by_lattices(precision: str) -> None:
    """Sum kernels by lattices."""
    X = _rows(20_000, 3, precision)
    query = np.concatenate([X, X + 30]).astype(precision)
    for d, h in ((1, 0.1), (1, 1.0), (2, 0.3), (3, 0.2)):
        for asked in (None, query[:, :d]):
            kernel_sums(X[:, :d], asked, bandwidth=h, rtol=1e-2, method="grid")
    MeanShift(bandwidth=0.3, max_iter=3).fit(X[:, :2])


def _nca_by_lattices(precision: str) -> None:
    """Fit NCA by lattices."""
    X = _rows(2000, 3, precision)
    nca = NCA(2, solver="lbfgs", method="grid", rtol=1e-3, max_iter=2, init="pca")
    nca.fit(X, np.arange(2000) % 2).predict(X)


def _nca(precision: str) -> None:
    """Fit NCA over all pairs, by every solver."""
    X, y = _rows(300, 20, precision), np.arange(300) % 3
    for d in (2, 16):
        for solver in ("lbfgs", "minibatch", "stochastic"):
            nca = NCA(d, solver=solver, max_iter=2, init="pca")
            nca.fit(X, y).predict(X)
    NCA(2, init=1e3 * np.eye(2, 20), max_iter=2).fit(X, y)  # sums that underflow


def _nca_within_cutoff(precision: str) -> None:
    """Fit NCA with the biweight kernel."""
    for n, d in ((300, 4), (1000, 2)):
        X = _rows(n, 5, precision)
        nca = NCA(d, kernel="biweight", background=True, max_iter=2, init="pca")
        nca.fit(X, np.arange(n) % 3).predict(X)


def _local_component(precision: str) -> None:
    """Fit Local Component Analysis, in every way."""
    for d in (3, 20):
        X = _rows(300, d, precision)
        LocalComponentAnalysis(nu=0.1, max_iter=2).fit(X).score_samples(X)
        LocalComponentAnalysis(nu=0.1, max_iter=2, batch_size=100).fit(X).partial_fit(X)
    # Neighbourhoods of few rows: a list of neighbours, and products one by one.
    for scale, way in ((4, NeighbourList), (3, Products)):
        way(Neighbours(_rows(600, 24, precision) * np.float32(scale), 24)).log_sums_and_scatter()
    LocalComponentAnalysis(covariance="local", max_iter=2).fit(X).score_samples(X)


def _manifold_parzen(precision: str) -> None:
    """Fit Manifold Parzen Windows, and sum in every way."""
    # Over a tree, by products, by differences, screened by marginals.
    for n, d, noise in ((600, 2, 0.01), (300, 30, 0.01), (300, 30, 1e-12), (2200, 784, 3.0)):
        X = _rows(n, 20, precision) @ _rows(20, d, precision) + _rows(n, d, precision)
        ManifoldParzen(1, n_neighbors=5, noise_variance=noise).fit(X).score_samples(X)
    # Neighbours that products cannot tell apart: two clusters far from each other.
    far = 1e6 if precision == "float64" else 1e3
    X = (far * (np.arange(300) % 2)[:, None] + 0.01 * _rows(300, 30, "float64")).astype(precision)
    ManifoldParzen(1, n_neighbors=5, noise_variance=1.0).fit(X)


def _latent_coincidence(precision: str) -> None:
    """Fit Latent Coincidence Analysis."""
    X = _rows(200, 5, precision)
    LatentCoincidenceAnalysis(2, max_iter=3).fit(X, np.arange(200) % 2)


def _neighbours(precision: str) -> None:
    """Search neighbours in a tree."""
    tree = KDTree(_rows(500, 3, precision))
    tree.query(_rows(6000, 3, precision), k=3)
    for count in (False, True):
        tree.query_radius(_rows(50, 3, precision), 0.5, count_only=count)
    tree.query_radius(_rows(50, 3, precision), 0.5, return_distance=True, sort_results=True)


_CALLS = (
    _densities_by_trees,
    _nca_by_trees,
    _mean_shift,
    _densities,
    _nca,
    _local_component,
    _nca_by_lattices,
    _densities_by_lattices,
    _nca_within_cutoff,
    _manifold_parzen,
    _latent_coincidence,
    _neighbours,
)
