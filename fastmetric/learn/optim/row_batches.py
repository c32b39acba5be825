"""Splitting rows into batches: at random, or in clusters of the projected space (thesis 4.2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NAMES = ("random", "farthest", "projection")
_LARGEST = 4  # times the requested size: larger clusters are cut


def make_batches(
    name: str,
    n: int,
    projection: Callable[[], np.ndarray],
    size: int,
    rng: np.random.RandomState,
) -> list[np.ndarray]:
    """Return batches of about `size` of n rows, by their indices, in random order.

    Clusters are made of the projected rows (n, d), which are computed only if needed.
    """
    if name == "random":
        return random_batches(n, size, rng)
    Z = projection()
    clusters = _farthest(Z, size, rng) if name == "farthest" else _projection(Z, size, rng)
    return [clusters[k] for k in rng.permutation(len(clusters))]


def random_batches(n: int, size: int, rng: np.random.RandomState) -> list[np.ndarray]:
    """Return a random split of n rows into batches of nearly the same size."""
    return np.array_split(rng.permutation(n), max(1, round(n / size)))


def _farthest(Z: np.ndarray, size: int, rng: np.random.RandomState) -> list[np.ndarray]:
    """Return clusters around centres, each the farthest point from those before it.

    Clusters are unbalanced: one of more than a few times `size` is cut at random.
    """
    nearest, centre = np.full(len(Z), np.inf), rng.randint(len(Z))
    numbers = np.zeros(len(Z), np.intp)
    for k in range(max(1, round(len(Z) / size))):
        gaps = Z - Z[centre]
        squares = np.einsum("ij,ij->i", gaps, gaps)
        numbers[squares < nearest] = k
        np.minimum(nearest, squares, out=nearest)
        centre = int(nearest.argmax())
    members = np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])
    return [
        rows[part]
        for rows in members
        if len(rows)
        for part in random_batches(len(rows), max(size, min(len(rows), _LARGEST * size)), rng)
    ]


def _projection(Z: np.ndarray, size: int, rng: np.random.RandomState) -> list[np.ndarray]:
    """Return clusters by repeated halving along the line through two random points."""
    clusters, waiting = [], [np.arange(len(Z))]
    while waiting:
        rows = waiting.pop()
        if len(rows) <= size:
            clusters.append(rows)
            continue
        a, b = Z[rows[rng.randint(len(rows), size=2)]]
        half = len(rows) // 2
        order = np.argpartition(Z[rows] @ (b - a), half)
        waiting += [rows[order[half:]], rows[order[:half]]]
    return clusters
