"""The kernels by name: code, volume, variance, and random draws from each as a density in R^d.

`core.kernels` identifies kernels by codes and has their values and bounds. Names, and functions
that need SciPy, are here. With bandwidth 1, the Gaussian is exp(-r²/2), as in densities; the
loops over pairs compute exp(-s), a Gaussian of bandwidth EXP_BANDWIDTH in r = sqrt(s).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from fastmetric.core import kernels

EXP_BANDWIDTH = math.sqrt(0.5)  # of the Gaussian exp(-r²)


class Kernel(NamedTuple):
    """A radial kernel of bandwidth 1; its density is the kernel divided by its volume."""

    name: str
    code: int  # in `core.kernels`
    has_tails: bool  # nowhere zero
    smooth: bool  # its derivative in s is continuous, as the gradient of sums requires
    log_volume: Callable[[int], float]  # by d, the log of its integral over R^d
    variance: Callable[[int], float]  # by d, of one coordinate of its density
    # Draws (n,) from the density proportional to k(r) r^(d-1), by (n, d, rng); None: the lengths
    # of normal vectors.
    draw_radii: Callable[[int, int, np.random.RandomState], np.ndarray] | None

    @property
    def pair_bandwidth(self) -> float:
        """Return the bandwidth of the kernel that the loops over pairs compute as k(s)."""
        return EXP_BANDWIDTH if self.code == kernels.GAUSSIAN else 1.0


def _log_ball(d: int) -> float:
    """Return the log of the volume of the unit ball in R^d."""
    return d / 2 * math.log(math.pi) - float(gammaln(d / 2 + 1))


def _gaussian_log_volume(d: int) -> float:
    """Return the log of the integral of exp(-r²/2)."""
    return d / 2 * math.log(2 * math.pi)


def _exponential_log_volume(d: int) -> float:
    """Return the log of the integral of exp(-r)."""
    return _log_ball(d) + float(gammaln(d + 1))


def _compact_log_volume(moment: Callable[[int], float]) -> Callable[[int], float]:
    """Return the log volume by d of a kernel with d ∫ k(r) r^(d-1) dr = moment(d)."""
    return lambda d: _log_ball(d) + math.log(moment(d))


def _cosine_moment(d: int) -> float:
    """Return d ∫ cos(πr/2) r^(d-1) dr over [0, 1].

    Term by term with sin(πt/2), t = 1 - r: the sum over k of (-1)^k (π/2)^(2k+1) d!/(d+2k+1)!.
    Each term is less than 0.21 of the one before, so nothing cancels, in any dimension;
    integration by parts, the usual way, cancels more with every dimension.
    """
    term = total = math.pi / 2 / (d + 1)
    k = 0
    while abs(term) > 1e-18 * total:
        k += 2
        term *= -((math.pi / 2) ** 2) / ((d + k) * (d + k + 1))
        total += term
    return total


def _cosine_variance(d: int) -> float:
    """Return the variance of a coordinate, E r² / d, from two moments."""
    return _cosine_moment(d + 2) / ((d + 2) * _cosine_moment(d))


def _power_radii(power: int) -> Callable[[int, int, np.random.RandomState], np.ndarray]:
    """Return the draws of radii for (1 - r²)^power: the square of r is Beta distributed."""
    return lambda n, d, rng: np.sqrt(rng.beta(d / 2, power + 1, n))


def _cosine_radii(n: int, d: int, rng: np.random.RandomState) -> np.ndarray:
    """Return n draws (n,) from the density proportional to cos(πr/2) r^(d-1), by rejection.

    Proposals are drawn from the linear kernel: cos(πr/2) / (1 - r) = π/2 sinc((1 - r)/2), where
    sinc is at least 2/π, so at least 2/π of the draws are accepted.
    """
    radii = np.empty(n)
    missing = np.arange(n)
    while len(missing):
        tried = rng.beta(d, 2, len(missing))
        kept = rng.random_sample(len(missing)) < np.sinc((1 - tried) / 2)
        radii[missing[kept]] = tried[kept]
        missing = missing[~kept]
    return radii


def checked(kernel: Kernel) -> Kernel:
    """Return the kernel if the core has its value and its bounds, and agrees on its tails.

    Without a bound every certificate of its sums would be invalid. The functions run uncompiled
    here: importing the package must not compile anything.
    """

    def plain(function: Any) -> Any:
        return getattr(function, "py_func", function)

    value = plain(kernels.kernel_value)(kernel.code, 0.25)
    slope = plain(kernels.slope_bound)(kernel.code, 0.5, 1.0)
    curvature = plain(kernels.curvature_bound)(kernel.code, 0.25, 0.5, 1.0)
    if not np.isfinite([value, slope, curvature]).all():
        raise ValueError(f"kernel {kernel.name!r}: core.kernels has no value or no bounds for it.")
    if plain(kernels.has_tails)(kernel.code) != kernel.has_tails:
        raise ValueError(f"kernel {kernel.name!r}: core.kernels disagrees on whether it has tails.")
    return kernel


_ALL = (
    Kernel("gaussian", kernels.GAUSSIAN, True, True, _gaussian_log_volume, lambda d: 1.0, None),
    Kernel(
        "biweight",
        kernels.BIWEIGHT,
        False,
        True,
        _compact_log_volume(lambda d: 8 / ((d + 2) * (d + 4))),
        lambda d: 1 / (d + 6),
        _power_radii(2),
    ),
    Kernel(
        "tophat",
        kernels.TOPHAT,
        False,
        False,
        _compact_log_volume(lambda d: 1.0),
        lambda d: 1 / (d + 2),
        _power_radii(0),
    ),
    Kernel(
        "epanechnikov",
        kernels.EPANECHNIKOV,
        False,
        False,
        _compact_log_volume(lambda d: 2 / (d + 2)),
        lambda d: 1 / (d + 4),
        _power_radii(1),
    ),
    Kernel(
        "exponential",
        kernels.EXPONENTIAL,
        True,
        False,
        _exponential_log_volume,
        lambda d: d + 1.0,
        lambda n, d, rng: rng.standard_gamma(d, n),
    ),
    Kernel(
        "linear",
        kernels.LINEAR,
        False,
        False,
        _compact_log_volume(lambda d: 1 / (d + 1)),
        lambda d: (d + 1) / ((d + 2) * (d + 3)),
        lambda n, d, rng: rng.beta(d, 2, n),
    ),
    Kernel(
        "cosine",
        kernels.COSINE,
        False,
        False,
        _compact_log_volume(_cosine_moment),
        _cosine_variance,
        _cosine_radii,
    ),
)
KERNELS: dict[str, Kernel] = {kernel.name: checked(kernel) for kernel in _ALL}
NAMES = tuple(KERNELS)
SMOOTH = tuple(kernel.name for kernel in _ALL if kernel.smooth)


def draw(kernel: Kernel, n: int, d: int, rng: np.random.RandomState) -> np.ndarray:
    """Return n draws (n, d) from the kernel as a density around the origin, bandwidth 1."""
    steps = rng.standard_normal((n, d))
    if kernel.draw_radii is None:
        return steps
    # A normal vector has a uniform direction; it is rescaled to the radius drawn.
    steps *= (kernel.draw_radii(n, d, rng) / np.linalg.norm(steps, axis=1))[:, None]
    return steps


def draw_rows(n: int, weights: np.ndarray | None, uniform: np.ndarray) -> np.ndarray:
    """Return row numbers in proportion to `weights` (n,), None: equal, one per uniform number."""
    if weights is None:
        return (uniform * n).astype(np.intp)
    cumulated = np.cumsum(weights)
    rows = np.searchsorted(cumulated, uniform * cumulated[-1], side="right")
    # Rounded up to the total, a number must not select a row beyond the last of positive weight.
    return np.minimum(rows, np.searchsorted(cumulated, cumulated[-1]))
