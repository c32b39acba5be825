"""Where the modes of a kernel density are, and to which one a row leads: mean shift.

* `trajectories`: where does accelerated mean shift lead from many starts at once?
* `mode_search`: which ends are modes: exact gradients, saddles, ends that unite?

The data's way: `mode_search.find_modes` starts a trajectory at every row (or bin);
`trajectories.follow` steps all of them by certified sums with first moments (`KernelSums`,
`core.walk.mean_shift_replay`) and merges those that meet; the ends are refined and tested with
exact sums.

Decisions
---------
**Visited cells.** All rows step at once, and many pass through places where others have been.
Cells of 0.05 bandwidths record the first trajectory that entered them; a later one that enters the
cell of a trajectory of *higher* density is merged with it. Higher, so that no two follow each
other. After a few steps most of 100,000 rows are merged. The cost, stated in the guide, is rows
near a divide.

**Accelerated steps must gain.** Anderson's mixing of the last three moves proposes a leap; it is
kept only if the density increases by as much as a plain step is known to gain.

**Saddles.** Leaps may end at saddle points, which plain steps leave by themselves, if slowly. So
the Hessian of every end is computed, by differences of exact steps, and a saddle is left along its
steepest direction.
"""
