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

A query cell accepts a node as a polynomial in t = (q - c')/h around its own middle c'
[SUM-7]: the Taylor polynomial of the kernel in t - u, of total degree p,

    sum_j w_j exp(-|v0 + t - u_j|^2 / 2) ~ sum_b (t^b / b!) L_b,
    L_b = (-1)^|b| exp(-|v0|^2 / 2) sum_{|a| + |b| <= p} M_a He_{a+b}(v0),  v0 = (c' - c)/h,

whose remainder is the one above with |t| + |u| for |u|. The transpose of this map gives
the adjoint of the node's coefficients.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement
from math import lgamma
from typing import NamedTuple

import numpy as np

from fastmetric._jit import jit, jit_in_order
from fastmetric.core.vector.exp import exp64

HIGHEST = {1: 12, 2: 9, 3: 7, 4: 3}  # the degree kept, by dimension; 1 (the centroid) beyond
_STEP = 1 / 16  # of the table of remainders
_FAR = 20.0  # where it ends: from there on the supremum is at r_lo, and |He_n(r)| <= r^n


class Series(NamedTuple):
    """What a series in d variables of degree at most P needs to know."""

    degree: int  # P
    prefix_degrees: np.ndarray  # (d, most): total degrees of the prefixes of length 0..d-1
    prefix_counts: np.ndarray  # (d,): how many of them
    indices: np.ndarray  # (C, d): the multi-indices
    term_counts: np.ndarray  # (P + 1,): how many of them have a total degree up to 0, 1, ..
    one_less: np.ndarray  # (C, d): where a - e_k stands; -1 if a_k = 0
    signs: np.ndarray  # (C,): (-1)^|a|
    sums: np.ndarray  # (T, 3): where a, b and a + b stand, |a + b| ascending
    sum_counts: np.ndarray  # (P + 1,): how many of them have |a + b| up to 0, 1, ..
    log_remainders: np.ndarray  # (P + 2, cells): log of the supremum above, from a cell on


def highest_degree(d: int) -> int:
    """Return the degree of the series kept in d dimensions; 1 is the centroid alone."""
    return HIGHEST.get(d, 1)


def _multi_indices(d: int, degree: int) -> list[tuple[int, ...]]:
    """Return the multi-indices of total degree at most `degree`, in lexicographic order."""
    chosen = (c for m in range(degree + 1) for c in combinations_with_replacement(range(d), m))
    return sorted(tuple(np.bincount(c, minlength=d).tolist()) if c else (0,) * d for c in chosen)


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
    prefixes = [[0]]  # an index may be followed by what is left of the degree
    for _ in range(d - 1):
        prefixes.append([m + a for m in prefixes[-1] for a in range(degree - m + 1)])
    counts = np.array([len(degrees) for degrees in prefixes])
    padded = np.zeros((d, counts.max()), np.int64)
    for row, degrees in zip(padded, prefixes, strict=True):
        row[: len(degrees)] = degrees
    indices = _multi_indices(d, degree)
    place = {a: i for i, a in enumerate(indices)}
    one_less = [
        [place[(*a[:k], a[k] - 1, *a[k + 1 :])] if a[k] else -1 for k in range(d)] for a in indices
    ]
    whole = np.array(indices)
    pairs = [
        (a, b, tuple(map(sum, zip(a, b, strict=True))))
        for a, m in zip(indices, whole.sum(axis=1), strict=True)
        for b in _multi_indices(d, degree - m)
    ]
    sums = sorted((sum(c), place[a], place[b], place[c]) for a, b, c in pairs)
    totals = [total for total, *_ in sums]
    return Series(
        degree,
        padded,
        counts,
        whole,
        np.cumsum(np.bincount(whole.sum(axis=1))),
        np.array(one_less),
        (-1.0) ** whole.sum(axis=1),
        np.array(sums, np.uint32)[:, 1:].copy(),
        np.searchsorted(totals, np.arange(degree + 1), side="right"),
        _log_remainders(degree + 1),
    )


LOG_FACTORIALS = np.array([lgamma(n + 1) for n in range(max(HIGHEST.values()) + 2)])


@jit_in_order
def log_remainder(series, n, r):
    """Return log sup { |He_n(y)| exp(-r'^2/2) : |y| <= r', r' >= r }, at most 1 % too large."""
    if r >= _FAR:
        return n * np.log(r) - r * r / 2
    return series.log_remainders[n, int(r / _STEP)]


@jit
def moments_to_parent(series, child, step, coefficients):
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


@jit
def moments_to_local(series, degree, moments, v):
    """Return a Hermite expansion as a polynomial (C,) around a centre v (d,) away, in h.

    Of degree at most `degree` in both together.
    """
    d = v.size
    hermite = np.empty((d, degree + 1))
    norm = 0.0
    for k in range(d):
        hermite[k, 0] = 1.0
        if degree > 0:
            hermite[k, 1] = v[k]
        for n in range(1, degree):
            hermite[k, n + 1] = v[k] * hermite[k, n] - n * hermite[k, n - 1]
        norm += v[k] * v[k]
    products, scale = np.empty(moments.size), exp64(-0.5 * norm)
    for i in range(moments.size):
        value = scale
        for k in range(d):
            value *= hermite[k, min(degree, series.indices[i, k])]
        products[i] = value
    moved = np.zeros(moments.size)
    for i in range(series.sum_counts[degree]):
        moved[series.sums[i, 1]] += moments[series.sums[i, 0]] * products[series.sums[i, 2]]
    for i in range(moments.size):
        moved[i] *= series.signs[i]
    return moved


@jit
def local_to_child(series, adjoint, step, child):
    """Add a node's adjoint to its child's; step (d,) = (c_child - c) / h.

    The transpose of `moments_to_parent`. Powers of a step of any size may overflow, but a cell that
    is wide enough for it has no terms beyond the first, and that has no powers.
    """
    moved = adjoint.copy()
    for k in range(step.size):
        before = moved.copy()
        for i in range(moved.size):
            if before[i] == 0:
                continue
            power, at, j = 1.0, series.one_less[i, k], 1
            while at >= 0:
                power *= step[k] / j
                moved[at] += before[i] * power
                at = series.one_less[at, k]
                j += 1
    for i in range(child.size):
        child[i] += moved[i]
