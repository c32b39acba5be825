"""
NCA variants: four maps of the same digits
==========================================

PCA, classic NCA, NCA with compact support and a background, and NCA by mini-batches, side by
side: what each makes of handwritten digits in the plane.

All maps are learnt from one part of scikit-learn's digits; the pictures show the rows that were
held out.
"""  # noqa: D205, D400

# %%
# The maps
# --------
# Two dimensions are few for ten classes, so NCA needs a penalty: without one the map grows until
# the nearest neighbour of a row has nearly all of the weight. The compact kernel is zero beyond a
# distance of one, the cutoff; the background, a normal density per class, classifies the rows
# beyond it. Mini-batches have some 250 rows each.
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

variants = {
    "NCA": {"max_iter": 200},
    "NCA, compact with background": {"kernel": "biweight", "background": True, "max_iter": 200},
    "NCA by mini-batches": {"solver": "minibatch", "batch_size": 250, "random_state": 0},
}
maps = {"PCA": PCA(n_components=2).fit(X_train)}
for name, parameters in variants.items():
    maps[name] = NCA(n_components=2, alpha=1.0, **parameters).fit(X_train, y_train)


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
# sphinx_gallery_thumbnail_number = 4
for name, projection in maps.items():
    figure, axis = plt.subplots(figsize=(5.6, 5.6), layout="constrained")
    Z = projection.transform(X_test)
    for digit, colour in enumerate(colours):
        own = Z[y_test == digit]
        axis.scatter(*own.T, marker=f"${digit}$", s=40, color=colour, linewidths=0.3)
    axis.set_title(f"{name}: {accuracy_in_the_plane(projection):.0%} right", fontsize=13)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("0.8")
plt.show()

# %%
# The cutoff of the compact kernel
# --------------------------------
# The Gaussian is positive everywhere; the biweight kernel is zero from a distance of one on. To the
# right, one training row (the cross) among the others, in the compact map: only rows within the
# circle contribute to its sums, and a cell list finds them without visiting the others. The fit
# enlarges the map until the circle contains few rows of other classes.
compact = maps["NCA, compact with background"]
Z = compact.transform(X_train)
centre = Z[np.argmin(np.sum((Z - Z[y_train == 6].mean(axis=0)) ** 2, axis=1))]
near = np.sum((Z - centre) ** 2, axis=1) < 1
r = np.linspace(0, 2, 200)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
left.plot(r, np.exp(-(r**2)), color=colours[0], label="Gaussian")
left.plot(r, np.clip(1 - r**2, 0, None) ** 2, color=colours[3], label="biweight")
left.set(title="Two kernels", xlabel="distance in the projected space", ylim=(0, None))
left.legend(frameon=False)
left.spines[["top", "right"]].set_visible(False)
right.scatter(*Z[~near].T, s=8, color="0.85")
right.scatter(*Z[near].T, s=14, c=np.array(colours)[y_train[near]])
right.add_patch(plt.Circle(centre, 1, fill=False, color="0.3"))
right.scatter(*centre, marker="+", s=120, color="black")
right.set(title=f"{near.sum()} of {len(Z)} rows within the cutoff", aspect="equal")
right.set(xticks=[], yticks=[])
right.spines[:].set_color("0.8")
plt.show()
