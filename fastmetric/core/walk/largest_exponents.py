"""The largest term of a query's sum, which a sum that underflows is taken relative to."""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit
from fastmetric.core.kernels import exponent
from fastmetric.core.tree.balanced_tree import DEEPEST
from fastmetric.core.tree.boxes import box_distances
from fastmetric.core.vector.compensated_sums import add_to
from fastmetric.core.vector.register_blocks import SHORT
from fastmetric.core.walk.summation import push


@jit
def largest_exponents(queries, walk, log_weights, first, last):
    """Return max_j (log w_j - t_j), k = exp(-t), over all points except the query itself.

    For the queries first:last, over the trees of a walk.
    """
    ref, rule, roots, largest = walk.ref, walk.rule, walk.roots, np.empty(last - first)
    for i in range(first, last):
        best, q = -np.inf, queries.rows[i].astype(np.float64)
        for root in roots:
            best = _largest_exponent(ref, rule, root, q, queries.self_index[i], log_weights, best)
        largest[i - first] = best
    return largest


@jit
def _largest_exponent(ref, rule, root, q, self_index, log_weights, best):
    """Return the larger of `best` and max_j (log w_j - t_j) over the points but `self_index`.

    Depth first, near nodes first; a node's terms are at most its weight at its nearest corner.
    """
    tree = ref.tree
    total, carry = np.empty(1), np.empty(1)
    stack = np.empty(DEEPEST, np.int64)
    stack[0], height = root, 1
    while height > 0:
        height -= 1
        node = stack[height]
        sq_lo, _ = box_distances(q, q, tree.lower[node], tree.upper[node])
        if np.log(ref.nodes.weights[node]) - exponent(rule.code, rule.factor * sq_lo) < best:
            continue
        first = tree.children[node]
        if first >= 0:
            height = push(stack, height, q, q, tree.lower, tree.upper, first)
            continue
        for j in range(tree.starts[node], tree.stops[node]):
            if j != self_index:
                sq = _sq_distance(q, tree.rows[j], total, carry)
                best = max(best, log_weights[j] - exponent(rule.code, rule.factor * sq))
    return best


@jit
def _sq_distance(q, row, total, carry):
    """Return the squared distance of two points (d,), off by at most eleven units in any dimension.

    As a sum is at least its largest term, where all others are lost it is that term: its exponent
    needs the accuracy of the sums. Two units are those of a difference that is squared, SHORT
    those of a chunk; `total` and `carry` (1,) are scratch.
    """
    total[0] = carry[0] = 0.0
    for first in range(0, q.size, SHORT):
        part = 0.0
        for k in range(first, min(first + SHORT, q.size)):
            gap = q[k] - row[k]
            part += gap * gap
        add_to(total, carry, 0, part)
    return total[0] + carry[0]
