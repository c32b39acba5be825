"""
Local Component Analysis: round neighbourhoods
==============================================

PCA makes the whole cloud of rows round, Local Component Analysis its neighbourhoods.

Three long and thin clusters lie side by side. Distances between them are as small as distances
within them: no method based on neighbours separates them, neither as they are nor after PCA.
"""  # noqa: D205, D400

# %%
# Three clusters, tilted
# ----------------------
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import SpectralClustering
from sklearn.decomposition import PCA
from sklearn.metrics import confusion_matrix

from fastmetric import LocalComponentAnalysis

rng = np.random.default_rng(3)
y = np.repeat([0, 1, 2], 200)
X = rng.normal(size=(600, 2)) * [5.0, 0.16]
X[:, 1] += 1.1 * (y - 1)
turn = np.deg2rad(35)
X = X @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])

# %%
# Under three metrics
# -------------------
# Colours are what spectral clustering finds, in the coordinates of each picture. The ellipse is the
# learnt kernel, two standard deviations wide: in the last picture it is a circle.
local = LocalComponentAnalysis().fit(X)
views = {
    "as they are": X,
    "PCA, whitened": PCA(whiten=True).fit_transform(X),
    "Local Component Analysis": local.transform(X)[:, ::-1],
}
angle = np.linspace(0, 2 * np.pi, 100)
circle = 2 * np.column_stack([np.cos(angle), np.sin(angle)])
kernels = [
    circle @ np.linalg.cholesky(local.covariance_).T,
    None,
    circle,
]
colours = np.array(["#2a6f97", "#e07a5f", "#81b29a"])
# sphinx_gallery_thumbnail_number = 3
for (name, Z), kernel in zip(views.items(), kernels, strict=True):
    figure, axis = plt.subplots(figsize=(5.6, 4.8), layout="constrained")
    found = SpectralClustering(3, gamma=0.5, random_state=0).fit_predict(Z)
    counts = confusion_matrix(y, found)
    right = counts[linear_sum_assignment(-counts)].sum() / len(y)
    axis.scatter(*Z.T, s=14, c=colours[found], linewidths=0)
    if kernel is not None:
        axis.plot(*(kernel + np.median(Z, axis=0)).T, color="0.15", lw=1.4)
    axis.set_title(f"{name}\n{right:.0%} found", fontsize=14)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("0.8")
plt.show()
