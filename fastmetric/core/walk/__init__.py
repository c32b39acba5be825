"""Sums of kernels over a tree of points, with a certified error.

Queries that are close together form a *group* (a leaf of the queries' own tree), and 64 groups
form a *query cell*; both are decided for as a whole, from boxes. In the terms of the fast
multipole method they are target leaves and target cells, and what a group does with every node is
its interaction list.

* `query_groups`: what has a group of queries summed so far, and how is a node added to it?
* `query_cells`: which groups form a cell, and what are its halves?
* `error_budget`: may a node be accepted as a whole, and how most cheaply?
* `float32_leaves`: what are the pairs of a leaf worth in float32, and what are terms beyond its
  reach charged?
* `interaction_lists`: what is summed over, and what was done with every node?
* `summation`: in which order are nodes visited, and what are the sums and their bounds [SUM-4]?
* `exact_sums`: what are sums and mean-shift steps over all points, where no tree is walked?
* `largest_exponents`: relative to which term is a sum taken that underflows?
* `gradient_replay`: what is the gradient of these sums, along the same interaction lists [CCK-6]?
* `mean_shift_replay`: what are the first moments along the same lists [SHI-1]?

The data's way: `make_query_cells`, then `group_sums`: a cell accepts far nodes as local expansions
and passes the others on to its halves, together with its ledger of errors; a group accepts nodes
(constant, centroid, Hermite expansion) or sums leaves pair by pair. The lists are kept; the
replays go over them again without any decision.

Decisions
---------
**One walk for all sums.** Densities, leave-one-out sums and class sums of NCA differ only in the
roots where `group_sums` begins. Near nodes come first, so that the certain part of the sum grows
before far nodes claim their share of the budget. A node of little weight may use half a per cent
of the remaining budget: by weight alone, nodes near the queries, which matter most, would be
allowed next to no error.

**Query cells.** With a wide kernel most of the time is spent on the far nodes' expansions, and
neighbouring groups evaluate nearly the same ones. A far node is therefore moved once into a
polynomial around the cell's middle [SUM-7], for some hundred products instead of a few thousand. A
part of a cell walks separately when it is 0.6 times as wide as the last one that did: each halving
would test the same nodes again for little gain. Covertype, 100,000 rows, d = 2, rtol 0.01, one
thread: 0.9 s instead of 2.1 s.

**Leaves in float32.** With a tolerance of 1e-2 a pair needs few digits. Leaves are summed in
float32 around the leaf's centre, in units of the bandwidth [SUM-8]; terms beyond an exponent of 20
are charged as an error. The rounding of the other terms is charged once for all sums, by
`learn.kernel_sums.certified_walks`. Three dimensions, rtol 0.01: 1.13 s instead of 1.39 s. Trees
of NCA stay in float64, where sums and gradient have to agree.

**Large leaves.** Where pairs are cheap, nodes are expensive: leaves of densities hold up to 160
points, groups as many queries (1.17 s to 0.93 s in three dimensions against leaves of 64). NCA's
trees, with two passes in float64, are slower with them (0.71 s to 0.93 s) and keep 64, as do
neighbours.

**The gradient repeats no decision.** The nodes that a group accepted, and how, are kept from the
first pass: 8 bytes a node, a few hundred nodes a group. Each is differentiated in the way it was
summed, and the adjoint of a node's moments is passed down to its points at the end. The result is
the derivative of the approximated sums, except for nodes replaced by a constant, which depends on
boxes: these are differentiated as their centroid, or not at all if they are negligible. The
replays are loops of their own: a traversal that takes functions as arguments would lose the disk
cache.
"""
