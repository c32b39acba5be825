"""Pictures of fitted estimators; they need matplotlib (`pip install fastmetric[plot]`).

* `projection_display`: rows in the plane of a learnt map, and which class every place is given.
* `density_display`: the log density over one or two features, far into the tails.
* `history_display`: how a fit converged.
* `cluster_display`: clusters, their centres, and the basin of each.
* `projection_panels`: several projections of the same rows side by side, saved to a file.
* `canvas`: matplotlib itself, axes, colours, grids, and the rows that are drawn.

A display is made by `from_estimator`, as in scikit-learn: it checks, computes what is to be drawn,
keeps it as attributes, and calls `plot`, which may be called again on other axes and sets `ax_`,
`figure_` and the artists.

Decisions
---------
**No estimator is imported.** Displays ask for `transform`, `predict`, `score_samples` or
`history_`, so scikit-learn's estimators and pipelines can be drawn, too.

**matplotlib is imported when a picture is drawn**, and no sooner: nothing else needs it.
"""

from fastmetric.plotting.cluster_display import ClusterDisplay
from fastmetric.plotting.density_display import DensityDisplay
from fastmetric.plotting.history_display import HistoryDisplay
from fastmetric.plotting.projection_display import ProjectionDisplay

__all__ = [
    "ClusterDisplay",
    "DensityDisplay",
    "HistoryDisplay",
    "ProjectionDisplay",
]
