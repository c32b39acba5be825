"""All sides of kernel density estimation: ours, the peers', and the truth by a plain sum."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp
from scipy.stats import gaussian_kde
from sklearn.neighbors import KernelDensity as SklearnDensity

from bench.shared.setup import UnavailableError, covertype
from fastmetric import KernelDensity

_FEW = 2_000  # points for which all code is compiled: enough that the tree is used
SAMPLE = 500  # queries whose truth is computed


class Problem(NamedTuple):
    """Points X (n, d), where their density is asked for (m, d), and the Gaussian's width h."""

    X: np.ndarray
    queries: np.ndarray
    h: float

    def __str__(self) -> str:
        n, d = self.X.shape
        m = "" if self.queries is self.X else f" queries={len(self.queries):,}"
        return f"n={n:,} d={d}{m} h={self.h:.3g}"


def normal_reference(n: int, d: int) -> float:
    """Return a width that falls with n as the best one for normal data does (Scott's rule)."""
    return n ** (-1 / (d + 4))


def covertype_problem(n: int, d: int) -> Problem:
    """Return standardised columns of covertype, the width by the rule, every point a query."""
    X, _ = covertype(n, d)
    return Problem(X, X, normal_reference(n, d))


def normal_problem(n: int, d: int) -> Problem:
    """Return standard normal points, the width by the rule, every point a query."""
    X = np.random.default_rng(0).standard_normal((n, d))
    return Problem(X, X, normal_reference(n, d))


# The sides: everything from the plain arrays to the log densities (m,)


def ours(problem: Problem, rtol: float = 0.0) -> np.ndarray:
    """Return our log densities."""
    density = KernelDensity(bandwidth=problem.h, rtol=rtol).fit(problem.X)
    return density.score_samples(problem.queries)


def our_covariance(problem: Problem, covariance: np.ndarray) -> np.ndarray:
    """Return our log densities with Gaussians of this covariance (d, d)."""
    return KernelDensity(bandwidth=covariance).fit(problem.X).score_samples(problem.queries)


def sklearn(problem: Problem, rtol: float = 0.0) -> np.ndarray:
    """Return scikit-learn's log densities."""
    density = SklearnDensity(bandwidth=problem.h, rtol=rtol).fit(problem.X)
    return density.score_samples(problem.queries)


def sklearn_fit(problem: Problem, rtol: float = 0.0) -> SklearnDensity:
    """Return scikit-learn's estimator before the first query."""
    return SklearnDensity(bandwidth=problem.h, rtol=rtol).fit(problem.X)


def scipy(problem: Problem) -> np.ndarray:
    """Return SciPy's log densities, with Gaussians of `scipy_covariance`."""
    return gaussian_kde(problem.X.T, bw_method=problem.h).logpdf(problem.queries.T)


def scipy_covariance(problem: Problem) -> np.ndarray:
    """Return the covariance (d, d) of SciPy's Gaussians: h² times that of the points."""
    return np.atleast_2d(gaussian_kde(problem.X.T, bw_method=problem.h).covariance)


def mlpack(problem: Problem, rtol: float = 0.0) -> np.ndarray:
    """Return mlpack's log densities by two trees; -inf where its density is 0."""
    density = _mlpack_kde()(
        reference=problem.X,
        query=problem.queries.copy(),  # one array must not be both
        bandwidth=problem.h,
        rel_error=float(rtol),
        kernel="gaussian",
        algorithm="dual-tree",
        copy_all_inputs=True,  # it would otherwise take the memory of its arguments over
    )["predictions"]
    with np.errstate(divide="ignore"):
        return np.log(density)


@functools.cache
def _mlpack_kde() -> Callable[..., Any]:
    """Return mlpack's function, imported late: it is the one peer that may be missing."""
    if importlib.util.find_spec("mlpack") is None:
        raise UnavailableError("mlpack is not installed (pip install mlpack)")
    from mlpack import kde

    return kde


def missing_mlpack() -> str:
    """Return why mlpack cannot take part; empty if it can."""
    try:
        _mlpack_kde()
    except (UnavailableError, ImportError) as error:
        return f"peer not run: {error}"
    return ""


def load_code(problem: Problem) -> None:
    """Compile all that a density of this kind may need, or load it from the cache."""
    few = problem.X[:_FEW]
    far = few[:1] + 100 * problem.h  # its sum underflows, which takes another way
    density = KernelDensity(bandwidth=problem.h, rtol=1e-2, method="tree").fit(few)
    density.score_samples(few)
    density.score_samples(np.concatenate([few, far]))


# Accuracy


def true_log_density(problem: Problem) -> np.ndarray:
    """Return the log densities (m,) from the true sums."""
    n, d = problem.X.shape
    log_volume = math.log(n) + d / 2 * math.log(2 * math.pi * problem.h**2)
    return true_log_sums(problem) - log_volume


def true_log_sums(problem: Problem) -> np.ndarray:
    """Return the logs of the sums (m,) by the formula: differences, all pairs, in float64."""
    log_sums = []
    for query in problem.queries:
        differences = problem.X - query
        sq_dist = np.einsum("ij,ij->i", differences, differences)
        log_sums.append(logsumexp(sq_dist / (-2 * problem.h**2)))
    return np.array(log_sums)


class Truth:
    """The true log densities at a random sample of a problem's queries."""

    def __init__(self, problem: Problem) -> None:
        m = len(problem.queries)
        self.sample = np.random.default_rng(1).permutation(m)[:SAMPLE]
        self.log_density = true_log_density(problem._replace(queries=problem.queries[self.sample]))

    def error(self, log_density: np.ndarray) -> float:
        """Return the largest difference of log densities (m,) from the truth."""
        return float(np.max(np.abs(log_density[self.sample] - self.log_density)))
