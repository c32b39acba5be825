"""
NCA and PCA: handwritten digits in the plane
============================================

Two numbers per picture, learnt from the labels, beside the two leading principal components.

PCA keeps the directions of largest variance and does not use the labels. NCA searches for the two
directions in which a digit's neighbours are digits of its own kind. Both maps are learnt from
one part of scikit-learn's digits; the pictures show the rows that were held out.
"""  # noqa: D205, D400

# %%
# Data, and the two maps
# ----------------------
# The pixels all have the same unit, so one common factor suffices to scale them.
# Two dimensions are few for ten classes: without a penalty the map grows until the nearest
# neighbour of a training row has nearly all of the weight. ``alpha`` limits the map.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from fastmetric import NCA

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, test_size=0.4, stratify=y, random_state=0
)

maps = {
    "PCA": PCA(n_components=2).fit(X_train),
    "NCA": NCA(n_components=2, alpha=1.0, max_iter=200).fit(X_train, y_train),
}


# %%
# The digits that were held out
# -----------------------------
# Each is drawn as its own numeral. The titles give the accuracy of a five-nearest-neighbour
# classifier in the plane.
def accuracy_in_the_plane(projection):
    """Return the share of held-out rows that their neighbours in the plane get right."""
    knn = KNeighborsClassifier(n_neighbors=5)
    knn.fit(projection.transform(X_train), y_train)
    return knn.score(projection.transform(X_test), y_test)


colours = plt.get_cmap("tab10").colors
# sphinx_gallery_thumbnail_number = 2
for name, projection in maps.items():
    figure, axis = plt.subplots(figsize=(5.6, 5.6), layout="constrained")
    Z = projection.transform(X_test)
    for digit, colour in enumerate(colours):
        own = Z[y_test == digit]
        axis.scatter(*own.T, marker=f"${digit}$", s=40, color=colour, linewidths=0.3)
    share = accuracy_in_the_plane(projection)
    axis.set_title(f"{name}: {share:.0%} right by 5 nearest neighbours", fontsize=14)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("0.8")
plt.show()

# %%
# The weights of the pixels
# -------------------------
# A row of ``components_`` weighs the pixels: red adds, blue subtracts. PCA's weights follow the
# strokes that vary most, NCA's the pixels that distinguish the digits.
figure, axes = plt.subplots(1, 4, figsize=(11, 3.1), layout="constrained")
panels = [(name, k) for name in maps for k in range(2)]
for axis, (name, k) in zip(axes, panels, strict=True):
    weights = maps[name].components_[k].reshape(8, 8)
    limit = np.abs(weights).max()
    axis.imshow(weights, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.set_title(f"{name}, component {k + 1}")
    axis.set_axis_off()
plt.show()
