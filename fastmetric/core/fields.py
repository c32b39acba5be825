"""Polynomials of a series or of a local expansion, at many points at once, and their transposes.

Two bases over multi-indices a, each a product over the coordinates: the Hermite polynomials
He_a(v) around a node of points [SUM-6], and v^a / a! around the middle of a crowd of queries
[SUM-7].
"""

from __future__ import annotations

from fastmetric._jit import compiled
from fastmetric.core.exp import exp

HERMITE, TAYLOR = 0, 1  # the bases


@compiled
def add_series(series, degree, coefficients, v, shift, scratch, totals):
    """Add a node's field to totals (m,) at the points v (d, m), cut off beyond `degree`.

    `scratch` is overwritten: see `scratch_rows`.
    """
    field = contracted(series, degree, coefficients, v, HERMITE, -1, scratch)
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
def contracted(series, degree, coefficients, v, basis, along, scratch):
    """Return sum_a M_a B_a(v) (m,), a row of `scratch`, for |a| <= degree; v (d, m).

    Its slope along an axis if along >= 0: of a Hermite sum times exp(-|v|^2/2), with the sign
    turned and without that factor.
    """
    d, first = v.shape[0], series.degree + 2
    powers = scratch[: degree + 1]
    for k in range(d - 1, -1, -1):
        _fill(v[k], basis, 1 if k == along else 0, powers)
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
def add_moments(series, degree, strengths, v, basis, scratch, moments):
    """Add sum_q strengths[q] B_a(v_q) to moments[a], for |a| <= degree; v (d, m).

    The transpose of `contracted`: the products of the first indices grow from level to level.
    """
    d, most = v.shape[0], series.prefix_degrees.shape[1]
    here, there = series.degree + 2, series.degree + 2 + most
    scratch[here, : strengths.size] = strengths
    powers = scratch[: degree + 1]
    for k in range(d):
        _fill(v[k], basis, 0, powers)
        at = 0
        for t in range(series.prefix_counts[k]):
            prefix = series.prefix_degrees[k, t]
            for a in range(degree - prefix + 1):
                if k == d - 1:
                    moments[at + a] += _dot(scratch[here + t], powers[a])
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
def _fill(x, basis, derived, values):
    """Write the basis of one coordinate, degrees 0 .. p, into values (p + 1, m).

    He_n(x) or x^n / n!; `derived` (0 or 1): what stands for the slope of each, He_(n+1)(x) and
    x^(n-1) / (n-1)!.
    """
    if basis == HERMITE:
        _fill_hermite(x, derived, values)
        return
    values[0, :] = 1.0 - derived
    if values.shape[0] > 1:
        for q in range(x.size):
            values[1, q] = derived + (1 - derived) * x[q]
    for n in range(1, values.shape[0] - 1):
        here, above, factor = values[n], values[n + 1], 1.0 / (n + 1 - derived)
        for q in range(x.size):
            above[q] = x[q] * here[q] * factor


@compiled
def _fill_hermite(x, derived, values):
    """Write He_(n + derived)(x) into values (p + 1, m)."""
    for q in range(x.size):
        values[0, q] = x[q] if derived else 1.0
    if values.shape[0] > 1:
        for q in range(x.size):
            values[1, q] = x[q] * x[q] - 1 if derived else x[q]
    for n in range(1, values.shape[0] - 1):
        below, here, above, factor = values[n - 1], values[n], values[n + 1], float(n + derived)
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
