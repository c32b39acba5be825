"""Polynomials of a series or of a local expansion, at many points at once, and their transposes.

Two bases over multi-indices a, each a product over the coordinates: the Hermite polynomials
He_a(v) around a node of points [SUM-6], and v^a / a! around the middle of a query cell
[SUM-7].
"""

from __future__ import annotations

from fastmetric._jit import jit
from fastmetric.core.vector.compensated_sums import add_to
from fastmetric.core.vector.exp import exp

HERMITE, TAYLOR = 0, 1  # the bases


@jit
def add_series(series, degree, coefficients, v, shift, scratch, sums):
    """Add a node's expansion at the points v (d, m), cut off beyond `degree`, to their sums.

    `sums` are totals and carries (m,) of `core.vector.compensated_sums`.

    `scratch` is overwritten: see `scratch_rows`.
    """
    fill(series, degree, v, HERMITE, scratch)
    field = contracted(series, degree, coefficients, HERMITE, -1, scratch)
    exponents = half_sq_norms(v, scratch)
    totals, carries = sums
    for q in range(totals.size):
        add_to(totals, carries, q, field[q] * exp(shift - exponents[q]))


@jit
def half_sq_norms(v, scratch):
    """Return |v_q|^2 / 2 of the points v (d, m), the first row of `scratch`."""
    out, first = scratch[0], v[0]
    for q in range(out.size):
        out[q] = 0.5 * first[q] * first[q]
    for k in range(1, v.shape[0]):
        row = v[k]
        for q in range(out.size):
            out[q] += 0.5 * row[q] * row[q]
    return out


@jit
def scratch_rows(series):
    """Return how many rows of numbers the functions below need: the bases, and twice the sums."""
    return _first_sum(series) + 2 * series.prefix_degrees.shape[1]


@jit
def _first_sum(series):
    """Return the first row of `scratch` behind the bases of the coordinates."""
    return series.indices.shape[1] * (series.degree + 2)


@jit
def fill(series, degree, v, basis, scratch):
    """Write the bases of the coordinates of v (d, m), up to `degree`, into the rows of `scratch`.

    He_n(x) or x^n / n!. The slopes of Hermite sums need one degree more than the sums.
    """
    for k in range(v.shape[0]):
        rows = scratch[k * (series.degree + 2) :]
        if basis == HERMITE:
            _fill_hermite(v[k], degree, rows)
        else:
            _fill_taylor(v[k], degree, rows)


@jit
def _powers(series, k, basis, derived, scratch):
    """Return the rows of one coordinate's basis, degree 0 first, or of what stands for its slope.

    The slopes are He_(n+1)(x), in the next row, and x^(n-1) / (n-1)!, in the previous one.
    """
    first = derived if basis == HERMITE else 1 - derived
    return scratch[k * (series.degree + 2) + first :]


@jit
def contracted(series, degree, coefficients, basis, along, scratch):
    """Return sum_a M_a B_a (m,), a row of `scratch`, for |a| <= degree, at the points of `fill`.

    Its slope along an axis if along >= 0: of a Hermite sum times exp(-|v|^2/2), with the sign
    turned and without that factor.
    """
    d, first = series.indices.shape[1], _first_sum(series)
    for k in range(d - 1, -1, -1):
        powers = _powers(series, k, basis, 1 if k == along else 0, scratch)
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


@jit
def add_moments(series, degree, strengths, basis, scratch, moments):
    """Add sum_q strengths[q] B_a(v_q) to moments[a], for |a| <= degree, at the points of `fill`.

    The transpose of `contracted`: the products of the first indices grow from level to level.
    """
    d, most = series.indices.shape[1], series.prefix_degrees.shape[1]
    here, there = _first_sum(series), _first_sum(series) + most
    scratch[here, : strengths.size] = strengths
    for k in range(d):
        powers = _powers(series, k, basis, 0, scratch)
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


@jit
def _dot(x, y):
    """Return sum x y."""
    total = 0.0
    for q in range(x.size):
        total += x[q] * y[q]
    return total


@jit
def _multiply(x, y, out):
    """Write x y into `out`."""
    for q in range(out.size):
        out[q] = x[q] * y[q]


@jit
def _fill_hermite(x, degree, rows):
    """Write He_n(x) into row n."""
    one, first = rows[0], rows[1]
    for q in range(x.size):
        one[q], first[q] = 1.0, x[q]
    for n in range(1, degree):
        below, here, above = rows[n - 1], rows[n], rows[n + 1]
        for q in range(x.size):
            above[q] = x[q] * here[q] - n * below[q]


@jit
def _fill_taylor(x, degree, rows):
    """Write x^n / n! into row n + 1, and 0 into the first."""
    zero, one = rows[0], rows[1]
    for q in range(x.size):
        zero[q], one[q] = 0.0, 1.0
    for n in range(degree):
        here, above, factor = rows[n + 1], rows[n + 2], 1.0 / (n + 1)
        for q in range(x.size):
            above[q] = x[q] * here[q] * factor


@jit
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


@jit
def _contract_vectors(vectors, last, powers, out):
    """Write sum_{a <= last} vectors[a] powers[a] into out (m,), which may be vectors[<= 0]."""
    x, y = vectors[0], powers[0]
    for q in range(out.size):
        out[q] = x[q] * y[q]
    for a in range(1, last + 1):
        x, y = vectors[a], powers[a]
        for q in range(out.size):
            out[q] += x[q] * y[q]
