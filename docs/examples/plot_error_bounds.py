"""
Certified sums: true errors and their bounds
============================================

What is asked for, what is certified, and the true error, of 20,000 sums of kernels.

With ``rtol`` far groups of points may be replaced by a summary. Every sum comes with bounds that
hold for any input; here they are compared with sums over all pairs.
"""  # noqa: D205, D400

# %%
# Every point a query
# -------------------
# Points with heavy tails: some lie in the crowd, some alone. Each is left out of its own sum.
import matplotlib.pyplot as plt
import numpy as np

from fastmetric import kernel_sums

X = np.random.default_rng(0).standard_t(2.5, (20_000, 2))
rtol = 1e-2
exact = kernel_sums(X, bandwidth=0.3, method="exact")
sums, lower, upper = kernel_sums(X, bandwidth=0.3, method="tree", rtol=rtol, return_bounds=True)
print("all within their bounds:", bool(((lower <= exact) & (exact <= upper)).all()))

# %%
# Errors
# ------
# Blue, the larger of the distances from the answer to its two bounds; orange, the true error, those
# below 1e-10 at the foot. The tails are to the left, where few points count. The lowest of the
# certified values allows for leaves of the tree that are summed in single precision.
certified = np.maximum(upper - sums, sums - lower)
true = np.maximum(np.abs(sums - exact), 1e-10)
near = exact > -20
figure, axis = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
axis.axhline(rtol, color="0.2", linestyle="--", linewidth=1, label="asked for: rtol")
for errors, color, name in [(certified, "C0", "certified"), (true, "C1", "true")]:
    axis.scatter(exact[near], errors[near], s=4, color=color, linewidths=0, label=name)
axis.set(yscale="log", xlabel="log sum at the point", ylabel="error of the log sum")
axis.set(ylim=(5e-11, 1e-1))
axis.legend(loc="center left", markerscale=4)
plt.show()
