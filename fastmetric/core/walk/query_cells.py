"""Crowds of queries: neighbouring groups taken together, halved again and again down to one.

What lies far from all of a crowd is added to it once, as a polynomial around its middle
[SUM-7]; what does not waits for its halves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric._jit import compiled
from fastmetric.core.walk.query_groups import SLACK

LEVELS = 16  # more than a crowd can be halved


class Crowds(NamedTuple):
    """Ranges of groups, a crowd before its halves: the first half follows at once."""

    firsts: np.ndarray  # (k,), of the groups
    lasts: np.ndarray
    levels: np.ndarray  # (k,): how often halved; 0: a crowd with no larger one
    lower: np.ndarray  # (k, d), the boxes
    upper: np.ndarray
    centers: np.ndarray  # (k, d), their middles
    radii: np.ndarray  # (k,): half their diagonals, at least
    first_selves: np.ndarray  # (k,): the range of their own points among the reference points
    last_selves: np.ndarray


@compiled
def make_crowds(queries, first, last, together):
    """Return the groups first:last, halved, or each alone if not `together`."""
    d, count = queries.rows.shape[1], last - first
    k = 2 * count - 1 if together else count
    crowds = Crowds(
        np.empty(k, np.int64),
        np.empty(k, np.int64),
        np.zeros(k, np.int64),
        np.empty((k, d)),
        np.empty((k, d)),
        np.empty((k, d)),
        np.empty(k),
        np.empty(k, np.int64),
        np.empty(k, np.int64),
    )
    if together:
        _halve(crowds, first, last)
    else:
        for c in range(k):
            crowds.firsts[c], crowds.lasts[c] = first + c, first + c + 1
    for c in range(k - 1, -1, -1):
        if crowds.lasts[c] - crowds.firsts[c] == 1:
            _box_group(crowds, c, queries)
        else:
            _box_halves(crowds, c)
        sq = 0.0
        for j in range(d):
            low, high = crowds.lower[c, j], crowds.upper[c, j]
            center = low + 0.5 * (high - low)
            crowds.centers[c, j] = center
            side = max(high - center, center - low)
            sq += side * side
        crowds.radii[c] = np.sqrt(sq) * (1 + SLACK)
    return crowds


@compiled
def _halve(crowds, first, last):
    """Lay out the ranges."""
    crowds.firsts[0], crowds.lasts[0] = first, last
    for c in range(crowds.firsts.size):
        first, last = crowds.firsts[c], crowds.lasts[c]
        if last - first > 1:
            middle = (first + last) // 2
            left, right = halves(crowds, c)
            crowds.firsts[left], crowds.lasts[left] = first, middle
            crowds.firsts[right], crowds.lasts[right] = middle, last
            for half in (left, right):
                crowds.levels[half] = crowds.levels[c] + 1


@compiled
def halves(crowds, c):
    """Return the halves of a crowd of more than one group."""
    first, last = crowds.firsts[c], crowds.lasts[c]
    return c + 1, c + 2 * ((first + last) // 2 - first)


@compiled
def _box_group(crowds, c, queries):
    """Box one group."""
    g = crowds.firsts[c]
    start, stop = queries.starts[g], queries.stops[g]
    lower, upper = crowds.lower[c], crowds.upper[c]
    first, last = np.int64(2**62), np.int64(-1)
    for j in range(lower.size):
        lower[j], upper[j] = queries.rows[start, j], queries.rows[start, j]
    for i in range(start, stop):
        for j in range(lower.size):
            x = np.float64(queries.rows[i, j])
            lower[j], upper[j] = min(lower[j], x), max(upper[j], x)
        if queries.selves[i] >= 0:
            first, last = min(first, queries.selves[i]), max(last, queries.selves[i])
    crowds.first_selves[c], crowds.last_selves[c] = first, last


@compiled
def _box_halves(crowds, c):
    """Box a crowd by its halves."""
    a, b = halves(crowds, c)
    for j in range(crowds.lower.shape[1]):
        crowds.lower[c, j] = min(crowds.lower[a, j], crowds.lower[b, j])
        crowds.upper[c, j] = max(crowds.upper[a, j], crowds.upper[b, j])
    crowds.first_selves[c] = min(crowds.first_selves[a], crowds.first_selves[b])
    crowds.last_selves[c] = max(crowds.last_selves[a], crowds.last_selves[b])
