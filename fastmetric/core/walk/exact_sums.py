"""Sums over all points, pair by pair: no node is looked at.

Entries of their own, so that sums over few points do not have to compile the walk over a tree.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit, uncounted
from fastmetric.core.walk.mean_shift_replay import add_mean_shift_leaf, write_steps
from fastmetric.core.walk.query_cells import make_query_cells
from fastmetric.core.walk.query_groups import LONGEST, add_leaf, make_group, total_of


@jit
def exact_sums(queries, walk, first, last):
    """Return the sums of the groups first:last (m,) over all trees of a walk."""
    queries, walk = uncounted((queries, walk))
    ref, rule, begin = walk.ref, walk.rule, queries.starts[first]
    sums = np.zeros(queries.stops[last - 1] - begin)
    cells = make_query_cells(queries, first, last, False)
    for g in range(first, last):
        group, at = make_group(queries, cells, g - first, ref), queries.starts[g] - begin
        for root in walk.roots:
            stop = ref.tree.stops[root]
            for start in range(ref.tree.starts[root], stop, LONGEST):
                add_leaf(group, ref, rule, start, min(start + LONGEST, stop))
        for i in range(group.totals.size):
            sums[at + i] = total_of(group, i)
    return sums


@jit
def exact_mean_shift(queries, walk, first, last):
    """Return sum_j w_j k_j (x_j - q) / sum_j w_j k_j (m, d) of the groups first:last."""
    queries, walk = uncounted((queries, walk))
    ref, rule, begin = walk.ref, walk.rule, queries.starts[first]
    steps = np.zeros((queries.stops[last - 1] - begin, queries.rows.shape[1]))
    cells = make_query_cells(queries, first, last, False)
    for g in range(first, last):
        group = make_group(queries, cells, g - first, ref)
        moments = np.zeros(group.cols.shape)
        for root in walk.roots:
            stop = ref.tree.stops[root]
            for start in range(ref.tree.starts[root], stop, LONGEST):
                add_mean_shift_leaf(group, ref, rule, start, min(start + LONGEST, stop), moments)
        write_steps(group, moments, steps, queries.starts[g] - begin)
    return steps
