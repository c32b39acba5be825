"""
ProjectionDisplay: class regions of NCA
=======================================

Rows in the plane of a learnt map, and the class that is predicted at every place of it.

NCA is a map and a classifier: the probability of a class at a place of the plane is its share of
the kernels around the projected training rows. ``ProjectionDisplay`` draws both.
"""  # noqa: D205, D400

# %%
# Probabilities
# -------------
# The colour of a place is the mixture of the classes' colours by their probabilities: pale or grey
# where classes mix. The rows were held out.
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastmetric import NCA, LatentCoincidenceAnalysis
from fastmetric.plotting import ProjectionDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, test_size=0.4, stratify=y, random_state=0
)
nca = NCA(n_components=2, alpha=1.0, max_iter=200).fit(X_train, y_train)
figure, ax = plt.subplots(figsize=(5.6, 4.4), layout="constrained")
display = ProjectionDisplay.from_estimator(nca, X_test, y_test, ax=ax)
ax.set_title(f"NCA: {nca.score(X_test, y_test):.0%} of the held-out digits are right")
plt.show()

# %%
# A pipeline
# ----------
# A pipeline is drawn in the plane that its last step sees. Here the last step is a classifier of
# nearest neighbours, behind Latent Coincidence Analysis; ``response_method="predict"`` draws the
# most probable class only.
wine = load_wine()
names = wine.target_names[wine.target]
pipeline = make_pipeline(
    StandardScaler(), LatentCoincidenceAnalysis(2, random_state=0), KNeighborsClassifier(5)
).fit(wine.data, names)
display = ProjectionDisplay.from_estimator(pipeline, wine.data, names, response_method="predict")
display.ax_.set_title("Three wines, by 5 nearest neighbours in a learnt metric")
plt.show()
