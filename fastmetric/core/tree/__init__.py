"""How points are ordered into boxes, and which of them are nearest to a query.

* `balanced_tree`: which points belong to which node, and what are the boxes?
* `boxes`: what are the distances of boxes, for searching and for sums?
* `node_moments`: what does a sum need to know of a node: weight, centre, spread, moments?
* `nearest_search`: which points are the k nearest, or within a radius?
* `heaps`: which are the k smallest numbers so far?
* `product_candidates`: which points may be nearest, out of matrix products?

The data's way: `unsplit_tree` lays the arrays out from n alone; `split_node` and `split_below` put
the points in order and tighten the boxes (`learn.tree_building` runs them on all cores); then
either `locate_nodes` and `expand_nodes` (sums) or `nearest` and `points_within` (neighbours).

Decisions
---------
**A shape that depends on n alone.** A node is halved at a multiple of 16 points, along the widest
side of its tight box. So a leaf is a whole number of panels of the register block, the arrays are
laid out before any point is read, and subtrees are built on all cores independently of each other.
Points are moved, not indices: a leaf is contiguous. With splits at the middle of a box the shape,
and therefore the tasks, would depend on the coordinates.

**Exact pruning.** A box is skipped only if its distance exceeds that of the k-th neighbour so far.
The distances of boxes and of points are the same operations in the same order, each rounded by
itself (no fused multiply-add), so that rounding cannot put a point before its box. That is why the
distances to boxes in a search are not those of the sums, which have slack instead (`boxes` has
both): equality of the order of operations is the proof.

**Products choose candidates only.** In many dimensions matrix products find candidates; products
lose digits where points are close to each other and far from the origin, so the k nearest are
decided by differences.
"""
