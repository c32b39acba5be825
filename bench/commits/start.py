"""What a new process pays: the import, and the first fit with our code in the cache."""

from sklearn.datasets import load_iris

from bench.shared.setup import ROOT
from fastmetric import NCA

# A new process has to find fastmetric and the cache as this one does.
_FOUND = f"import sys; sys.path.append({str(ROOT)!r}); import bench"


class Start:
    """Every sample is a new process."""

    number = 1

    def setup(self):
        NCA(2).fit(*load_iris(return_X_y=True))

    def timeraw_import(self):
        return "import fastmetric", f"{_FOUND}; import numba, scipy.optimize, sklearn.base"

    def timeraw_first_fit(self):
        data = "from sklearn.datasets import load_iris; X, y = load_iris(return_X_y=True)"
        return "NCA(2).fit(X, y)", f"{_FOUND}; from fastmetric import NCA; {data}"
