"""The log sum of kernels at a query, over weighted points, with certified bounds.

* `kernel_table`: what are a kernel's volume and variance as a density, and random draws from it?
* `bandwidths`: which metric does a bandwidth define, and which bandwidth fits the data best?
* `certified_walks`: what are the sums of all query groups over trees, at any scale, and what is
  the rounding of float64 and float32 charged?
* `walk_ways`: which ways are there to sum (`WAYS`), and what does each cost?
* `log_sums`: `KernelSums`: what are sums, bounds and mean-shift steps?

Data flow: `bandwidths.metric_of` maps rows so that the kernel is isotropic; `KernelSums` builds
the tree of the points; at a call it builds the tree of the queries, tests a few groups
(`predicted_work`), and `learn.chooser.choose` takes trees or all pairs;
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

**Everything in logs.** A group whose sums are below 1e-250 has lost terms to underflow. Its
queries are computed one by one, relative to the largest term, which a branch-and-bound search
finds first. Bounds are never subtracted in logs: scikit-learn's estimate loses its tails by such
differences.

**float32 leaves on demand.** The leaves' float32 copies are written when a tolerance first allows
them: exact densities do not need them.
"""
