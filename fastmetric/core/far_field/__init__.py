"""What a node of points contributes to queries far away, as an expansion.

The Gaussian only, in up to four dimensions: a Hermite expansion of degree up to 12 around the
node's centre [SUM-6], and a local (Taylor) expansion around the middle of a cell of queries
[SUM-7]. In the terms of the fast multipole method:

* `expansions`: which degree suffices, and how are coefficients moved? Moments to the parent (M2M),
  moments to a local expansion (M2L), a local expansion to a child cell (L2L).
* `evaluation`: what are the moments of a leaf's points (P2M), what is an expansion worth at many
  queries at once, and what is the transpose?

The data's way: `core.tree.node_moments` takes the moments of every leaf (`add_moments`) and moves
them to its parents; `log_remainder` bounds
what a degree leaves out; a query group evaluates the node's Hermite expansion (`add_series`), or a
query cell takes it in by `moments_to_local` and its groups evaluate the sum of all nodes once. The
gradient uses the same tables transposed (`add_moments`).

Decisions
---------
**Total degree, lexicographic order.** The sum over multi-indices is taken index by index, the last
one first, so that coefficients that differ in the last index lie side by side in memory.

**One table of polynomials.** A group's slopes and moments share one table of its coordinates'
polynomials, and so do the points of a leaf: one evaluation of NCA on 100,000 rows of Covertype
takes 0.84 s instead of 0.94 s.

**An expansion has to be shorter than the leaf.** Where leaves are summed in float32, an expansion
of a leaf that has more terms than the leaf has points is not used.
"""
