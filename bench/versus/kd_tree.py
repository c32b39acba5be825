"""KDTree against SciPy's cKDTree and scikit-learn's KDTree: the cases of `versus neighbors`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import KDTree as SklearnTree

from bench.shared.report import Row
from bench.shared.setup import Timing, clock, take_turns
from fastmetric.kd_tree import KDTree

_K = 10  # neighbours
_FEW = 200  # points that suffice to have all code compiled


class Size(NamedTuple):
    """The shape of a problem: points and features."""

    n: int
    d: int

    def __str__(self) -> str:
        return f"n={self.n:,} d={self.d}"


class Plan(NamedTuple):
    """How large, and how often."""

    sizes: tuple[Size, ...]
    repeats: int
    sklearn_sizes: tuple[Size, ...]  # of those; it has one thread


FULL = Plan(
    sizes=(Size(1_000_000, 3), Size(1_000_000, 2), Size(100_000, 3), Size(100_000, 10)),
    repeats=3,
    sklearn_sizes=(Size(100_000, 3),),
)
QUICK = Plan(
    sizes=(Size(50_000, 3), Size(50_000, 2), Size(5_000, 10)),
    repeats=3,
    sklearn_sizes=(Size(50_000, 3), Size(5_000, 10)),
)

_Build = Callable[[np.ndarray], Any]
_PEERS: dict[str, _Build] = {"SciPy": cKDTree, "scikit-learn": SklearnTree}


def build(plan: Plan) -> Iterator[Row]:
    """A tree of standard normal points, every library with its own default leaves."""
    for size in plan.sizes:
        X = _normal(size)
        compiling = clock(partial(_load_code, X)).best
        trees = {name: _PEERS[name] for name in _peers(size, plan)} | {"ours": KDTree}
        tasks = {name: partial(tree, X) for name, tree in trees.items()}
        timings = take_turns(tasks, plan.repeats)
        for name in _peers(size, plan):
            row = _row("build", size, name, timings)
            row.compile_seconds = compiling
            yield row


def query(plan: Plan) -> Iterator[Row]:
    """The ten nearest neighbours of all points, themselves among them, on all cores."""
    for size in plan.sizes:
        X = _normal(size)
        compiling = clock(partial(_load_code, X)).best
        tasks = {"ours": partial(KDTree(X).query, X, _K)}
        for name in _peers(size, plan):
            workers = {"workers": -1} if name == "SciPy" else {}
            tasks[name] = partial(_PEERS[name](X).query, X, _K, **workers)
        timings = take_turns(tasks, plan.repeats)
        for name in _peers(size, plan):
            row = _row("query", size, name, timings)
            row.compile_seconds = compiling
            difference, others = _disagreement(timings["ours"].result, timings[name].result)
            row.note += f"; distances differ by {difference:.1e}, neighbours in {others} places"
            row.details |= {"distance_difference": difference, "other_neighbours": others}
            yield row


def _normal(size: Size) -> np.ndarray:
    """Return standard normal points (n, d)."""
    return np.random.default_rng(0).standard_normal(size)


def _load_code(X: np.ndarray) -> None:
    """Compile all that a tree and a query need, or load it from the cache."""
    # More queries than a block holds, so that they are put in order, too.
    KDTree(X[:_FEW]).query(np.tile(X[:_FEW], (50, 1)), _K)


def _peers(size: Size, plan: Plan) -> tuple[str, ...]:
    """Return the peers that take part."""
    return tuple(_PEERS) if size in plan.sklearn_sizes else ("SciPy",)


def _row(case: str, size: Size, name: str, timings: dict[str, Timing]) -> Row:
    """Return the times of one peer and of ours."""
    peer, ours = timings[name], timings["ours"]
    return Row(
        case,
        f"{size} float64",
        peer_seconds=peer.best,
        our_seconds=ours.best,
        note=f"the peer is {name}",
        details={"peer_all_seconds": peer.seconds, "our_all_seconds": ours.seconds},
    )


def _disagreement(ours: Any, peers: Any) -> tuple[float, int]:
    """Return the largest relative difference of distances, and how many neighbours are others.

    Random points have no ties up to rounding.
    """
    (our_dist, our_ind), (peer_dist, peer_ind) = ours, peers
    apart = np.abs(our_dist - peer_dist)
    difference = np.max(apart / np.where(peer_dist > 0, peer_dist, 1.0))
    return float(difference), int(np.sum(our_ind != peer_ind))


CASES = {"build": build, "query": query}
