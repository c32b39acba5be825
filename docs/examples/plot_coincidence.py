"""
Latent Coincidence Analysis: digits that coincide
=================================================

Latent Coincidence Analysis learns from pairs that are labelled as coinciding or not. Here every
digit is paired with the mean of every class, and should coincide with that of its own.
"""  # noqa: D205, D400

# %%
# Three maps to the plane
# -----------------------
# PCA uses no classes. The second map is learnt from pairs of rows with class means, the third from
# neighbours: a row should coincide with the nearest rows of its class, and not with rows of other
# classes that are as near.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from fastmetric import LatentCoincidenceAnalysis

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, test_size=0.4, stratify=y, random_state=0
)

means = np.stack([X_train[y_train == digit].mean(axis=0) for digit in range(10)])
rows, digits = (part.ravel() for part in np.indices((len(X_train), 10)))
pairs = np.stack([rows, len(X_train) + digits], axis=1)
together = np.where(y_train[rows] == digits, 1, -1)

maps = {
    "PCA": PCA(n_components=2).fit(X_train),
    "coincidence with means": LatentCoincidenceAnalysis(2).fit_pairs(
        pairs, together, X=np.concatenate([X_train, means])
    ),
    "coincidence of neighbours": LatentCoincidenceAnalysis(2, tol=1e-3, random_state=0).fit(
        X_train, y_train
    ),
}

# %%
# The digits that were held out
# -----------------------------
# Each is drawn as its own numeral; the titles give the accuracy of three nearest neighbours.
colours = plt.get_cmap("tab10").colors
# sphinx_gallery_thumbnail_number = 2
for name, projection in maps.items():
    figure, axis = plt.subplots(figsize=(5.6, 5.6), layout="constrained")
    Z = projection.transform(X_test)
    knn = KNeighborsClassifier(3).fit(projection.transform(X_train), y_train)
    for digit, colour in enumerate(colours):
        own = Z[y_test == digit]
        axis.scatter(*own.T, marker=f"${digit}$", s=40, color=colour, linewidths=0.3)
    axis.set_title(f"{name}: {knn.score(Z, y_test):.0%} right", fontsize=14)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("0.8")
plt.show()
