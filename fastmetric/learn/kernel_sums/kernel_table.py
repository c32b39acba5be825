"""What a radial kernel is as a distribution in R^d: its volume, and random draws from it."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln


def log_volume(kernel: str, d: int) -> float:
    """Return the log of the integral of the kernel over R^d, for bandwidth 1.

    The volume of the unit ball times d ∫ k(r) r^(d-1) dr, which is elementary but for the cosine.
    """
    if kernel == "gaussian":
        return d / 2 * math.log(2 * math.pi)
    log_ball = d / 2 * math.log(math.pi) - float(gammaln(d / 2 + 1))
    if kernel == "exponential":
        return log_ball + float(gammaln(d + 1))
    moment = {
        "biweight": 8 / ((d + 2) * (d + 4)),
        "tophat": 1.0,
        "epanechnikov": 2 / (d + 2),
        "linear": 1 / (d + 1),
        "cosine": _cosine_moment(d),
    }[kernel]
    return log_ball + math.log(moment)


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


def draw(kernel: str, n: int, d: int, rng: np.random.RandomState) -> np.ndarray:
    """Return n draws (n, d) from the kernel as a density around the origin, bandwidth 1."""
    steps = rng.standard_normal((n, d))
    if kernel == "gaussian":
        return steps
    # A normal vector has a uniform direction; it is given another length.
    steps *= (_radii(kernel, n, d, rng) / np.linalg.norm(steps, axis=1))[:, None]
    return steps


def _radii(kernel: str, n: int, d: int, rng: np.random.RandomState) -> np.ndarray:
    """Return n draws (n,) from the density proportional to k(r) r^(d-1).

    For powers of 1 - r² the square of r is Beta distributed, for those of 1 - r itself.
    """
    if kernel == "exponential":
        return rng.standard_gamma(d, n)
    if kernel == "linear":
        return rng.beta(d, 2, n)
    if kernel == "cosine":
        return _cosine_radii(n, d, rng)
    power = {"tophat": 0, "epanechnikov": 1, "biweight": 2}[kernel]
    return np.sqrt(rng.beta(d / 2, power + 1, n))


def _cosine_radii(n: int, d: int, rng: np.random.RandomState) -> np.ndarray:
    """Return n draws (n,) from the density proportional to cos(πr/2) r^(d-1), by rejection.

    From the linear kernel's: cos(πr/2) / (1 - r) is sinc((1 - r)/2) of its largest value π/2,
    so at least 2/π of the draws are kept.
    """
    radii = np.empty(n)
    missing = np.arange(n)
    while len(missing):
        tried = rng.beta(d, 2, len(missing))
        kept = rng.random_sample(len(missing)) < np.sinc((1 - tried) / 2)
        radii[missing[kept]] = tried[kept]
        missing = missing[~kept]
    return radii


def draw_rows(n: int, weights: np.ndarray | None, uniform: np.ndarray) -> np.ndarray:
    """Return row numbers in proportion to `weights` (n,), None: equal, one per uniform number."""
    if weights is None:
        return (uniform * n).astype(np.intp)
    cumulated = np.cumsum(weights)
    rows = np.searchsorted(cumulated, uniform * cumulated[-1], side="right")
    # Rounding up to the total must not lead beyond the last row of positive weight.
    return np.minimum(rows, np.searchsorted(cumulated, cumulated[-1]))
