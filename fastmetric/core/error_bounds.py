"""Every term of a certified error, each with its derivation.

The error of a sum over a tree is at most the sum of: a constant or centroid in place of a node
[SUM-1], [SUM-2], the truncation of an expansion [SUM-6], [SUM-7] and the rounding of its terms,
float32 leaves [SUM-8], underflow, and the rounding of the logarithm that is returned. Whether a
node is accepted at its error is decided in `core.walk.error_budget`.

u is the unit roundoff of float64, 2^-53, and W the weight of a node. Functions that are compiled
keep the order of their operations: reassociation would void a bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit_in_order
from fastmetric.core.far_field.expansions import LOG_FACTORIALS, log_remainder
from fastmetric.core.kernels import curvature_bound, slope_bound
from fastmetric.core.vector.exp import LOWEST, LOWEST_32, exp64

# Rounding of decisions. A quantity that decides (the distance of boxes, a bound of a kernel, a
# radius) is the result of at most about d + 20 operations on positive numbers, so it is within
# (d + 20) u: 1e-12 covers 9,000 operations. A larger slack would open more nodes; this one is
# negligible against any tolerance above 1e-11.
SLACK = 1e-12

# Rounding of a centroid: a weighted mean of coordinates of at most `largest` in absolute value is
# off by at most four roundings, 4.5e-16, times two for the rounding of the sums it is made of.
_CENTER_ROUNDING = 1e-15

# Rounding of an expansion: a few hundred terms, each a product of at most 30 factors and therefore
# within 30 u, added recursively: below 1e-13 times the sum of their absolute values.
_TERM_ROUNDING = 1e-13
_LARGEST_LOG = 300.0  # of the terms of an expansion; products of two such numbers do not overflow

# Underflow: exp(x) is 0 below `LOWEST`, so a sum lacks at most W exp(LOWEST).
UNDERFLOW = {np.dtype(np.float64): np.exp(LOWEST), np.dtype(np.float32): np.exp(LOWEST_32)}
# A sum of positive weights of at most 1 below this may have lost a relevant part of its terms:
# exp(LOWEST) is 3e-308 (2e-38 in float32), so above it n terms lost are n 3e-58 (n 2e-13) of it.
UNDERFLOWED = {np.dtype(np.float64): 1e-250, np.dtype(np.float32): 1e-25}
# The same for sums over all pairs, which claim no bound: n terms lost are n 3e-28 (n 2e-10) of it.
UNDERFLOWED_PAIRS = {np.dtype(np.float64): 1e-280, np.dtype(np.float32): 1e-28}

# float32 leaves [SUM-8]. Points and queries are taken around the centre of the leaf, in units of h,
# so that their rounding is relative to distances of a few h, wherever the data lie. With
# g = (q - x)/h and a = (x - c)/h, an exponent s = |g|^2 / 2 is off by at most
#     FLOAT32_UNIT ((d + 5.2) s + 2.1 |a| sqrt(2 s)),
# the first term from subtracting, squaring and adding, the second from rounding both sides. Terms
# with s up to FLOAT32_REACH are within this; those beyond are computed as some number from 0 to
# exp(-FLOAT32_REACH), which is charged as an error of the node.
FLOAT32_UNIT = 2.0**-24
FLOAT32_REACH = 20.0
FLOAT32_RADIUS = 8.0  # the largest |a|
# Products of two relative errors are left out of all this. As long as the error is below
# FLOAT32_COARSEST, they are below SECOND_ORDER of it.
SECOND_ORDER = 1e-3
FLOAT32_COARSEST = 5e-4
_FLOAT32_TAIL = math.exp(-FLOAT32_REACH) * (1 + SECOND_ORDER)
FLOAT32_LIGHTEST = 1e-25  # of the weights: times exp(-FLOAT32_REACH) it is far from underflow


@jit_in_order
def constant_error(weight, k_lo, k_hi):
    """Return the error of the mean of a kernel's extreme values over a node [SUM-1].

    `k_lo` and `k_hi` are the kernel at the least and at the largest distance.
    """
    return 0.5 * weight * (k_lo - k_hi) * (1 + SLACK)


@jit_in_order
def centroid_truncation(spread, code, s_lo, s_hi, k_lo):
    """Return the error of a node replaced by its centroid [SUM-2]: half spread times curvature.

    `spread` is the sum of w |x - c|^2 / h^2; the first moment around the centroid vanishes.
    """
    return 0.5 * spread * curvature_bound(code, s_lo, s_hi, k_lo) * (1 + SLACK)


@jit_in_order
def centroid_rounding(weight, offset, code, s_hi, k_lo):
    """Return the error of a centroid that is `offset` h from the true one: W offset slope."""
    return weight * offset * slope_bound(code, s_hi, k_lo)


@jit_in_order
def center_offset(largest, d):
    """Return a bound of the distance between a centroid and its rounded value."""
    return _CENTER_ROUNDING * largest * np.sqrt(d)


class Expansion(NamedTuple):
    """What the error of an expansion depends on, lengths in units of h.

    A far-field expansion has u = (x - c) / h, a local one the sum of the offsets of both sides.
    """

    weight: float
    spread: float  # sum of w |u|^2
    radius: float  # the largest |u|
    distance: float  # the least distance of a query to a point
    shift: float  # the sums are times exp(shift)
    log_terms: float  # log of a bound of its terms, for a weight of 1


@jit_in_order
def expansion_rounding(expansion):
    """Return the rounding of the terms of an expansion; infinity if they may overflow."""
    if expansion.log_terms > _LARGEST_LOG:
        return np.inf
    return _TERM_ROUNDING * expansion.weight * exp64(expansion.log_terms)


@jit_in_order
def log_truncation(series, degree, log_spread, log_radius, distance):
    """Return the log of what an expansion of some degree leaves out [SUM-6], [SUM-7].

    With p = degree + 1, Taylor's remainder is at most |u|^p / p! times the supremum of the p-th
    derivative of the Gaussian beyond `distance`, and |u|^p <= |u|^2 radius^(p - 2). The logs are
    arguments since they are the same for all degrees.
    """
    return (
        log_spread
        + (degree - 1) * log_radius
        - LOG_FACTORIALS[degree + 1]
        + log_remainder(series, degree + 1, distance)
    )


def float32_error(d: int, longest: int) -> float:
    """Return the relative error of a sum over a leaf of at most `longest` points, tails aside.

    That of its exponents, of exp (8 units), and of the weights and their sum, one unit a point.
    """
    exponents = (d + 5.2) * FLOAT32_REACH + 2.1 * FLOAT32_RADIUS * math.sqrt(2 * FLOAT32_REACH)
    return (exponents + 12 + longest) * FLOAT32_UNIT


@jit_in_order
def float32_tail_error(weight, s_hi):
    """Return the error of the terms beyond FLOAT32_REACH; `s_hi` is the largest exponent."""
    return weight * _FLOAT32_TAIL if s_hi > FLOAT32_REACH else 0.0


def distance_slack(d: int, eps: float) -> float:
    """Return the relative error of a computed squared distance.

    Two roundings of a difference that is squared, one of the square, d of the sum, one of the
    scale: (d + 4) eps / 2, doubled.
    """
    return (d + 4) * eps


def log_rounding(size: np.ndarray, squares: int, eps: float) -> np.ndarray:
    """Return the rounding of logs of sums whose largest exponents are `size`.

    An exponent is the sum of squares, relative to the largest weight: half an eps for each of
    `squares`, and 8 eps for scaling, shifting, exp, the sums of tiles and the logarithm.
    """
    return (8 + squares / 2) * eps * size
