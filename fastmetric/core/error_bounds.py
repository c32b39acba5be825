"""Every term of a certified error, each with its derivation, or said to be an allowance.

The error of a sum over a tree is at most the sum of: a constant or centroid in place of a node
[SUM-1], [SUM-2], the truncation of an expansion [SUM-6], [SUM-7] and the rounding of its terms,
float32 leaves [SUM-8], underflow, and the rounding of the logarithm that is returned. Whether a
node is accepted at its error is decided in `core.walk.error_budget`.

u is the unit roundoff of float64, 2^-53, and W the weight of a node. Functions that are compiled
keep the order of their operations: reassociation would void a bound.

Truncations are bounds. Roundings are counted to first order where the count does not depend on the
number of terms. Where it does (sums over points, passes through the levels of a tree), the worst
case grows with the number of additions and is never met, since roundings differ in sign; these
constants are allowances, and are marked as such.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit_in_order
from fastmetric.core.far_field.expansions import LOG_FACTORIALS, log_remainder
from fastmetric.core.kernels import EXPONENTIAL, GAUSSIAN, curvature_bound, slope_bound
from fastmetric.core.vector.exp import LOWEST, LOWEST_32, exp64

# Rounding of decisions. A squared distance of boxes is a sum of d squares of differences of given
# numbers, each difference within u: (d + 2) u relative; scaling, roots and radii add a few u. 1e-12
# is 9,000 u, enough for any rounding in up to 8,000 dimensions; beyond, that it is enough is an
# allowance, as roundings differ in sign. A kernel's value has s times the relative error of its
# exponent s: `log_rounding` covers that. A larger slack would open more nodes; this one is
# negligible against any tolerance above 1e-11.
SLACK = 1e-12

# A running sum times 1 - ROUND_DOWN after every addition stays below the exact one, whatever the
# number of additions: 4 u cover the rounding of the addition and of the product. 1 + ROUND_DOWN
# keeps it above.
_UNIT = 2.0**-53
ROUND_DOWN = 4 * _UNIT

# Rounding of an expansion, relative to the sum of the absolute values of its terms, of which there
# are at most 120 (d = 3). A leaf's coefficients are within 630 u (576 points and powers of degree 7
# at 7 u a degree), every level of nodes or cells that they are moved through adds at most 30 u (d =
# 3, degree 7: a sum along each index), and the evaluation 50 u. 64 levels of nodes (more than there
# are) and 16 of cells: 3,080 u.
_TERM_ROUNDING = 3.5e-13
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
#     FLOAT32_UNIT ((d + 5.2) s + 2.1 |a| sqrt(2 s)).
# Rounding both sides moves g by at most FLOAT32_UNIT (|a| + |a + g|) and s by |g| times that:
# 2 |a| sqrt(2 s) + 2 s. The subtraction, squared, adds 2 s, the d squares and their sum d s, the
# factor 1/2 nothing. The rest, 1.2 s and 0.1 |a| sqrt(2 s), is to spare. Terms with s up to
# FLOAT32_REACH are within this; those beyond are computed as some number from 0 to
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

    For a weight of 1; `spread` is the mean of |x - c|^2 / h^2; the first moment around the
    centroid vanishes.
    """
    return 0.5 * spread * curvature_bound(code, s_lo, s_hi, k_lo) * (1 + SLACK)


@jit_in_order
def centroid_rounding(weight, offset, code, s_hi, k_lo):
    """Return the error of a centroid that is `offset` h from the true one: W offset slope."""
    return weight * offset * slope_bound(code, s_hi, k_lo)


@jit_in_order
def center_offset(parts, widest, largest, d):
    """Return how far rounding moves a centroid of some points, or of two children's, at most.

    The weighted mean of `parts` offsets from a corner (for children: from one of them) is rounded
    at most parts + 5 times, each relative to the widest side of the box; the corner is added with
    one rounding relative to the largest coordinate. The rounding of the children's own centres
    comes on top: their mean is no farther off than the worse of them.
    """
    return np.sqrt(d) * _UNIT * ((parts + 6) * widest + 2 * largest)


class Expansion(NamedTuple):
    """What the error of an expansion depends on, lengths in units of h.

    A far-field expansion has u = (x - c) / h, a local one the sum of the offsets of both sides.
    """

    weight: float
    spread: float  # the mean of |u|^2
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

    That of its exponents, of exp (8 units; measured: below 3), and of the weights, the products and
    their sum in any order, one unit a point and one more: 9 units and one a point, of 12 and one a
    point.
    """
    exponents = (d + 5.2) * FLOAT32_REACH + 2.1 * FLOAT32_RADIUS * math.sqrt(2 * FLOAT32_REACH)
    return (exponents + 12 + longest) * FLOAT32_UNIT


@jit_in_order
def float32_tail_error(weight, s_hi):
    """Return the error of the terms beyond FLOAT32_REACH; `s_hi` is the largest exponent."""
    return weight * _FLOAT32_TAIL if s_hi > FLOAT32_REACH else 0.0


def distance_slack(eps: float) -> float:
    """Return the relative error of the argument of a kernel: 13 units, eps / 2 each.

    Ten of a squared distance (`accurate_sq_distances`), two of the scale and one of the product
    with it. In float64, 1 + 6.5 eps is rounded to 1 + 6 eps. Twelve units are enough at the rim,
    where the last one counts: roundings are relative to the power of two below a number, and as
    the squared distance times the scale is 1 there, those of one of the two count half.
    """
    return 6.5 * eps


def log_rounding(d: int, size: np.ndarray, eps: float) -> np.ndarray:
    """Return the rounding of logs of sums [SUM-9], in units of eps / 2 at most 15 (d + size).

    `size` is at least |log S|, and log(W / S), W the total weight, which the mean exponent of the
    terms of S does not exceed. For every term:

    * its exponent: `distance_slack`, 13 units times the exponent; and of the shift;
    * its kernel: 7.4 units of exp at most (3 in float32), 1.6 + 17 s for a small exponent s
      (measured); 4 of a compact one, at its centre 3;
    * its product with the weight, 1 unit, and the weight in float32, 1 unit;
    * the sum, however long: 3 units in a row of a tile, 1 that its carry misses
      (`register_blocks.add_with_carry`) and 3 of its lanes, 1 of total and carry;
    * or, for a node that is a constant, in place of product and row: 1 of its weight, 2 of its
      product with the sum of two kernels, 6 of the levels of cells that it is handed down.

    For d = 1, where the exponent has 5 units and not 13, this is 9 or 10 units, those of the
    exponential, and 7 times the exponent: below 15 (1 + size) for any size.

    The logarithm takes 2 units times its size in float64. In float32 it is taken in float64, and
    rounding the bounds outwards to float32 takes these two units.
    """
    return eps * (7.5 * d + (7.5 if eps < 1e-10 else 6.5) * size)


def product_rounding(depth: int, slabs: int, eps: float) -> float:
    """Return the error of an exponent out of products, relative to half the squares of both rows.

    [SUM-12] With H = (|y_i|^2 + |y_j|^2) / 2 an exponent t = |y_i - y_j|^2 / 2 is H - y_i . y_j, at
    most 2 H, and in units of eps / 2 times H it is off by at most

    * `depth` by a product of so many coordinates, in any order, as |y_i| |y_j| <= H, and one for
      every further slab that is added to it;
    * 16 by the rounding of the rows, which are centred, scaled and written: two units of a row move
      a distance r by 2 (|y_i| + |y_j|) units, and t by 8; the scale, within 1.5 units, t by 6; in
      float32 one unit of a row is its own, and the others are of float64;
    * 11 by the two halves, within ten units of float64, and rounded once more in float32;
    * 7 by the sum of the halves, its difference to the product, that to a shift, and the shift.

    Two more cover the products of such errors.
    """
    return (depth + slabs - 1 + 36) * eps / 2


class ProductTolerance(NamedTuple):
    """What one rounding of products may change, where they take the place of differences.

    The rule of all questions that have no certificate of their own; sums of densities, which have
    one, go by `product_rounding`.
    """

    float64: float
    float32: float

    def allows(self, size: float, dtype: np.dtype) -> bool:
        """Return whether eps times the size of what cancels is within the tolerance.

        The size is relative to the kernel's: squares of rows, or rows, over its width.
        """
        eps = float(np.finfo(dtype).eps)
        return bool(eps * size < (self.float64 if eps < 1e-10 else self.float32))


PAIR_GRADIENTS = ProductTolerance(1e-13, 2e-5)  # differences w (q - r), of the longest row
E_STEPS = ProductTolerance(1e-12, 5e-4)  # exponents, in the mean of the rows
LOCAL_GAUSSIANS = ProductTolerance(2.5e-10, 2.5e-3)  # exponents, of the longest row and query

COARSEST_SLACK = 0.05  # of squared distances; up to it the bounds of `MapRounding` are proven


class MapRounding(NamedTuple):
    """How far the rounding of a map of the rows moves distances [SUM-11].

    The distance r of a point to a query z of norm |z|, both in units of the bandwidth, is off by at
    most `of_rows` (2 |z| + r) + `of_map` r.
    """

    of_rows: float = 0.0
    of_map: float = 0.0

    def log_error(self, code: int, norms: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Return how far log sums at queries of these norms (m,) are off at most.

        `size` (m,) is at least log(W / S). For a compact kernel within half its reach only:
        `slack` is the rest.
        """
        near, far = 2 * self.of_rows * norms, self.of_rows + self.of_map
        if code == GAUSSIAN:
            return near * np.sqrt(2 * size) + 2 * size * far * (1 + far) + near**2
        return near + far * size if code == EXPONENTIAL else 3.1 * (near + far)

    def slack(self, largest: float) -> float:
        """Return the relative change of squared distances between 1/4 and 1.

        `largest` is that of the norms of queries that any point is near. From `COARSEST_SLACK` on
        neither this nor `log_error` bounds a compact kernel.
        """
        return 4.2 * (2 * self.of_rows * largest + self.of_rows + self.of_map)


class Disturbance(NamedTuple):
    """What separates computed class sums from those of the data given, at most [SUM-10]."""

    relative: float  # of a sum, whatever its exponents
    of_logs: float  # of a log sum, relative to 1 + its size
    of_exponents: float  # of an exponent, relative to it
    moved: np.ndarray  # (m,): how far rounding moves a query and a point, added up

    reach: float  # the exponent beyond that of the nearest point, up to which terms are summed
    log_least: float  # of the least weight

    def beyond_cutoff(self, sq_dist: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Return whether exact distances of the queries `which` (m,) exceed 1 for certain."""
        return np.sqrt(sq_dist) * (1 - self.of_exponents - SLACK) - self.moved[which] > 1

    def widened(
        self,
        code: int,
        ends: np.ndarray,
        log_sizes: tuple[np.ndarray, np.ndarray],
        shifted: np.ndarray,
    ) -> np.ndarray:
        """Return bounds (2, m) of the exact log sums from the bounds `ends` of computed ones.

        `log_sizes` (m,) are the logs of the weight and of the number of all points of a sum, of
        weights of at most 1; a sum that is `shifted` (m,) was taken relative to its nearest point.
        """
        log_weight, log_number = log_sizes
        relative = self.relative + self.of_logs * (1 + np.where(np.isfinite(ends), np.abs(ends), 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            if code == GAUSSIAN:
                mean = np.maximum(0, log_weight - ends)  # at least the mean exponent
                by = self.of_exponents * mean + 2 * self.moved * np.sqrt(mean) + self.moved**2
                by = relative + np.where(np.isfinite(by), by, 0)
                nearest = np.where(shifted, np.maximum(0, self.log_least - ends[1]), 0)
                least = (1 - self.of_exponents) * np.sqrt(nearest + self.reach) - self.moved
                # What is lost may be a product with a weight, whatever that is. Such a product may
                # also be rounded up: the lower bound does without it, too.
                lost = log_number - np.maximum(0, least) ** 2
                lower, upper = ends[0] - by[0], ends[1] + by.max(axis=0)
                share = np.where(lost < lower, np.exp(np.minimum(lost - lower, 0)), 1)
                return np.stack([lower + np.log1p(-share), np.logaddexp(upper, lost)])
            change = self.of_exponents * (1 + self.moved) ** 2 + 2 * self.moved + self.moved**2
            roots = np.exp((ends - log_weight) / 2)
            lower = np.maximum(0, roots[0] * (1 - relative[0]) - change)
            return log_weight + 2 * np.log([lower, roots[1] * (1 + relative[1]) + change])


def sum_disturbance(
    shape: tuple[int, int], eps: float, moved: np.ndarray, log_least: float, exact: bool
) -> Disturbance:
    """Return the disturbance of class sums over n points in d dimensions, `shape`.

    If not `exact`, `ends` contain the rounding of the sums. That of sums over all pairs, or within
    a cutoff, is, in the precision of the points, 576 terms of a tile in any order, and 12 units of
    exp, weight and product; in float64 one addition for every 40 points at most (a tile has 48
    rows, and 576 columns that are added in two parts, the sum rescaled before each), and 8 units of
    the logarithm and of what is made of it.
    """
    (n, d), unit = shape, eps / 2
    if not exact:
        return Disturbance(0.0, 8 * _UNIT, 0.0, moved, np.inf, log_least)
    reach = -float(LOWEST if eps < 1e-10 else LOWEST_32)
    off = (576 + 12) * unit, (n / 40 + 8) * _UNIT, (d + 4) * unit
    return Disturbance(*off, moved, reach, log_least)


def projection_rounding(n_features: int, eps: float) -> float:
    """Return how far rounding moves a projected row, relative to |A| |x|, the map's Frobenius norm.

    The product of D terms in any order, the rounding of the map, of the centred row, and of the
    result.
    """
    return (n_features + 4) * eps / 2
