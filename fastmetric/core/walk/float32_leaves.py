"""Leaves summed in float32, where the tolerance is far above its rounding [SUM-8].

Twice as many pairs fit into a vector, and the exponential is shorter. Points and queries are
taken around the centre of the leaf, in units of h, so that their rounding is relative to
distances of a few h, wherever the data lie. With u = 2^-24, g = (q - x)/h and a = (x - c)/h, an
exponent s = |g|^2 / 2 is off by at most

    u ((d + 5.2) s + 2.1 |a| sqrt(2 s)),

the first from subtracting, squaring and adding, the second from rounding both sides. The terms
up to _REACH are within this, at most; those beyond it are anything from 0 to exp(-_REACH), which
is charged as an error of the node.
"""

from __future__ import annotations

import math

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.tree.node_moments import around
from fastmetric.core.vector.register_blocks import ROWS, panel_width
from fastmetric.core.walk.query_groups import add_tile, fill_tile, place

_REACH = 20.0
_WIDEST = 8.0  # |a|, at most
_TAIL = math.exp(-_REACH) * (1 + 1e-3)
WIDTH = panel_width(np.dtype(np.float32))
COARSEST = 5e-4  # an error; beyond, what is left out as of second order would be above 1e-3 of it
LIGHTEST = 1e-25  # of the weights: times exp(-_REACH) it is far from underflow


def float32_error(d: int, longest: int) -> float:
    """Return the relative error of a sum over a leaf of at most `longest` points, tails aside.

    That of its exponents, of exp (8 u), and of the weights and their sum, one u a point.
    """
    exponents = (d + 5.2) * _REACH + 2.1 * _WIDEST * math.sqrt(2 * _REACH)
    return (exponents + 12 + longest) * 2.0**-24


@jit
def write_float32(ref, inverse_h, panels, first, last):
    """Write the leaves among the nodes first:last into panels (N / WIDTH, d, WIDTH)."""
    tree = ref.tree
    for node in range(first, last):
        if tree.children[node] < 0:
            start, v = tree.starts[node], around(tree, node, ref.nodes.centers[node], inverse_h)
            for k in range(v.shape[0]):
                for i in range(v.shape[1]):
                    panels[(start + i) // WIDTH, k, (start + i) % WIDTH] = v[k, i]


@jit
def float32_tail(group, ref, rule, node, s_hi):
    """Return the error that float32 adds to the rounding of a leaf; infinity if it will not do."""
    if rule.in_float32 == 0 or group.shift != 0:
        return np.inf
    if ref.nodes.radii[node] * np.sqrt(2 * rule.factor) > _WIDEST:
        return np.inf
    return ref.nodes.weights[node] * _TAIL if s_hi > _REACH else 0.0


@jit
def add_float32_leaf(group, ref, rule, node):
    """Add a leaf pair by pair; for the Gaussian, not shifted."""
    place(group, rule, ref.nodes.centers[node])
    strips = group.float32_strips
    for k in range(group.v.shape[0]):
        row = group.v[k]
        for i in range(row.size):
            strips[i // ROWS, k, i % ROWS] = row[i]
    start, stop = ref.tree.starts[node], ref.tree.stops[node]
    memory = group.tile.view(np.float32)
    tile = fill_tile(group, strips, ref.float32_panels, start, stop, memory)
    add_tile(group, tile, GAUSSIAN, 0.5, 0.0, ref.point_weights[start:stop])
