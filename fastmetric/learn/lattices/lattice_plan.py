"""The spacing, the widths and the taps of a lattice for a tolerance, and the bounds they give.

Lengths are in units of the bandwidth h. A Gaussian of deviation 1 is the convolution of three, of
variances sigma^2, m^2 and sigma^2: points are spread onto the lattice by the first, the lattice is
smoothed by the second, and read off at the queries by the third [GRD-1].
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

WIDTHS = (4, 6, 8, 10, 12, 14, 16)  # taps in a coordinate
_REACHES = np.linspace(0.0, 12.0, 37)  # distances in a coordinate at which cut terms are bounded
_TERMS = 12  # of a sum over the lattice that are added, the rest is an integral
_COARSER = 1.05  # times the spacing, which pays for two more taps
_SPENT = 0.9  # of the tolerance, by the stencils; the middle kernel and rounding have the rest
_SPENT_WITH_MIDDLE = 0.94


class Shares(NamedTuple):
    """What separates the kernel of a lattice from the exact one, relative to it, per coordinate."""

    smooth: np.ndarray  # |theta - 1| for all cells [GRD-2]
    reading: np.ndarray  # theta of the sum over the lattice that queries read
    cut: np.ndarray  # (reaches, ...) terms left out of a pair at that distance at most [GRD-3]


class Line(NamedTuple):
    """An upper bound of S, linear in the lattice's value: slope * value + offset * W [GRD-4]."""

    slope: float
    offset: float


class Plan(NamedTuple):
    """A lattice for a tolerance."""

    width: int  # taps in a coordinate
    spacing: float
    sigma: float
    reach: int  # taps of the middle kernel on either side
    lines: tuple[Line, ...]  # upper bounds; the least one counts
    lower: float  # S >= lower * value


def shares(reaches, width, spacing, sigma, reach=None) -> Shares:
    """Return the relative errors of a lattice [GRD-2], [GRD-3]; arrays of one shape.

    `reaches` (k, ...) are distances in a coordinate, rising; without a `reach` the middle kernel
    is whole.
    """
    m2 = 1 - 2 * sigma**2
    t2 = m2 + sigma**2
    s1, s2, s3 = np.sqrt(m2 * sigma**2 / t2), sigma * np.sqrt(t2), sigma * np.sqrt(2 * m2)
    e1, e2 = (_poisson(2 * (np.pi * s / spacing) ** 2) for s in (s1, s2))
    end, moved = width * spacing / 2, sigma**2 * reaches
    cut = (
        2
        * (1 + e1)
        * (_beyond(end - moved, s2, spacing) + _beyond(end + spacing + moved, s2, spacing))
    )
    if reach is not None:
        e3 = _poisson((np.pi * sigma / spacing) ** 2)
        end, moved = (reach + 1) * spacing, m2 * reaches
        cut = cut + (1 + e3) * (
            _beyond(end - moved, s3, spacing) + _beyond(end + moved, s3, spacing)
        )
    return Shares((1 + e1) * (1 + e2) - 1, (1 - e1) * (1 - e2), cut)


def _poisson(exponent):
    """Return 2 sum_k exp(-k^2 exponent), k from 1 on, from above."""
    first = np.exp(-exponent)
    return 2 * first / np.maximum(1 - first, 1e-300)


def _beyond(start, deviation, spacing):
    """Return the sum of spacing * N(start + k spacing), k from 0 on, from above; at most about 1.

    N is a normal density. Where the start lies within the density's middle: 2.
    """
    start, deviation, spacing = np.broadcast_arrays(start, deviation, spacing)
    steps = np.arange(_TERMS) * spacing[..., None]
    terms = np.exp(-(((start[..., None] + steps) / deviation[..., None]) ** 2) / 2).sum(axis=-1)
    # The terms decrease: the rest is at most the integral from the last one on.
    rest = ndtr(-(start + (_TERMS - 1) * spacing) / deviation)
    total = terms * spacing / (deviation * math.sqrt(2 * math.pi)) + rest
    return np.where(start > deviation, total * (1 + 1e-12), 2.0)


def _lines(d: int, found: Shares) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return slopes and offsets (reaches, ...) of upper bounds of S, and the slope of the lower.

    With r a reach, a pair closer than r in every coordinate loses at most d cut(r) of itself, any
    other one at most what its kernel exp(-s^2 / 2) loses at its distance s > r [GRD-4].
    """
    above = (1 + found.smooth) ** d
    times = d * (1 + found.smooth) ** (d - 1)
    r = _REACHES.reshape(-1, *[1] * (found.cut.ndim - 1))
    lost = np.minimum(found.cut, 1 + found.smooth)
    # cut rises with the distance: between two reaches a loss is below the upper cut times the
    # lower kernel; beyond the last one a kernel is lost whole.
    between = np.concatenate([lost[1:], (1 + found.smooth)[None]]) * np.exp(-(r**2) / 2)
    far = np.maximum.accumulate(between[::-1], axis=0)[::-1]
    left = found.reading**d - times * found.cut
    with np.errstate(divide="ignore"):
        slope = np.where(left > 0, 1 / np.maximum(left, 1e-300), np.inf)
    return slope, slope * times * far, 1 / above


def _width_of_interval(d, found, log_mass):
    """Return the relative width of the bounds of a sum of W exp(-log_mass), W the total weight."""
    slopes, offsets, lower = _lines(d, found)
    with np.errstate(over="ignore", invalid="ignore"):
        upper = slopes / lower + offsets * math.exp(log_mass)
    return np.nan_to_num(upper, nan=np.inf).min(axis=0) - 1


@lru_cache(maxsize=64)
def plans(d: int, rtol: float, log_mass: float) -> tuple[Plan, ...]:
    """Return lattices whose bounds are within `rtol` of a sum of W exp(-log_mass), one a width.

    Of every width that has one, that of the largest spacing. The bounds lack rounding.
    """
    ratio, spacing = np.meshgrid(np.linspace(0.75, 2.1, 19), np.geomspace(0.1, 0.8, 36))
    sigma = spacing / ratio
    allowed = 2 * _SPENT * rtol
    # Whatever the width, the sums over the lattice must be within the tolerance.
    whole = shares(_REACHES[:1, None, None], 1000, spacing, np.minimum(sigma, 0.6))
    possible = (sigma < 0.6) & (2 * d * whole.smooth < allowed)
    spacing, sigma = spacing[possible], sigma[possible]
    chosen: list[Plan] = []
    for width in WIDTHS:
        found = shares(_REACHES[:, None], width, spacing, sigma)
        good = np.flatnonzero(_width_of_interval(d, found, log_mass) <= allowed)
        if good.size == 0:
            continue
        best = good[np.argmax(spacing[good] - 1e-6 * sigma[good])]
        if chosen and spacing[best] < _COARSER * chosen[-1].spacing:
            break  # more taps on the same lattice
        chosen.append(_with_middle(d, rtol, log_mass, width, spacing[best], sigma[best]))
    return tuple(chosen)


def _with_middle(d, rtol, log_mass, width, spacing, sigma) -> Plan:
    """Return the plan with the shortest middle kernel within the tolerance."""
    reach = 1
    found = shares(_REACHES, width, spacing, sigma, reach)
    while _width_of_interval(d, found, log_mass) > 2 * _SPENT_WITH_MIDDLE * rtol:
        reach += 1
        found = shares(_REACHES, width, spacing, sigma, reach)
    slopes, offsets, lower = _lines(d, found)
    finite = np.isfinite(slopes)
    # A line that another one is below of everywhere is never the least.
    kept, best = [], np.inf
    for slope, offset in sorted(zip(slopes[finite], offsets[finite], strict=True)):
        if offset < best * 0.7:
            kept.append(Line(float(slope) * (1 + 1e-12), float(offset) * (1 + 1e-12)))
            best = offset
    return Plan(width, float(spacing), float(sigma), reach, tuple(kept), float(lower) * (1 - 1e-12))
