"""Sums of Gaussians of which each has a shape of its own.

The local Gaussians of Manifold Parzen Windows: flat except for a few directions.

* `local_gaussians`: what is the sum over a block, by products or by differences, [MAN-1] -
  [MAN-3]?
* `gaussian_tree_walk`: what is the sum at one query over a k-d tree, in few dimensions [MAN-6]?

The data's way: `learn.manifold` chooses; a block of products becomes terms while the tile is in
the cache (`add_by_products`), or differences are projected (`add_by_differences`), or listed pairs
are computed one by one (`add_pairs`); over a tree, `bound_nodes` prepares and `log_sums` walks.

Decisions
---------
**Shifted sums.** Terms span hundreds of nats, so the sums are ShiftedSums, for a whole grid of
shapes at once.

**Products, or differences.** The product form loses eps (|x|^2 + |x_i|^2) / sigma^2 nats. Where
that exceeds 1e-9 (0.01 in float32) differences are taken, and the parts along the directions are
taken out of the difference itself, never out of its square.

**A tree by the largest eigenvalue.** In few dimensions the largest variance of a node's Gaussians
is a sufficient bound. Every query walks alone, over leaves of 128 points that are vectorised
loops; smaller leaves hold fewer pairs and take longer.
"""
