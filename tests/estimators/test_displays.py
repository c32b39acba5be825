"""Displays draw what the estimator says at the places of the picture, and refuse bad input."""

from __future__ import annotations

import subprocess
import sys
import warnings

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_moons
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastmetric import NCA, KernelDensity, LatentCoincidenceAnalysis, MeanShift
from fastmetric.plotting import ClusterDisplay, DensityDisplay, HistoryDisplay, ProjectionDisplay

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

IRIS, SPECIES = load_iris(return_X_y=True)
MOONS, _ = make_moons(120, noise=0.1, random_state=0)


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def nca():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NCA(2, alpha=1.0, max_iter=15).fit(IRIS, SPECIES)


@pytest.fixture(scope="module")
def density():
    return KernelDensity(bandwidth=0.2).fit(MOONS)


@pytest.fixture(scope="module")
def clusters():
    return MeanShift(bandwidth=0.3).fit(MOONS)


def posterior(places, Z, y):
    """Return the kernel rule's class probabilities at places of the plane, written plainly."""
    s = ((places[:, None] - Z) ** 2).sum(axis=2)
    kernels = np.exp(s.min(axis=1, keepdims=True) - s)
    sums = np.stack([kernels[:, y == c].sum(axis=1) for c in np.unique(y)], axis=1)
    return sums / sums.sum(axis=1, keepdims=True)


# Projections


def test_regions_are_the_posterior_at_their_places(nca):
    display = ProjectionDisplay.from_estimator(nca, IRIS, SPECIES, grid_resolution=13)
    places = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    expected = posterior(places, IRIS @ nca.components_.T, SPECIES)
    np.testing.assert_allclose(display.response.reshape(-1, 3), expected, rtol=0, atol=1e-9)
    assert display.surface_ is not None


def test_rows_are_drawn_where_the_map_takes_them_in_the_colour_of_their_class(nca):
    display = ProjectionDisplay.from_estimator(
        nca, IRIS, SPECIES, multiclass_colors=["red", "lime", "blue"]
    )
    np.testing.assert_allclose(display.scatter_.get_offsets(), nca.transform(IRIS))
    expected = np.array([to_rgb(name) for name in ("red", "lime", "blue")])[SPECIES]
    np.testing.assert_allclose(display.scatter_.get_facecolors()[:, :3], expected)
    assert [text.get_text() for text in display.legend_.get_texts()] == ["0", "1", "2"]
    assert display.ax_.get_xlabel() == "nca0"


def test_a_pipeline_is_drawn_in_the_plane_before_its_classifier():
    names = load_iris().target_names[SPECIES]
    knn = KNeighborsClassifier(5)
    pipeline = make_pipeline(StandardScaler(), PCA(2), knn).fit(IRIS, names)
    display = ProjectionDisplay.from_estimator(
        pipeline, IRIS, names, response_method="predict", grid_resolution=9
    )
    places = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    found = display.classes[display.response.argmax(axis=2)].ravel()
    assert (found == knn.predict(places)).all()
    np.testing.assert_allclose(display.Z, pipeline[:-1].transform(IRIS))


def test_a_scaled_nca_has_the_regions_of_its_own_plane():
    pipeline = make_pipeline(StandardScaler(), NCA(2, max_iter=5, tol=0.5)).fit(IRIS, SPECIES)
    display = ProjectionDisplay.from_estimator(pipeline, IRIS, SPECIES, grid_resolution=7)
    places = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    expected = posterior(places, pipeline.transform(IRIS), SPECIES)
    np.testing.assert_allclose(display.response.reshape(-1, 3), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("components", [(0, 1), (2, 0)])
def test_more_than_two_components_have_no_regions(components):
    nca = NCA(3, max_iter=5, tol=0.5).fit(IRIS, SPECIES)
    display = ProjectionDisplay.from_estimator(nca, IRIS, SPECIES, components=components)
    assert display.response is None
    assert display.surface_ is None
    np.testing.assert_array_equal(display.Z, nca.transform(IRIS)[:, list(components)])
    with pytest.raises(ValueError, match=r"response_method='predict', but .* choose None"):
        ProjectionDisplay.from_estimator(
            nca, IRIS, components=components, response_method="predict"
        )


def test_a_map_that_does_not_reach_the_plane_has_no_regions():
    flat = NCA(2, init=np.ones((2, 4)), max_iter=1, tol=0.5).fit(IRIS, SPECIES)
    flat.components_ = np.ones((2, 4))
    assert ProjectionDisplay.from_estimator(flat, IRIS, SPECIES).response is None


def test_transformers_without_classes_are_drawn_without_regions():
    pca = PCA(2).fit(IRIS)
    display = ProjectionDisplay.from_estimator(pca, IRIS)
    assert display.response is None
    assert display.legend_ is None
    coincidence = LatentCoincidenceAnalysis(2, early_stopping=False, max_iter=3, tol=0.5)
    coincidence.fit(IRIS, SPECIES)
    assert ProjectionDisplay.from_estimator(coincidence, IRIS, SPECIES).response is None


def test_unknown_labels_are_named(nca):
    with pytest.raises(ValueError, match=r"y should hold labels .* got \[7"):
        ProjectionDisplay.from_estimator(nca, IRIS, SPECIES + 7)
    assert ProjectionDisplay.from_estimator(nca, IRIS, SPECIES + 7, response_method=None).y[0] == 7


# Densities


def test_contours_show_the_log_density_of_every_place(density):
    display = DensityDisplay.from_estimator(density, MOONS, grid_resolution=11, xlabel="left")
    places = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    np.testing.assert_array_equal(display.response.ravel(), density.score_samples(places))
    assert display.surface_.levels[0] <= display.response.min()
    assert display.surface_.levels[-1] < display.response.max()
    assert display.ax_.get_xlabel() == "left"
    assert display.ax_.get_ylabel() == "feature 1"
    assert display.colorbar_.ax.get_ylabel() == "log density"


def test_tails_far_below_any_float_have_contours():
    narrow = KernelDensity(bandwidth=1e-3).fit(MOONS)
    display = DensityDisplay.from_estimator(narrow, MOONS, eps=1.0, grid_resolution=20)
    levels = display.surface_.levels
    assert display.response.min() < -1e5  # the density itself is zero in floats
    assert levels[0] <= display.response.min()
    assert np.all(np.diff(levels) > 0)
    falls = levels[-1] + 0.5 - levels
    np.testing.assert_allclose(falls[:-1] / falls[1:], 2.0)


def test_nothing_is_filled_where_the_density_is_zero():
    compact = KernelDensity(bandwidth=0.1, kernel="biweight").fit([[0.0, 0.0], [4.0, 4.0]])
    display = DensityDisplay.from_estimator(compact, [[0.0, 0.0], [4.0, 4.0]], grid_resolution=101)
    assert np.isneginf(display.response[50, 50])
    middle = (display.xx0[50, 50], display.xx1[50, 50])
    assert not any(path.contains_point(middle) for path in display.surface_.get_paths())
    with pytest.raises(ValueError, match="zero in all of the picture"):
        DensityDisplay.from_estimator(compact, [[1.0, 1.0], [2.0, 2.0]], eps=0.0)


def test_a_density_of_one_feature_is_a_line():
    X = MOONS[:, :1]
    display = DensityDisplay.from_estimator(KernelDensity(bandwidth=0.2).fit(X), X)
    x, logs = display.line_.get_data()
    s = (x[:, None] - X[:, 0]) ** 2 / (2 * 0.2**2)
    expected = np.log(np.exp(-s).mean(axis=1)) - np.log(0.2 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(logs, expected, rtol=1e-9)
    assert display.ax_.get_ylabel() == "log density"
    assert display.surface_ is None


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1.0, 1e8, 1e150])
@pytest.mark.parametrize("rows", [MOONS, MOONS[:1], np.ones((3, 2)), np.eye(2) * 1e3])
def test_densities_of_any_scale_are_drawn(scale, rows):
    X = rows * scale
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        density = KernelDensity(bandwidth=0.3 * scale).fit(X)
        display = DensityDisplay.from_estimator(density, X, grid_resolution=15)
        display.figure_.canvas.draw()
    assert np.isfinite(display.response).all()
    assert np.all(np.diff(display.surface_.levels) > 0)


def test_densities_of_scikit_learn_are_drawn():
    model = GaussianMixture(2, random_state=0).fit(MOONS)
    display = DensityDisplay.from_estimator(model, MOONS, levels=[-6, -4, -2])
    assert list(display.surface_.levels) == [-6, -4, -2]


# Convergence


def test_lines_are_the_figures_of_the_fit(nca):
    display = HistoryDisplay.from_estimator(nca, IRIS, SPECIES)
    assert [line.get_label() for line in display.lines_] == ["objective"]
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), nca.history_["objective"])
    np.testing.assert_array_equal(display.lines_[0].get_xdata(), np.arange(nca.n_iter_ + 1))
    timed = HistoryDisplay.from_estimator(nca, names=["gradient_norm"], steps="seconds")
    np.testing.assert_array_equal(timed.lines_[0].get_xdata(), nca.history_["seconds"])


def test_held_out_rows_are_drawn_beside_the_objective():
    stopped = NCA(2, early_stopping=True, max_iter=4, tol=0.5, random_state=0).fit(IRIS, SPECIES)
    display = HistoryDisplay.from_estimator(make_pipeline(stopped))
    assert [line.get_label() for line in display.lines_] == ["objective", "validation"]
    assert len(display.legend_.get_texts()) == 2


# Clusters


def test_basins_are_the_clusters_of_their_places(clusters):
    display = ClusterDisplay.from_estimator(clusters, MOONS, grid_resolution=9)
    places = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    np.testing.assert_array_equal(display.response.ravel(), clusters.predict(places))
    np.testing.assert_array_equal(display.labels, clusters.labels_)
    np.testing.assert_array_equal(display.centers_.get_offsets(), clusters.cluster_centers_)


def test_small_clusters_and_rows_of_none_are_grey():
    X = np.concatenate([np.zeros((5, 2)), np.full((3, 2), 9.0), [[5.0, 0.0]], [[0.4, 1.2]]])
    found = MeanShift(bandwidth=0.5, cluster_all=False).fit(X)
    display = ClusterDisplay.from_estimator(found, X, max_clusters=2)
    grey = np.ptp(display.scatter_.get_facecolors()[:, :3], axis=1) == 0
    assert grey.tolist() == [False] * 8 + [True] * 2


def test_clusters_of_many_features_are_drawn_without_basins():
    found = KMeans(3, n_init=1, random_state=0).fit(IRIS)
    display = ClusterDisplay.from_estimator(found, IRIS, features=(2, 3))
    assert display.response is None
    np.testing.assert_array_equal(display.X, IRIS[:, 2:])


# All displays


def drawn(display, nca, density, clusters, **options):
    estimators = {"Projection": nca, "History": nca, "Density": density, "Cluster": clusters}
    estimator = estimators[display.__name__.removesuffix("Display")]
    return display.from_estimator(estimator, IRIS if estimator is nca else MOONS, **options)


ALL = [ProjectionDisplay, DensityDisplay, HistoryDisplay, ClusterDisplay]


@pytest.mark.parametrize("display", ALL)
def test_a_display_is_drawn_on_the_axes_given_and_again_on_others(display, nca, density, clusters):
    figure, ax = plt.subplots()
    first = drawn(display, nca, density, clusters, ax=ax)
    assert first.ax_ is ax
    assert first.figure_ is figure
    assert first.plot() is first
    assert first.ax_ is not ax
    figure.canvas.draw()  # nothing is left for later that fails
    first.figure_.canvas.draw()


@pytest.mark.parametrize("display", ALL)
def test_without_matplotlib_the_message_names_the_extra(
    display, nca, density, clusters, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "fastmetric\[plot\]"'):
        drawn(display, nca, density, clusters)


def test_importing_displays_imports_no_matplotlib():
    code = "import sys, fastmetric.plotting; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("display", "estimator"),
    [
        (ProjectionDisplay, NCA(2)),
        (HistoryDisplay, NCA(2)),
        (DensityDisplay, KernelDensity()),
        (ClusterDisplay, MeanShift()),
    ],
)
def test_an_estimator_that_is_not_fitted_is_refused(display, estimator):
    with pytest.raises(NotFittedError):
        display.from_estimator(estimator, MOONS)


def test_a_sample_of_the_rows_is_drawn(nca, density, clusters):
    for display in (ProjectionDisplay, DensityDisplay, ClusterDisplay):
        options = {"subsample": 30, "random_state": 0}
        one = drawn(display, nca, density, clusters, **options)
        two = drawn(display, nca, density, clusters, **options)
        assert len(one.scatter_.get_offsets()) == 30
        np.testing.assert_array_equal(one.scatter_.get_offsets(), two.scatter_.get_offsets())


def test_frames_are_asked_as_frames():
    frame = pd.DataFrame(MOONS, columns=["width", "height"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = DensityDisplay.from_estimator(KernelDensity(bandwidth=0.2).fit(frame), frame)
        two = ClusterDisplay.from_estimator(MeanShift(bandwidth=0.3).fit(frame), frame)
    assert one.ax_.get_ylabel() == two.ax_.get_ylabel() == "height"


def test_a_users_style_replaces_the_default_under_any_of_its_names(density, nca):
    red = DensityDisplay.from_estimator(density, MOONS, scatter_kwargs={"c": "red", "lw": 2})
    assert tuple(red.scatter_.get_facecolors()[0][:3]) == (1.0, 0.0, 0.0)
    wide = HistoryDisplay.from_estimator(nca, line_kwargs={"lw": 4, "ls": ":"})
    assert wide.lines_[0].get_linewidth() == 4
    DensityDisplay.from_estimator(density, MOONS, surface_kwargs={"cmap": "magma"})
    DensityDisplay.from_estimator(density, MOONS, surface_kwargs={"cmap": None})


WRONG = {
    ProjectionDisplay: [
        {"components": (0, 0)},
        {"components": (0, 2)},
        {"components": 1},
        {"response_method": "decision"},
        {"grid_resolution": 1},
        {"grid_resolution": 2.5},
        {"eps": -1.0},
        {"subsample": 0},
        {"random_state": "0"},
        {"y": [0, 1]},
        {"y": [0, "1", None] * 50},
        {"multiclass_colors": "no such map"},
        {"multiclass_colors": ["red"]},
        {"ax": "here"},
        {"scatter_kwargs": 3},
    ],
    DensityDisplay: [
        {"grid_resolution": 0},
        {"eps": np.nan},
        {"levels": [1.0]},
        {"levels": [2.0, 1.0]},
        {"levels": "many"},
        {"subsample": -5},
        {"random_state": -1},
        {"ax": 0},
        {"surface_kwargs": "blue"},
        {"surface_kwargs": {"levels": [0, 1]}},
        {"scatter_kwargs": []},
    ],
    HistoryDisplay: [
        {"names": "loss"},
        {"names": []},
        {"names": 3},
        {"steps": "hours"},
        {"ax": 1},
        {"line_kwargs": 2},
    ],
    ClusterDisplay: [
        {"features": (0, 5)},
        {"max_clusters": 0},
        {"basins": "yes"},
        {"grid_resolution": 1},
        {"eps": "wide"},
        {"subsample": 2.5},
        {"random_state": 1.5},
        {"multiclass_colors": ["red"]},
        {"ax": plt},
        {"scatter_kwargs": "s"},
    ],
}


@pytest.mark.parametrize(
    ("display", "wrong"), [(display, wrong) for display, each in WRONG.items() for wrong in each]
)
def test_wrong_values_are_refused_by_name(display, wrong, nca, density, clusters):
    before = plt.get_fignums()
    with pytest.raises(ValueError, match=rf"\b{next(iter(wrong))}\b.*(should|choose|needed)"):
        drawn(display, nca, density, clusters, **wrong)
    assert plt.get_fignums() == before, "an empty figure is left"


@pytest.mark.parametrize(
    ("display", "estimator", "X", "what"),
    [
        (ProjectionDisplay, KernelDensity().fit(MOONS), MOONS, "transform"),
        (ProjectionDisplay, PCA(1).fit(MOONS), MOONS, "two components"),
        (DensityDisplay, PCA(2).fit(MOONS), [[0.0]], "X|score_samples|features"),
        (DensityDisplay, KernelDensity().fit(IRIS), IRIS, "one or two features"),
        (DensityDisplay, KernelDensity().fit(MOONS), [["a", "b"]], "X holds strings"),
        (HistoryDisplay, KernelDensity().fit(MOONS), MOONS, "history_"),
        (ClusterDisplay, PCA(2).fit(MOONS), MOONS, "predict"),
        (ClusterDisplay, GaussianNB().fit(MOONS, MOONS[:, 0] > 0), MOONS, "should be a clusterer"),
        (ClusterDisplay, KMeans(2).fit(MOONS[:, :1]), MOONS[:, :1], "two features"),
    ],
)
def test_estimators_and_rows_that_cannot_be_drawn_are_refused(display, estimator, X, what):
    with pytest.raises(ValueError, match=what):
        display.from_estimator(estimator, X)
