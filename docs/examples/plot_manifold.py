"""
Manifold Parzen Windows: a density along a spiral
=================================================

Round kernels against kernels that lie along the data, on rows near a curve.

Kernel density estimation places the same spherical kernel on every row. Manifold Parzen Windows
give each row a flat Gaussian: wide in the directions of its neighbours, narrow in all others.
"""  # noqa: D205, D400

# %%
# Rows near a curve
# -----------------
# 300 rows to learn from. The widths of both estimates are chosen on 300 other rows; one fit serves
# all noise variances of the flat Gaussians.
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from fastmetric import KernelDensity, ManifoldParzen

rng = np.random.default_rng(0)
t = rng.uniform(3, 15, 600)
X = 0.04 * np.column_stack([t * np.sin(t), t * np.cos(t)]) + 0.01 * rng.standard_normal((600, 2))
train, held_out = X[:300], X[300:]

widths = np.geomspace(0.003, 0.05, 25)
parzen = max(
    (KernelDensity(bandwidth=width).fit(train) for width in widths),
    key=lambda model: model.score(held_out),
)
model = ManifoldParzen(1, n_neighbors=10, noise_variance=1.0).fit(train)
scores = model.score_samples_grid(held_out, noise_variance=widths**2).mean(axis=2)[0]
manifold = model.set_params(noise_variance=widths[scores.argmax()] ** 2).fit(train)

# %%
# The densities
# -------------
# Brightness shows the log density. Where rows are few, spherical kernels give separate modes. The
# flat Gaussians close the gaps, but extend beyond the curve where neighbours lie around a bend.
side = np.linspace(-0.68, 0.68, 300)
plane = np.column_stack([part.ravel() for part in np.meshgrid(side, side)])
estimates = {
    f"Parzen windows, σ = {parzen.bandwidth_:.3f}": parzen,
    f"Manifold Parzen windows, σ = {np.sqrt(manifold.noise_variance):.3f}": manifold,
}
# sphinx_gallery_thumbnail_number = 2
for name, density in estimates.items():
    figure, axis = plt.subplots(figsize=(5.6, 6.1), layout="constrained", facecolor="#0b0f1a")
    logs = density.score_samples(plane).reshape(300, 300)
    axis.imshow(logs, origin="lower", extent=(-0.68, 0.68) * 2, cmap="inferno", vmin=-4, vmax=3.2)
    axis.scatter(*train.T, s=3, color="white", linewidths=0, alpha=0.7)
    mean = density.score_samples(held_out).mean()
    axis.set_title(f"{name}\nheld-out rows: {mean:.2f}", color="white", fontsize=13)
    axis.set_axis_off()
plt.show()

# %%
# The flat Gaussians
# ------------------
# Every eighth kernel along the spiral, as the ellipse of two standard deviations.
chosen = np.argsort(t[:300])[::8]
figure, axis = plt.subplots(figsize=(6.5, 6.5), layout="constrained")
axis.scatter(*train.T, s=4, color="0.5", linewidths=0)
for i in chosen:
    x, y = manifold.directions_[i, 0]
    length = 4 * np.sqrt(manifold.variances_[i, 0] + manifold.noise_variance)
    width = 4 * np.sqrt(manifold.noise_variance)
    angle = np.degrees(np.arctan2(y, x))
    axis.add_patch(Ellipse(train[i], length, width, angle=angle, color="#2467b3", alpha=0.35, lw=0))
axis.set_aspect("equal")
axis.set_axis_off()
plt.show()
