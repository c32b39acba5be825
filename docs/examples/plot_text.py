"""
NCA: text in the plane
======================

Paragraphs of scikit-learn's documentation, and the packages they describe.

Words are counted and weighed (TF-IDF), projected to 100 dimensions by a truncated singular value
decomposition, and from there to the plane by NCA.
"""  # noqa: D205, D400

# %%
# Paragraphs and their labels
# ---------------------------
import importlib
import inspect

import matplotlib.pyplot as plt
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from fastmetric import NCA
from fastmetric.plotting import ProjectionDisplay

texts, labels = [], []
for package in ["cluster", "ensemble", "linear_model", "metrics", "preprocessing"]:
    module = importlib.import_module(f"sklearn.{package}")
    for name in sorted(module.__all__):
        document = inspect.getdoc(getattr(module, name)) or ""
        paragraphs = [part for part in document.split("\n\n") if len(part.split()) >= 15]
        texts += paragraphs
        labels += [package] * len(paragraphs)

# %%
# The plane
# ---------
# The rows that are drawn were held out.
train, new, labels_train, labels_new = train_test_split(
    texts, labels, stratify=labels, random_state=0
)
model = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, stop_words="english", token_pattern="[A-Za-z]{3,}"),
    TruncatedSVD(100, random_state=0),
    Normalizer(),
    NCA(n_components=2, alpha=0.1, tol=1e-3),
).fit(train, labels_train)
display = ProjectionDisplay.from_estimator(model, new, labels_new)
share = model.score(new, labels_new)
display.ax_.set_title(f"{len(new)} paragraphs: {share:.0%} right")
plt.show()
