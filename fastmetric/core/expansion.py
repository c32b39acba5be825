"""The Gaussian far field of a node: a Hermite series around its centre [SUM-6].

With v = (q - c)/h and u = (x - c)/h,

    exp(-|v - u|^2 / 2) = exp(-|v|^2 / 2) sum_a (u^a / a!) He_a(v)

over multi-indices a. Cut off beyond total degree p this is the Taylor polynomial in u. On the
line from c to x the kernel is a Gaussian in one variable, so that the remainder of a term is
at most

    |u|^(p+1) / (p+1)! * sup { |He_{p+1}(y)| exp(-r^2 / 2) : |y| <= r, r >= r_lo },

r_lo the distance (in h) of q to the nearest point on that line, hence to the node's box.

The coefficients of a node, sum_j w_j u_j^a / a!, stand in lexicographic order of a: those that
differ in the last index are neighbours, so that the sum over a is taken index by index, the
last one first.
"""

from __future__ import annotations

from functools import cache
from math import lgamma
from typing import NamedTuple

import numpy as np

from fastmetric._jit import compiled, exact_order
from fastmetric.core.exp import exp

HIGHEST = {1: 12, 2: 9, 3: 7, 4: 3}  # the degree kept, by dimension; 1 (the centroid) beyond
_STEP = 1 / 16  # of the table of remainders
_FAR = 20.0  # where it ends: from there on the supremum is at r_lo, and |He_n(r)| <= r^n


class Series(NamedTuple):
    """What a series in d variables of degree at most P needs to know."""

    degree: int  # P
    prefix_degrees: np.ndarray  # (d, most): total degrees of the prefixes of length 0..d-1
    prefix_counts: np.ndarray  # (d,): how many of them
    indices: np.ndarray  # (C, d): the multi-indices
    one_less: np.ndarray  # (C, d): where a - e_k stands; -1 if a_k = 0
    log_remainders: np.ndarray  # (P + 2, cells): log of the supremum above, from a cell on


def highest_degree(d: int) -> int:
    """Return the degree of the series kept in d dimensions; 1 is the centroid alone."""
    return HIGHEST.get(d, 1)


def _multi_indices(d: int, degree: int) -> list[tuple[int, ...]]:
    """Return the multi-indices of total degree at most `degree`, in lexicographic order."""
    if d == 0:
        return [()]
    return [(a, *b) for a in range(degree + 1) for b in _multi_indices(d - 1, degree - a)]


def _log_remainders(highest: int) -> np.ndarray:
    """Return log sup { |He_n(y)| exp(-r^2/2) : |y| <= r, r >= r_i } on the grid of r_i."""
    fine = 64  # points to a cell; between them the function moves by far less than the 1 %
    r = np.arange(int((_FAR + 20) / _STEP) * fine) * (_STEP / fine)
    before, here = np.zeros_like(r), np.ones_like(r)
    table = []
    for n in range(highest + 1):
        with np.errstate(divide="ignore"):  # He_1(0) = 0; the supremum further out is not
            log_sup = np.log(np.maximum.accumulate(np.abs(here))) - r * r / 2
        log_sup = np.maximum.accumulate(log_sup[::-1])[::-1] + 0.01
        table.append(log_sup[::fine][: int(_FAR / _STEP)])
        before, here = here, r * here - n * before
    return np.array(table)


@cache
def make_series(d: int) -> Series:
    """Return the tables of the series in d dimensions."""
    degree = highest_degree(d)
    prefixes = [[sum(a) for a in _multi_indices(length, degree)] for length in range(d)]
    counts = np.array([len(degrees) for degrees in prefixes])
    padded = np.zeros((d, counts.max()), np.int64)
    for row, degrees in zip(padded, prefixes, strict=True):
        row[: len(degrees)] = degrees
    indices = _multi_indices(d, degree)
    place = {a: i for i, a in enumerate(indices)}
    one_less = [[place.get((*a[:k], a[k] - 1, *a[k + 1 :]), -1) for k in range(d)] for a in indices]
    return Series(
        degree, padded, counts, np.array(indices), np.array(one_less), _log_remainders(degree + 1)
    )


LOG_FACTORIALS = np.array([lgamma(n + 1) for n in range(max(HIGHEST.values()) + 2)])


@exact_order
def log_remainder(series, n, r):
    """Return log sup { |He_n(y)| exp(-r'^2/2) : |y| <= r', r' >= r }, at most 1 % too large."""
    if r >= _FAR:
        return n * np.log(r) - r * r / 2
    return series.log_remainders[n, int(r / _STEP)]


@compiled
def add_moments(series, u, w, coefficients):
    """Add w u^a / a! to the coefficients (C,) of a node, for one point u (d,)."""
    monomials = np.empty(coefficients.size)
    monomials[0] = w
    coefficients[0] += w
    for i in range(1, coefficients.size):
        k = u.size - 1
        while series.indices[i, k] == 0:
            k -= 1
        monomials[i] = monomials[series.one_less[i, k]] * u[k] / series.indices[i, k]
        coefficients[i] += monomials[i]


@compiled
def add_shifted_moments(series, child, step, coefficients):
    """Add a child's coefficients, moved by `step` (d,) = (c_child - c) / h, to its parent's.

    One index after the other: (u + step)^a / a! = sum_b u^b / b! * step^(a-b) / (a-b)!.
    """
    moved = child.copy()
    for k in range(step.size):
        # From the highest a on: what is read (lower a_k) has not been changed yet.
        for i in range(child.size - 1, -1, -1):
            power, total, at, j = 1.0, moved[i], series.one_less[i, k], 1
            while at >= 0:
                power *= step[k] / j
                total += moved[at] * power
                at = series.one_less[at, k]
                j += 1
            moved[i] = total
    for i in range(child.size):
        coefficients[i] += moved[i]


@compiled
def add_series(series, degree, coefficients, v, shift, scratch, totals):
    """Add a node's field to totals (m,) at the points v (d, m), cut off beyond `degree`.

    `scratch` is overwritten: see `scratch_rows`.
    """
    field = sum_series(series, degree, coefficients, v, -1, scratch)
    exponents = half_sq_norms(v, scratch)
    for q in range(totals.size):
        totals[q] += field[q] * exp(shift - exponents[q])


@compiled
def half_sq_norms(v, scratch):
    """Return |v_q|^2 / 2 of the points v (d, m), the first row of `scratch`."""
    out = scratch[0]
    out[:] = 0
    for k in range(v.shape[0]):
        row = v[k]
        for q in range(out.size):
            out[q] += 0.5 * row[q] * row[q]
    return out


@compiled
def scratch_rows(series):
    """Return how many rows of numbers the functions below need."""
    return series.degree + 2 + 2 * series.prefix_degrees.shape[1]


@compiled
def sum_series(series, degree, coefficients, v, raised, scratch):
    """Return sum_a M_a He_a(v) (m,), a row of `scratch`; a + e_raised for a if raised >= 0.

    The raised sum, times exp(-|v|^2/2), is minus the derivative of the field along that axis.
    """
    d, first = v.shape[0], series.degree + 2
    for k in range(d - 1, -1, -1):
        _hermite(v[k], scratch[: degree + 2])
        powers = scratch[1:] if k == raised else scratch
        at = 0
        for t in range(series.prefix_counts[k]):
            prefix = series.prefix_degrees[k, t]
            out = scratch[first + t]
            if prefix <= degree:
                if k == d - 1:
                    _contract_numbers(coefficients[at:], degree - prefix, powers, out)
                else:
                    _contract_vectors(scratch[first + at :], degree - prefix, powers, out)
            at += series.degree - prefix + 1
    return scratch[first]


@compiled
def add_adjoint(series, degree, strengths, v, scratch, adjoint):
    """Add sum_q strengths[q] He_a(v_q) to adjoint[a], for |a| <= degree; v (d, m).

    The transpose of `sum_series`: the products of the first indices grow from level to level.
    """
    d, most = v.shape[0], series.prefix_degrees.shape[1]
    here, there = series.degree + 2, series.degree + 2 + most
    scratch[here, : strengths.size] = strengths
    for k in range(d):
        powers = scratch[: degree + 2]
        _hermite(v[k], powers)
        at = 0
        for t in range(series.prefix_counts[k]):
            prefix = series.prefix_degrees[k, t]
            for a in range(degree - prefix + 1):
                if k == d - 1:
                    adjoint[at + a] += _dot(scratch[here + t], powers[a])
                else:
                    _multiply(scratch[here + t], powers[a], scratch[there + at + a])
            at += series.degree - prefix + 1
        here, there = there, here


@compiled
def _dot(x, y):
    """Return sum x y."""
    total = 0.0
    for q in range(x.size):
        total += x[q] * y[q]
    return total


@compiled
def _multiply(x, y, out):
    """Write x y into `out`."""
    for q in range(out.size):
        out[q] = x[q] * y[q]


@compiled
def hand_down(series, adjoint, step, child):
    """Add a node's adjoint to its child's; step (d,) = (c_child - c) / h.

    The transpose of `add_shifted_moments`.
    """
    moved = adjoint.copy()
    for k in range(step.size):
        before = moved.copy()
        for i in range(moved.size):
            power, at, j = 1.0, series.one_less[i, k], 1
            while at >= 0:
                power *= step[k] / j
                moved[at] += before[i] * power
                at = series.one_less[at, k]
                j += 1
    for i in range(child.size):
        child[i] += moved[i]


@compiled
def add_slope(series, adjoint, u, monomials, slope):
    """Add the gradient of sum_a adjoint_a u^a / a! at u (d,) to slope (d,)."""
    monomials[0] = 1.0
    for i in range(1, adjoint.size):
        k = u.size - 1
        while series.indices[i, k] == 0:
            k -= 1
        monomials[i] = monomials[series.one_less[i, k]] * u[k] / series.indices[i, k]
    for i in range(1, adjoint.size):
        for k in range(u.size):
            at = series.one_less[i, k]
            if at >= 0:
                slope[k] += adjoint[i] * monomials[at]


@compiled
def _hermite(x, values):
    """Write He_0(x) .. He_p(x) into values (p + 1, m)."""
    values[0, :] = 1.0
    if values.shape[0] > 1:
        values[1, :] = x
    for n in range(1, values.shape[0] - 1):
        below, here, above, factor = values[n - 1], values[n], values[n + 1], float(n)
        for q in range(x.size):
            above[q] = x[q] * here[q] - factor * below[q]


@compiled
def _contract_numbers(numbers, last, powers, out):
    """Write sum_{a <= last} numbers[a] powers[a] into out (m,), two at a time."""
    x, first = numbers[0], powers[0]
    for q in range(out.size):
        out[q] = x * first[q]
    a = 1
    while a + 1 <= last:
        x, y, first, second = numbers[a], numbers[a + 1], powers[a], powers[a + 1]
        for q in range(out.size):
            out[q] += x * first[q] + y * second[q]
        a += 2
    if a == last:
        x, first = numbers[a], powers[a]
        for q in range(out.size):
            out[q] += x * first[q]


@compiled
def _contract_vectors(vectors, last, powers, out):
    """Write sum_{a <= last} vectors[a] powers[a] into out (m,), which may be vectors[<= 0]."""
    x, y = vectors[0], powers[0]
    for q in range(out.size):
        out[q] = x[q] * y[q]
    for a in range(1, last + 1):
        x, y = vectors[a], powers[a]
        for q in range(out.size):
            out[q] += x[q] * y[q]
