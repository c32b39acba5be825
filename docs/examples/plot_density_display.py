"""
DensityDisplay: log densities and their tails
=============================================

Contours of the log density, from the mode to where the density is too small for a float.

Densities of two features fall so fast that a picture of them shows the modes only.
``DensityDisplay`` draws logs, and its contours are 0.5, 1, 2, 4, ... below the highest one: near
the mode they show the shape, far away the tails.
"""  # noqa: D205, D400

# %%
# Two features
# ------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from fastmetric import KernelDensity
from fastmetric.plotting import DensityDisplay

X, _ = make_moons(600, noise=0.1, random_state=0)
density = KernelDensity(bandwidth="loo").fit(X)
display = DensityDisplay.from_estimator(density, X, eps=1.5)
display.ax_.set_title(f"Gaussian kernels, h = {density.bandwidth_:.2f}")
plt.show()
print(f"lowest log density in the picture: {display.response.min():.0f}")

# %%
# Bounded support
# ---------------
# The biweight kernel is zero beyond its bandwidth. There the log density is minus infinity, and
# nothing is drawn.
compact = KernelDensity(kernel="biweight", bandwidth=0.4).fit(X)
display = DensityDisplay.from_estimator(compact, X)
display.ax_.set_title("Biweight kernels, h = 0.4")
plt.show()

# %%
# One feature
# -----------
# The log density is a line; the rows are the marks at its foot. The tails of the exponential kernel
# are heavier than those of the Gaussian.
x = np.random.default_rng(0).standard_normal((200, 1))
figure, ax = plt.subplots(layout="constrained")
for kernel, color in [("gaussian", "C0"), ("exponential", "C3")]:
    one = KernelDensity(kernel=kernel, bandwidth=0.3).fit(x)
    DensityDisplay.from_estimator(
        one, x, eps=3.0, ax=ax, surface_kwargs={"label": kernel, "color": color}
    )
ax.legend(frameon=False)
plt.show()
