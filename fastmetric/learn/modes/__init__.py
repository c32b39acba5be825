"""The modes of a kernel density, and the mode of each row: mean shift.

* `trajectories`: where do the trajectories of accelerated mean shift end?
* `mode_search`: which ends are modes: exact gradients, saddles, ends that coincide?

Data flow: `mode_search.find_modes` starts a trajectory at every row (or bin);
`trajectories.follow` steps all of them by certified sums with first moments (`KernelSums`; a
lattice, `core.lattice.reading.read_slopes`, or walks, `core.walk.mean_shift_replay`) and merges
those that meet; the ends are refined, by a lattice first, and tested with exact sums.

Decisions
---------
**Visited cells.** All rows step at once, and many trajectories pass through the same places.
Cells of 0.05 bandwidths record the first trajectory that entered them; a later one that enters the
cell of a trajectory of *higher* density is merged with it. The order by density excludes cycles.
After a few steps most of 100,000 rows are merged. The cost, stated in the guide, is that rows near
the boundary of two basins may be assigned to the wrong one.

**Accelerated steps must gain.** Anderson mixing of the last three moves proposes an extrapolated
step; it is kept only if the density increases by at least the guaranteed gain of a plain step.

**Saddles.** Extrapolated steps may end at saddle points, which plain steps leave slowly. So
the Hessian of every end is computed by differences of exact steps, and a saddle is left along its
direction of largest curvature. Where steps come from a lattice this is done with these, too, before
any exact sum: what is left for exact sums is two or three steps.
"""
