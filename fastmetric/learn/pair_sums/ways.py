"""The ways to sum over the pairs of a `PairProblem`, for `learn.chooser.choose`."""

from __future__ import annotations

from fastmetric.learn.pair_sums.all_pairs import RowPairs, SymmetricPairs
from fastmetric.learn.pair_sums.class_lattices import ClassLattices
from fastmetric.learn.pair_sums.class_trees import ClassTrees
from fastmetric.learn.pair_sums.cutoff_grid import CutoffGrid
from fastmetric.learn.pair_sums.problem import PairSums

WAYS: tuple[type[PairSums], ...] = (
    CutoffGrid,
    ClassLattices,
    ClassTrees,
    SymmetricPairs,
    RowPairs,
)
METHODS = ("auto", "exact", "tree", "grid")
