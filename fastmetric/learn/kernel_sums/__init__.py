"""The log sum of kernels at a query, over weighted points, with certified bounds.

* `bandwidths`: which metric does a bandwidth define, and which bandwidth fits the data best?
* `certified_walks`: what are the sums of all query groups over trees, at any scale, and what is
  the rounding of float64 and float32 charged?
* `sum_problem`: what is summed, and what does every way to sum offer?
* `walk_ways`: the ways over a tree and over all pairs: what does each cost?
* `product_sums`: the way over all pairs by products of matrices; when is it cheaper?
* `product_plan`: in which precision and slabs are products taken, and what may a sum lose?
* `product_blocks`: what are the sums of all blocks of pairs by products?
* `lattice_sums`: the way over a lattice; which queries can it certify?
* `lattice_steps`: mean-shift steps from one lattice, at all queries of a search
* `log_sums`: `KernelSums`: what are sums, bounds and mean-shift steps, and which `WAYS` are there?

Data flow: `bandwidths.metric_of` maps rows so that the kernel is isotropic; at a call of
`KernelSums`, `learn.chooser.choose` takes a lattice, trees (tested by a few groups of queries,
`predicted_work`) or all pairs, by products or by differences, and only what it needs is built;
`certified_walks.walk_sums` runs the walks of `core.walk`, and computes groups that underflowed
query by query, relative to their largest term.

Decisions
---------
**"auto" counts work.** Whether trees pay depends on the bandwidth and on the data. A dozen
groups, evenly spread, walk as a test, with their cells but without the cells' other groups. Pairs,
expansions, nodes visited and underflowed rows are counted, priced and compared with all pairs. A
clock was rejected: the choice, and so the last bits, would differ between runs. For sums with n =
2,000 and 20,000, 2 to 10 dimensions and bandwidths 0.05 to 2, "auto" took at most 1.2 times the
better of the two plus 10 ms.

**A lattice before trees.** In up to three dimensions and with a tolerance, a lattice takes some 50
to 300 ns a point and query, whatever the bandwidth; its cost is known without building anything.
Trees are built only if they may cost less: for few queries, for bandwidths so small that the
lattice has too many cells, or for far queries, which the lattice cannot certify: then over the
points that matter to these (`learn.lattices.nearby_points`).

**Everything in logs.** A group whose sums are below 1e-250 has lost terms to underflow. Its
queries are computed one by one, relative to the largest term, which a branch-and-bound search
finds first. Bounds are never subtracted in logs: scikit-learn's estimate loses its tails by such
differences.

**One lattice for all steps.** The density does not move with the queries of mean shift, so that
the way is chosen once, for the starts, and all steps are read off one lattice, of six digits:
200,000 rows in the plane take 0.02 s for all their steps, instead of 0.8 s over trees. Exact sums
at a few dozen queries run over the points as they come: for them alone no tree is built.

**Products in many dimensions.** From 16 dimensions on, |q|^2 + |x|^2 - 2 q.x by BLAS takes 0.034 ns
a coordinate and pair, by differences 0.05 and more where rows do not fit the first-level cache;
float32 half of it, and symmetric products half again. Rows are centred on a mean of points, so that
the loss is known before [SUM-12]. A few queries show how many terms would be computed again, and so
whether products pay. Products of up to 256 coordinates are taken at once, or of so few (32) that no
term has to be computed again; their sums are added here, as BLAS promises no order of its own. The
tests of a tree, and building it, would take a good part of the time of products: a tree is not
considered where a sample shows no near points.

**float32 leaves on demand.** The leaves' float32 copies are written when a tolerance first allows
them: exact densities do not need them.
"""
