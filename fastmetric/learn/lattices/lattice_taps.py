"""The taps of a lattice as polynomials, its smoothing kernel, and the errors of both."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastmetric.core.lattice.moments import TERMS
from fastmetric.core.lattice.stencils import LANES, Stencil
from fastmetric.learn.lattices.lattice_plan import Plan

_POLYNOMIAL = 0.02  # of the tolerance, by the polynomials in the place of exp
_PARTS = (8, 16, 32, 64, 128)  # of a cell, for moments
_FINE = 30  # the degree of polynomials that are as good as exact
_SAMPLES = 8 * _FINE
_WIDE = np.longdouble
_UNIT = 2.0**-53


class Taps(NamedTuple):
    """The polynomials and kernels of a plan in one precision, and their errors."""

    stencil: Stencil
    middle: np.ndarray  # (reach + 1,): the smoothing kernel, and the normalisation
    own: np.ndarray  # of a point with itself along an axis: a polynomial of its place
    error: float  # of a tap as a polynomial, relative to the Gaussian
    rounding: float  # of a tap, relative to the polynomial
    own_rounding: float  # of `own`, relative to it


@lru_cache(maxsize=64)
def taps(plan: Plan, rtol: float) -> Taps:
    """Return the taps of a plan whose polynomials take a small part of the tolerance."""
    alpha, places = _of_taps(plan)
    for degree in range(4, _FINE):
        powers = _polynomials(alpha, places, degree).astype(np.float64)
        error = _interpolation_error(alpha, places, powers)
        if error <= _POLYNOMIAL * rtol:
            break
    chunks = -(-plan.width // LANES)
    shape = chunks, LANES
    table = np.zeros((degree + 1, chunks * LANES))
    table[:, : plan.width] = powers[::-1]
    slopes = np.zeros(chunks * LANES)
    slopes[: plan.width] = places
    stencil = Stencil(
        plan.width,
        np.ascontiguousarray(table.reshape(-1, *shape).transpose(1, 0, 2)),
        slopes.reshape(chunks, 1, LANES),
    )
    m = math.sqrt(1 - 2 * plan.sigma**2)
    steps = np.arange(plan.reach + 1) * plan.spacing / m
    middle = plan.spacing**2 / (2 * math.pi * plan.sigma**2 * m) * np.exp(-(steps**2) / 2)
    rounding = _sizes(alpha, places, powers) * (degree + 4) * _UNIT
    between = np.zeros((plan.width, plan.width))
    for t in range(plan.width):
        for s in range(plan.width):
            if abs(t - s) <= plan.reach:
                between[t, s] = middle[abs(t - s)]
    own = np.zeros(2 * degree + 1, _WIDE)
    for p in range(degree + 1):
        own[p : p + degree + 1] += (powers[p] @ between) @ powers.T
    own_sizes = float((np.abs(own) * 0.5 ** np.arange(2 * degree + 1)).sum())
    # The kernel of a point with itself is about 1, and at least 1/2 within any tolerance.
    own_rounding = 2 * own_sizes * (2 * degree + 4) * _UNIT
    return Taps(
        stencil,
        middle,
        np.ascontiguousarray(own[::-1], np.float64),
        error,
        rounding,
        own_rounding,
    )


class Moments(NamedTuple):
    """What the moments of parts of cells add to the taps of points on a line, and its errors."""

    parts: int  # of a cell
    table: np.ndarray  # (parts * TERMS, width): the taps of a unit of every moment
    error: float  # of a tap, relative to the Gaussian
    sizes: float  # of the terms of a tap together, relative to it


@lru_cache(maxsize=64)
def moments(plan: Plan, rtol: float) -> Moments | None:
    """Return cubic polynomials on parts of a cell that take a small part of the tolerance.

    With the place t in a part for that in a cell, g = middle + t / parts, a tap is a Gaussian of t.
    None, if there would have to be too many parts.
    """
    alpha, places = _of_taps(plan)
    for parts in _PARTS:
        middles = (np.arange(parts) + 0.5) / parts - 0.5
        within, narrow = ((places - middles[:, None]) * parts).ravel(), alpha / parts**2
        powers = _polynomials(narrow, within, TERMS - 1).astype(np.float64)
        error = _interpolation_error(narrow, within, powers)
        if error <= _POLYNOMIAL * rtol:
            sizes = _sizes(narrow, within, powers)
            table = powers.reshape(TERMS, parts, plan.width).transpose(1, 0, 2)
            table = np.ascontiguousarray(table.reshape(parts * TERMS, plan.width))
            return Moments(parts, table, error, sizes)
    return None


def _of_taps(plan: Plan) -> tuple[float, np.ndarray]:
    """Return alpha and the places (width,) of the taps exp(-alpha (place - g)^2), g in +-1/2."""
    return (plan.spacing / plan.sigma) ** 2 / 2, np.arange(plan.width) - plan.width / 2 + 0.5


def _sizes(alpha: float, places: np.ndarray, powers: np.ndarray) -> float:
    """Return the terms of a polynomial together, relative to the least value of its Gaussian."""
    least = np.exp(-alpha * (np.abs(places) + 0.5) ** 2)
    return float(((np.abs(powers) * 0.5 ** np.arange(len(powers))[:, None]).sum(0) / least).max())


def _interpolation_error(alpha: float, places: np.ndarray, powers: np.ndarray) -> float:
    """Return the error of polynomials relative to the least value of exp(-alpha (place - g)^2).

    The difference to fine ones is a polynomial of degree _FINE, whose maximum on |g| <= 1/2
    exceeds that at N Chebyshev points at most 1 / cos(pi _FINE / 2 N) times (Ehlich and Zeller).
    """
    fine, least = _polynomials(alpha, places, _FINE), np.exp(-alpha * (np.abs(places) + 0.5) ** 2)
    fine[: len(powers)] -= powers
    points = np.cos((np.arange(_SAMPLES) + 0.5) * (np.pi / _SAMPLES)) / 2
    largest = np.abs(points[:, None] ** np.arange(_FINE + 1) @ fine.astype(np.float64)).max(axis=0)
    largest /= math.cos(math.pi * _FINE / (2 * _SAMPLES))
    return float((largest / least).max()) + _remainder(alpha, places)


def _remainder(alpha: float, places: np.ndarray) -> float:
    """Return the error of the fine polynomials, relative to the least value.

    At Chebyshev nodes of |g| <= 1/2 it is at most 2 (1/4)^p times the largest |f^(p)| / p!, p =
    _FINE + 1, which is at most R^-p times the largest |f| within R of these g (Cauchy).
    """
    r = np.linspace(0.3, 6, 40)[:, None]
    nearest = np.maximum(0, np.abs(places) - 0.5 - r)
    logs = math.log(2) - (_FINE + 1) * np.log(4 * r) + alpha * (r**2 - nearest**2)
    logs = logs.min(axis=0) + alpha * (np.abs(places) + 0.5) ** 2
    return float(np.exp(logs.max()))


def _polynomials(alpha: float, places: np.ndarray, degree: int) -> np.ndarray:
    """Return the coefficients (degree + 1, width) of the interpolating polynomials in g.

    The lowest power first, in the widest floats.
    """
    count = degree + 1
    angles = (np.arange(count, dtype=_WIDE) + _WIDE(0.5)) * (_WIDE(np.pi) / count)
    nodes = np.cos(angles) / 2
    values = np.exp(-_WIDE(alpha) * (places.astype(_WIDE) - nodes[:, None]) ** 2)
    modes = np.cos(np.arange(count, dtype=_WIDE)[:, None] * angles) @ values * 2 / count
    modes[0] /= 2
    # Chebyshev polynomials of 2g, by their recurrence.
    before, here = np.zeros(count, _WIDE), np.zeros(count, _WIDE)
    before[0], here[1:2] = 1, 2
    total = np.outer(before, modes[0])
    for k in range(1, count):
        total += np.outer(here, modes[k])
        ahead = -before
        ahead[1:] += 4 * here[:-1]
        before, here = here, ahead
    return total


@lru_cache(maxsize=64)
def own_terms(plan: Plan, rtol: float) -> np.ndarray:
    """Return what a point adds to itself along an axis, as polynomials (1, terms, LANES).

    Lane 0 has the kernel `Taps.own`, lane 1 the kernel weighted by the distance, in cells [GRD-5].
    """
    made = taps(plan, rtol)
    table = np.concatenate(list(made.stencil.coefficients), axis=1)[::-1, : plan.width]
    places = made.stencil.slopes.ravel()[: plan.width]
    gaps = np.abs(np.subtract.outer(np.arange(plan.width), np.arange(plan.width)))
    between = np.where(gaps <= plan.reach, made.middle[np.minimum(gaps, plan.reach)], 0.0)
    weighted = np.zeros((len(table) + 1, plan.width))  # the taps times (g - place)
    weighted[1:] += table
    weighted[:-1] -= places * table
    terms = np.zeros((1, 2 * len(table), LANES))
    terms[0, 1:, 0] = made.own  # the highest power first
    slope = np.zeros(2 * len(table))
    for p, row in enumerate(weighted):
        slope[p : p + len(table)] += (row @ between) @ table.T
    terms[0, :, 1] = slope[::-1]
    return terms
