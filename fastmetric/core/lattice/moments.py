"""Points in one dimension as moments of small parts of a lattice's cells."""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit, uncounted
from fastmetric.core.lattice.stencils import AXES

TERMS = 4  # powers of a point's place in its part


@jit
def part_moments(rows, weights, first, last, lattice, parts):
    """Return the sums of w t^k (cells * parts, TERMS) over the points first:last of a line.

    Cells have `parts` parts, a power of two, and t in [-1/2, 1/2] is the place in one. `rows`
    (n, 1); `weights` (n,), or (1,) of all.
    """
    made = np.zeros((lattice.shape[AXES - 1] * parts, TERMS))
    rows, weights, moments = uncounted((rows, weights, made))
    start, scale = lattice.origin[AXES - 1], lattice.inverse_spacing * parts
    common = weights.size == 1
    for j in range(first, last):
        place = (rows[j, 0] - start) * scale
        part, w = np.int64(place), weights[0 if common else j]
        t = place - part - 0.5
        moments[part, 0] += w
        moments[part, 1] += w * t
        moments[part, 2] += w * (t * t)
        moments[part, 3] += w * (t * t * t)
    return made
