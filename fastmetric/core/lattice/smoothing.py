"""A lattice convolved with a symmetric kernel along one axis, directly: no term is negative.

A transform would err by a share of the largest value; here the error is relative to every value.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit

STRIP = 32  # columns that are convolved together


@jit
def smooth(values, kernel, first, last):
    """Convolve values (a, b, c) along b with kernel (m + 1,), its centre first, in place.

    Of the a * ceil(c / STRIP) strips those from `first` to `last`; for c = 1 a strip is a row.
    """
    columns = (values.shape[2] + STRIP - 1) // STRIP
    for strip in range(first, last):
        plane = values[strip // columns]
        if values.shape[2] == 1:
            _smooth_row(plane[:, 0], kernel)
        else:
            start = strip % columns * STRIP
            _smooth_columns(plane[:, start : start + STRIP], kernel)


@jit
def _smooth_row(row, kernel):
    """Convolve a row (b,) in place."""
    b, reach = row.size, kernel.size - 1
    if not np.any(row):
        return
    padded = np.zeros(b + 2 * reach, row.dtype)
    padded[reach : reach + b] = row
    for i in range(b):
        row[i] *= kernel[0]
    for k in range(1, kernel.size):
        tap = kernel[k]
        left, right = padded[reach - k : reach - k + b], padded[reach + k : reach + k + b]
        for i in range(b):
            row[i] += tap * (left[i] + right[i])


@jit
def _smooth_columns(strip, kernel):
    """Convolve the columns of a strip (b, at most STRIP) in place."""
    (b, c), reach = strip.shape, kernel.size - 1
    if not np.any(strip):
        return
    padded = np.zeros((b + 2 * reach, STRIP), strip.dtype)
    for i in range(b):
        for j in range(c):
            padded[reach + i, j] = strip[i, j]
    total = np.empty(STRIP, strip.dtype)
    for i in range(b):
        here = padded[reach + i]
        for j in range(STRIP):
            total[j] = kernel[0] * here[j]
        for k in range(1, kernel.size):
            tap, before, after = kernel[k], padded[reach + i - k], padded[reach + i + k]
            for j in range(STRIP):
                total[j] += tap * (before[j] + after[j])
        for j in range(c):
            strip[i, j] = total[j]
