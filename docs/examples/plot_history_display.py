"""
HistoryDisplay: convergence of a fit
====================================

What a fit recorded of its iterations: objective, held-out rows, gradient, seconds.

``history_`` has one entry for the start and one for each iteration. ``HistoryDisplay`` draws what
the fit maximises, and beside it the same of held-out rows, if there were any.
"""  # noqa: D205, D400

# %%
# Over-fitting, seen
# ------------------
# Without a penalty the objective of the training rows increases as long as the fit lasts, that of
# the held-out rows does not. ``early_stopping`` keeps the best map by the held-out rows.
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from fastmetric import NCA
from fastmetric.plotting import HistoryDisplay

X, y = load_digits(return_X_y=True)
stopped = NCA(n_components=3, early_stopping=True, max_iter=100, random_state=0).fit(X / 16, y)
display = HistoryDisplay.from_estimator(stopped)
best = stopped.history_["validation"].argmax()
display.ax_.axvline(best, color="0.6", linestyle=":")
display.ax_.set_title(f"NCA without a penalty: the map of iteration {best} is kept")
plt.show()

# %%
# Other figures
# -------------
# Any figure that was recorded can be drawn, by iterations, seconds or evaluations. The gradient is
# drawn over a logarithmic axis, as it varies by more than a factor of 100.
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
fitted = NCA(n_components=3, alpha=1.0, max_iter=200).fit(X / 16, y)
HistoryDisplay.from_estimator(fitted, steps="evaluations", ax=axes[0])
HistoryDisplay.from_estimator(fitted, names="gradient_norm", ax=axes[1])
plt.show()
