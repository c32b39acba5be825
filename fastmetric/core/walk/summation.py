"""Certified sums of kernels: groups of queries against a tree [SUM-4].

The tree is walked depth first, near nodes first, for a few dozen neighbouring queries at
once. A node is accepted whole if its error is covered, else opened; a leaf that is not
accepted is summed pair by pair. What covers an error:

* `rtol` times the least that the node itself contributes to any query of the group;
* the node's share, by weight, of what other nodes leave over: `rtol` times the least that is
  certain to be in the sum, less the errors already spent;
* the node's share of `atol`.

So the errors never exceed rtol times what is certainly there, for every query of the group,
whatever the data. A node that holds one of the queries itself is opened in any case if that
query is to be left out. Without any tolerance only nodes beyond a compact kernel's reach are
left out, and all else is summed pair by pair.

Groups begin together, as a query cell. The nodes that a cell accepts are in its local expansion,
which its halves inherit together with its ledger of errors; a node that is not accepted is opened
while it is wider than the cell, else left to the halves, and in the end to the groups.
"""

from __future__ import annotations

import numpy as np

from fastmetric._jit import jit, jit_in_order, uncounted
from fastmetric.core.error_bounds import ROUND_DOWN, SLACK, constant_error
from fastmetric.core.far_field.expansions import local_to_child, moments_to_local
from fastmetric.core.kernels import GAUSSIAN, has_tails, shifted_kernel
from fastmetric.core.tree.balanced_tree import DEEPEST
from fastmetric.core.tree.boxes import box_distances, middle_gap
from fastmetric.core.vector.compensated_sums import add_to
from fastmetric.core.vector.exp import exp64
from fastmetric.core.walk.error_budget import (
    Bounds,
    Ledger,
    allowed_error,
    cell_degree,
    cheapest_acceptance,
    is_negligible,
)
from fastmetric.core.walk.float32_leaves import add_float32_leaf, float32_tail
from fastmetric.core.walk.interaction_lists import (
    CENTROID,
    NEGLIGIBLE,
    OPEN,
    PAIRS,
    InteractionLists,
    Walk,
)
from fastmetric.core.walk.query_cells import LEVELS, make_query_cells
from fastmetric.core.walk.query_groups import (
    add_centroid,
    add_far_field,
    add_leaf,
    add_local,
    add_to_all,
    make_group,
    share_common,
    total_of,
)

_NARROWER = 0.6  # a part of a cell walks if it is so much narrower than the last that did


@jit
def _least(group):
    """Return the smallest sum, what all have in common aside."""
    least = total_of(group, 0)
    for i in range(1, group.totals.size):
        least = min(least, total_of(group, i))
    return least


@jit_in_order
def _accepted(ledger, error, weight, k_hi):
    """Return the ledger after a node was accepted whose kernels are k_hi at least.

    Rounded towards less certain and more spent, so that no number of nodes adds up to more than is
    there.
    """
    certain = (ledger.certain + weight * k_hi * (1 - SLACK)) * (1 - ROUND_DOWN)
    spent = (ledger.spent + error) * (1 + ROUND_DOWN)
    return Ledger(spent, certain, ledger.left - weight)


@jit_in_order
def _surely(lower, upper, self_range, walk, shift):
    """Return what the roots of a walk contribute at least to any query of a box.

    Those that may hold the query itself, in the range `self_range`, are not counted.
    """
    ref, rule, roots, total = walk.ref, walk.rule, walk.roots, 0.0
    for node in roots:
        if ref.tree.starts[node] > self_range[1] or self_range[0] >= ref.tree.stops[node]:
            box = ref.tree.lower[node], ref.tree.upper[node]
            _, sq_hi = box_distances(lower, upper, *box)
            part = ref.nodes.weights[node] * shifted_kernel(rule.code, rule.factor * sq_hi, shift)
            total = (total + part) * (1 - ROUND_DOWN)
    return total * (1 - SLACK)


@jit_in_order
def _sum_cell(cells, c, walk, ledger, local, waiting, visits):
    """Add to `local` (C,) what a cell accepts; return its ledger, and two counts.

    Of the nodes that are left to its halves, written into `waiting`, and of those accepted,
    written into `visits` if it is not empty.
    """
    cells, walk, local, waiting, visits = uncounted((cells, walk, local, waiting, visits))
    ref, rule, roots = walk.ref, walk.rule, walk.roots
    tree, nodes, count, visited = ref.tree, ref.nodes, 0, 0
    lower, upper = cells.lower[c], cells.upper[c]
    self_range = cells.first_selves[c], cells.last_selves[c]
    stack, height = _first_stack(lower, upper, tree, roots)
    floor = ledger.certain + _surely(lower, upper, self_range, walk, 0.0)
    carries = np.zeros(local.size)
    expanded = rule.code == GAUSSIAN and nodes.coefficients.shape[1] > 0
    while height > 0:
        height -= 1
        node = stack[height]
        weight = nodes.weights[node]
        sq_lo, sq_hi = box_distances(lower, upper, tree.lower[node], tree.upper[node])
        s_lo, s_hi = rule.factor * sq_lo, rule.factor * sq_hi
        if s_lo >= 1 and not has_tails(rule.code):
            ledger = Ledger(ledger.spent, ledger.certain, ledger.left - weight)
            continue
        holds_self = tree.starts[node] <= self_range[1] and self_range[0] < tree.stops[node]
        if not holds_self and (rule.rtol > 0 or rule.atol > 0):
            k_lo = shifted_kernel(rule.code, s_lo, 0.0)
            k_hi = shifted_kernel(rule.code, s_hi, 0.0)
            allowed = allowed_error(rule, rule.atol, weight, k_hi, ledger, floor)
            code, error = OPEN, constant_error(weight, k_lo, k_hi)
            # A constant has no slope; only the Gaussian's sums are asked for theirs.
            flat = rule.code != GAUSSIAN or is_negligible(weight, k_lo, allowed)
            if error <= allowed and flat:
                code = NEGLIGIBLE
                add_to(local, carries, 0, 0.5 * weight * (k_lo + k_hi))
            elif expanded:
                code, error = cell_degree(cells, c, ref, rule, node, s_lo, allowed)
                if code != OPEN:
                    v = (cells.centers[c] - nodes.centers[node]) * np.sqrt(2 * rule.factor)
                    moved = moments_to_local(ref.series, code, nodes.coefficients[node], v)
                    for i in range(moved.size):
                        add_to(local, carries, i, moved[i])
            if code != OPEN:
                ledger = _accepted(ledger, error, weight, k_hi)
                if visits.size > 0:
                    visits[visited, 0], visits[visited, 1] = node, code
                    visited += 1
                continue
        first = tree.children[node]
        if first >= 0 and nodes.radii[node] > cells.radii[c]:
            height = push(stack, height, lower, upper, tree.lower, tree.upper, first)
        else:
            waiting[count] = node
            count += 1
    for i in range(local.size):
        local[i] += carries[i]
    return ledger, count, visited


@jit_in_order
def _sum_group(group, walk, ledger, visits):
    """Sum a group over the roots of a walk; return the error that each of its sums may have.

    Returns the number of nodes that were not opened, too, and writes what was done with them into
    `visits` (m, 2) if it is not empty.
    """
    group, walk, visits = uncounted((group, walk, visits))
    ref, rule, roots = walk.ref, walk.rule, walk.roots
    tree, nodes, visited = ref.tree, ref.nodes, 0
    stack, height = _first_stack(group.lower, group.upper, tree, roots)
    self_range = group.first_self, group.last_self
    boxes = group.lower, group.upper
    floor = ledger.certain + _surely(*boxes, self_range, walk, group.shift)
    least = _least(group)
    ledger = _raised(ledger, group, least)
    atol = rule.atol * exp64(min(group.shift, 700.0))
    while height > 0:
        height -= 1
        node = stack[height]
        weight = nodes.weights[node]
        sq_lo, sq_hi = box_distances(group.lower, group.upper, tree.lower[node], tree.upper[node])
        s_lo, s_hi = rule.factor * sq_lo, rule.factor * sq_hi
        first = tree.children[node]
        start, stop = tree.starts[node], tree.stops[node]
        if s_lo >= 1 and not has_tails(rule.code):
            ledger = Ledger(ledger.spent, ledger.certain, ledger.left - weight)
            continue
        code, allowed, constant = OPEN, 0.0, False
        holds_self = start <= group.last_self and group.first_self < stop
        if not holds_self and (rule.rtol > 0 or atol > 0):
            k_lo = shifted_kernel(rule.code, s_lo, group.shift)
            k_hi = shifted_kernel(rule.code, s_hi, group.shift)
            allowed = allowed_error(rule, atol, weight, k_hi, ledger, floor)
            error = constant_error(weight, k_lo, k_hi)
            constant = error <= allowed
            if constant:
                # A constant has no slope. Where the node could not have been left out as well, the
                # slope is the centroid's: a sum may be flat over a node of one place, or nearly so.
                code = NEGLIGIBLE if is_negligible(weight, k_lo, allowed) else CENTROID
                add_to_all(group, 0.5 * weight * (k_lo + k_hi))
            else:
                bounds = Bounds(s_lo, s_hi, k_lo, k_hi)
                code, error = cheapest_acceptance(group, ref, rule, node, bounds, allowed)
                if code == CENTROID:
                    add_centroid(group, ref, rule, node)
                elif code != OPEN:
                    add_far_field(group, ref, rule, node, code)
            if code != OPEN:
                ledger = _accepted(ledger, error, weight, k_hi)
        if code == OPEN and first >= 0:
            height = push(stack, height, group.lower, group.upper, tree.lower, tree.upper, first)
            continue
        if code == OPEN:
            code = PAIRS
            tail = float32_tail(group, ref, rule, node, s_hi)
            if tail <= allowed:
                add_float32_leaf(group, ref, rule, node)
            else:
                add_leaf(group, ref, rule, start, stop)
                tail = 0.0
            ledger = _accepted(ledger, tail, weight, 0.0)
        if not constant:
            least = _least(group)
        ledger = _raised(ledger, group, least)
        if visits.size > 0:
            visits[visited, 0], visits[visited, 1] = node, code
            visited += 1
    share_common(group)
    return ledger.spent, visited


@jit_in_order
def _raised(ledger, group, least):
    """Return the ledger with what the sums of a group so far make certain.

    `least` is the smallest of them without what all have in common.
    """
    certain = (least + group.common[0]) * (1 - SLACK) - ledger.spent
    return Ledger(ledger.spent, max(ledger.certain, certain), ledger.left)


@jit
def _first_stack(lower, upper, tree, roots):
    """Return a stack with the roots, the nearest to a box on top, and its height."""
    stack = np.empty(roots.size + DEEPEST, np.int64)
    far = np.empty(roots.size)
    for i in range(roots.size):
        far[i], _ = box_distances(lower, upper, tree.lower[roots[i]], tree.upper[roots[i]])
    stack[: roots.size] = roots[np.argsort(-far, kind="mergesort")]
    return stack, roots.size


@jit
def push(stack, height, low, high, lower, upper, first):
    """Put two children on the stack, the nearer one on top; return the new height.

    Boxes `lower`, `upper` of the nodes (m, d); if both touch the group's box, the
    distances of their middles decide.
    """
    a, _ = box_distances(low, high, lower[first], upper[first])
    b, _ = box_distances(low, high, lower[first + 1], upper[first + 1])
    if a == b:
        a = middle_gap(low, high, lower[first], upper[first])
        b = middle_gap(low, high, lower[first + 1], upper[first + 1])
    nearer = first if a <= b else first + 1
    stack[height], stack[height + 1] = 2 * first + 1 - nearer, nearer
    return height + 2


@jit
def group_sums(queries, walk, first, last, only):
    """Return the sums of the groups first:last (m,), the error of each group, and their lists.

    The interaction lists of a walk that does not keep them are empty. If only >= 0, nothing is
    computed except what leads to that group.
    """
    queries, walk = uncounted((queries, walk))
    ref, rule, roots, exact, keep = walk
    cells = make_query_cells(queries, first, last, not np.any(queries.shifts[first:last]))
    count = cells.firsts.size
    sums = np.zeros(queries.stops[last - 1] - queries.starts[first])
    errors, counts = np.zeros(last - first), np.zeros(count, np.int64)
    room = ref.tree.starts.size
    visits, used = np.empty((count * room if keep else 0, 2), np.int32), 0
    size = max(1, ref.nodes.coefficients.shape[1])
    kept = np.zeros((last - first, size))
    # By level of the cell: its polynomial, the nodes left to its parts, its ledger.
    polynomials, ledgers = np.zeros((LEVELS, size)), np.zeros((LEVELS, 3))
    waiting, lengths = np.empty((LEVELS, room), np.int64), np.zeros(LEVELS, np.int64)
    # By level, too: the last cell that walked, itself or one that it is a part of.
    walkers = np.full(LEVELS, -1)
    for c in range(count):
        if only >= 0 and not cells.firsts[c] <= only < cells.lasts[c]:
            continue
        level, up, local = cells.levels[c], np.int64(-1), polynomials[cells.levels[c]]
        pending, ledger = roots, Ledger(0.0, 0.0, ref.nodes.weights[roots].sum())
        local[:] = 0
        if level > 0:
            up = walkers[level - 1]
        single = cells.lasts[c] - cells.firsts[c] == 1
        if not single and up >= 0 and cells.radii[c] > _NARROWER * cells.radii[up]:
            walkers[level] = up
            continue
        walkers[level] = c
        if up >= 0:
            above = cells.levels[up]
            pending = waiting[above, : lengths[above]]
            ledger = Ledger(ledgers[above, 0], ledgers[above, 1], ledgers[above, 2])
            _inherit(cells, up, c, ref, rule, polynomials[above], local)
        if single:
            g = cells.firsts[c]
            group = make_group(queries, cells, c, ref)
            _add_inherited(group, cells, c, ref, rule, local)
            part = Walk(ref, rule, pending, exact, keep)
            errors[g - first], counts[c] = _sum_group(group, part, ledger, visits[used:])
            kept[g - first] = local
            at = queries.starts[g] - queries.starts[first]
            for i in range(group.totals.size):
                sums[at + i] = total_of(group, i)
        else:
            part = Walk(ref, rule, pending, exact, keep)
            ledger, lengths[level], counts[c] = _sum_cell(
                cells, c, part, ledger, local, waiting[level], visits[used:]
            )
            ledgers[level, 0], ledgers[level, 1], ledgers[level, 2] = ledger
        used += counts[c]
    return sums, errors, InteractionLists(first, counts, visits[:used].copy(), kept)


@jit
def _inherit(cells, up, c, ref, rule, polynomial, local):
    """Move the polynomial of a larger cell to the middle of a part of it, added to `local`."""
    if ref.nodes.coefficients.shape[1] == 0:
        local[0] += polynomial[0]
    else:
        step = cells.centers[c] - cells.centers[up]
        local_to_child(ref.series, polynomial, step * np.sqrt(2 * rule.factor), local)


@jit
def _add_inherited(group, cells, c, ref, rule, local):
    """Add the polynomial of a group's cell.

    Often a constant: that of a cell of any size, at whose queries powers might overflow.
    """
    if np.any(local[1:]):
        add_local(group, ref, rule, cells.centers[c], local)
    else:
        add_to_all(group, local[0])
