"""Points on a lattice: plans for a tolerance, and the sums that they certify.

* `lattice_plan`: which spacing and widths serve a tolerance, and what bounds do they give?
* `lattice_taps`: what are the taps of a plan as polynomials, and how far are they off?
* `point_lattice`: how are points spread, smoothed and read off on all cores?
* `aligned_lattices`: how do segments of points have a lattice each, on common cells?
* `nearby_points`: which points matter to queries that a lattice cannot certify?

Data flow: a way to sum takes the cheapest of `lattice_plan.plans` for its tolerance, makes a
`PointLattice` with the polynomials of `lattice_taps`, spreads the points onto it by the loops of
`core.lattice`, and reads certified bounds of the sums off. Queries whose bounds are too wide are
left to other ways, over their `nearby_points`.

Decisions
---------
**The plan minimises counted work.** Wider stencils allow a coarser lattice. For every width the
largest spacing within the tolerance is found once for a dimension, a tolerance and a mass; the way
that sums takes the plan of least cost for its points, queries and cells.

**In the tails few points matter.** A query far from all points has no certificate: the error is
relative to each pair's kernel, but what lies beyond the stencils is bounded by the total weight
times a kernel. The sum there is that over the nearest points, and the total weight beyond a
sufficient radius is negligible, so that a tree of some points takes the place of a tree of all: 512
x 512 queries on the box of 1,000,000 points take 0.1 s instead of 0.6 s.
"""
