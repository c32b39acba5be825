"""The kernel of a lattice [GRD-1], written from the formula."""

from __future__ import annotations

import numpy as np


def lattice_kernel(x, y, plan, origin):
    """Return the kernel of points x and y (d,) on the lattice origin + spacing * integers."""
    product = 1.0
    for a, b, start in zip(x, y, origin, strict=True):
        product *= _along_an_axis((a - start) / plan.spacing, (b - start) / plan.spacing, plan)
    return product


def _along_an_axis(a, b, plan):
    """Return the factor of one coordinate, of places a and b in cells."""
    m = np.sqrt(1 - 2 * plan.sigma**2)
    u = np.floor(a) + np.arange(-plan.width // 2 + 1, plan.width // 2 + 1)
    v = np.floor(b) + np.arange(-plan.width // 2 + 1, plan.width // 2 + 1)
    gaps = u[:, None] - v
    middle = np.where(np.abs(gaps) <= plan.reach, _normal(gaps * plan.spacing, m), 0.0)
    left = _normal((a - u) * plan.spacing, plan.sigma)
    right = _normal((b - v) * plan.spacing, plan.sigma)
    return np.sqrt(2 * np.pi) * plan.spacing**2 * (left @ middle @ right)


def _normal(x, deviation):
    """Return the normal density of a deviation at x."""
    return np.exp(-((x / deviation) ** 2) / 2) / (deviation * np.sqrt(2 * np.pi))
