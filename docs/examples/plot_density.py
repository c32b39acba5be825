"""
Kernel density: choosing the bandwidth
======================================

One data set, three bandwidths, and held-out rows to compare them.

A kernel density estimate places a kernel on every row and adds the kernels up. Kernels that are
too wide smooth out the shape of the data; kernels that are too narrow show the rows instead of the
density they were drawn from. ``bandwidth="loo"`` takes the width under which all other rows predict
each row best.
"""  # noqa: D205, D400

# %%
# Data, and three estimates
# -------------------------
# Scott's rule uses the numbers of rows and features only. The leave-one-out bandwidth is found
# from the rows themselves. The third is a fifth of it.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.model_selection import train_test_split

from fastmetric import KernelDensity

X, _ = make_moons(400, noise=0.12, random_state=0)
X_train, X_test = train_test_split(X, test_size=0.5, random_state=0)

found = KernelDensity(bandwidth="loo").fit(X_train)
estimates = {
    "Scott's rule": KernelDensity(bandwidth="scott").fit(X_train),
    "leave one out": found,
    "a fifth of that": KernelDensity(bandwidth=found.bandwidth_ / 5).fit(X_train),
}

# %%
# The densities
# -------------
# Contours enclose 25, 50, 75 and 95 percent of rows drawn from each estimate; the dots are the
# rows it was fitted to. The titles give the mean log density of the held-out rows: more is better.
x, y = np.meshgrid(np.linspace(-1.7, 2.7, 110), np.linspace(-1.3, 1.8, 80))
grid = np.column_stack([x.ravel(), y.ravel()])
shades = plt.get_cmap("Blues")(np.linspace(0.15, 0.75, 4))
# sphinx_gallery_thumbnail_number = 2
for name, density in estimates.items():
    figure, axis = plt.subplots(figsize=(5.6, 4.6), layout="constrained")
    log_density = density.score_samples(grid).reshape(x.shape)
    at_draws = density.score_samples(density.sample(1000, random_state=0))
    levels = np.quantile(at_draws, [0.05, 0.25, 0.5, 0.75])
    axis.contourf(x, y, log_density, levels=levels, colors=shades, extend="max")
    axis.scatter(*X_train.T, s=9, color="0.15", linewidths=0)
    held_out = density.score(X_test) / len(X_test)
    title = f"{name}: h = {density.bandwidth_:.2g}\nheld-out rows: {held_out:.2f}"
    axis.set_title(title, fontsize=14)
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("0.8")
plt.show()
