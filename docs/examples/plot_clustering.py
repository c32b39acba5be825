"""
Mean shift: clusters and their basins
=====================================

Mean shift on 20,000 rows: the clusters, the density, its modes, and the trajectories to them.

Mean shift follows the gradient of a kernel density estimate from every row to a mode; rows that
lead to the same mode are a cluster. The number of clusters is not given.
"""  # noqa: D205, D400

# %%
# Five groups of rows
# -------------------
import matplotlib.pyplot as plt
import numpy as np

from fastmetric import KernelDensity, MeanShift
from fastmetric.plotting import ClusterDisplay

rng = np.random.default_rng(3)
centers = np.array([[0.0, 0.0], [4.5, 1.0], [-2.5, 4.5], [4.0, -4.0], [1.6, 4.8]])
spread = np.array([[1.2, 0.7], [0.5, 1.3], [1.1, 1.0], [1.4, 0.5], [0.6, 0.6]])
which = rng.integers(0, 5, 20_000)
X = centers[which] + spread[which] * rng.standard_normal((len(which), 2))

clusters = MeanShift(bandwidth=0.55).fit(X)
print(len(clusters.cluster_centers_), "clusters after", clusters.n_iter_, "steps")

# %%
# Clusters and basins
# -------------------
# ``ClusterDisplay`` draws a sample of the rows in the colour of their cluster, the centres, which
# are the modes of the density, and the cluster that a row at any other place would belong to.
display = ClusterDisplay.from_estimator(
    clusters, X, subsample=4000, random_state=0, scatter_kwargs={"s": 5}
)
display.ax_.set_title(f"{len(clusters.cluster_centers_)} clusters of 20,000 rows", fontsize=14)
plt.show()


# %%
# Density and trajectories
# ------------------------
# Contours of the density, the rows in the colour of their mode, and a few trajectories. The
# lines are plain steps of mean shift, from row to row's weighted mean.
def mean_shift_paths(starts: np.ndarray, steps: int = 60) -> np.ndarray:
    """Return the trajectories (steps, m, 2) of plain mean shift."""
    ways = [starts]
    for _ in range(steps):
        s = ((ways[-1][:, None] - X) ** 2).sum(axis=2) / (2 * clusters.bandwidth_**2)
        kernels = np.exp(-s)
        ways.append(kernels @ X / kernels.sum(axis=1, keepdims=True))
    return np.array(ways)


x, y = np.meshgrid(np.linspace(-6, 8, 160), np.linspace(-6.5, 8.5, 170))
grid = np.column_stack([x.ravel(), y.ravel()])
density = KernelDensity(bandwidth=0.55, rtol=1e-3).fit(X)
heights = np.exp(density.score_samples(grid)).reshape(x.shape)

colors = np.array(["#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377"])
big = clusters.labels_ < 5
figure, axis = plt.subplots(figsize=(7, 7), layout="constrained")
axis.scatter(*X[big].T, s=3, c=colors[clusters.labels_[big]], alpha=0.4, linewidths=0)
axis.scatter(*X[~big].T, s=4, c="0.6", linewidths=0)
axis.contour(x, y, heights, levels=12, colors="0.25", linewidths=0.5, alpha=0.7)
for way in mean_shift_paths(X[::170]).transpose(1, 0, 2):
    axis.plot(*way.T, color="k", linewidth=0.7, alpha=0.6)
axis.scatter(*clusters.cluster_centers_[:5].T, s=160, marker="*", color="w", edgecolors="k")
axis.set_aspect("equal")
axis.set_axis_off()
axis.set_title("20,000 rows and their five modes")
plt.show()
