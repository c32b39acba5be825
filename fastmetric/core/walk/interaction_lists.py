"""What is summed, and what was done with every node: the walk and its interaction lists."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric.core.walk.query_groups import Reference, Rule

# What was done with a node: left at a constant whose slope does not count, summed pair by pair,
# replaced by its centroid, which is the expansion of degree 1; a larger number is the degree.
NEGLIGIBLE, PAIRS, CENTROID = -1, 0, 1
# Not accepted. Never in a list: an open node is replaced by its children, or by PAIRS if a leaf.
OPEN = -2


class Walk(NamedTuple):
    """Which trees are summed over, and how."""

    ref: Reference
    rule: Rule
    roots: np.ndarray  # (r,): the nodes where the trees begin
    exact: bool = False  # pair by pair
    keep: bool = False  # the interaction lists


class InteractionLists(NamedTuple):
    """What some groups of queries, and the cells that they form, did with nodes."""

    first: int  # of the groups
    counts: np.ndarray  # (cells,): the lengths of the lists, one after another in `visits`
    visits: np.ndarray  # (m, 2): the node, and what was done with it
    local: np.ndarray  # (groups, C): expansions of what the cells accepted, around each group
