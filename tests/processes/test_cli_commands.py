"""The commands of the command line: every method, the preparation of tables, files not replaced."""

import io
import json
import re
import shlex
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import fastmetric
from fastmetric import NCA, KernelDensity, load, save
from fastmetric.cli.commands import main
from fastmetric.cli.methods import METHODS, SUPERVISED

FIT = ["--max-iter", "2", "--quiet"]
NAMES = ["a", "b", "c"]


def run(*arguments):
    return main([str(argument) for argument in arguments])


def table(n=60):
    """Return rows of three numbers and a class that depends on two of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).round(3)
    rows = pd.DataFrame(X, columns=NAMES)
    rows["kind"] = np.where(X[:, 0] + X[:, 1] > 0, "high", "low")
    return rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table().to_csv("rows.csv", index=False)
    return tmp_path


# Methods


def test_every_estimator_has_a_name():
    public = {getattr(fastmetric, name) for name in fastmetric.__all__}
    estimators = {kind for kind in public if isinstance(kind, type)} - {fastmetric.KDTree}
    assert set(METHODS.values()) == estimators
    assert all(issubclass(kind, BaseEstimator) for kind in estimators)


PARAMETERS = {
    "manifold-parzen": ["--set", "n_neighbors=9", "--set", "noise_variance=0.1"],
    "coincidence": ["--set", "early_stopping=False", "--set", "n_passes=1", *FIT[:2]],
    "nca": FIT[:2],
    "coincidence-classifier": FIT[:2],
    "local-component": FIT[:2],
}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_fitted_saved_and_applied(method, folder, capsys):
    options = ["--method", method, "--quiet", *PARAMETERS.get(method, [])]
    options += ["--target", "kind"] if method in SUPERVISED else ["--drop", "kind"]
    assert run("fit", "rows.csv", "--out", "m.skops", *options) == 0
    model = load("m.skops")
    assert type(model) is METHODS[method]
    X = table()[NAMES]
    if hasattr(model, "transform"):
        assert run("transform", "m.skops", "rows.csv", "--out", "Z.npy") == 0
        np.testing.assert_array_equal(np.load("Z.npy"), model.transform(X))
    if hasattr(model, "predict"):
        assert run("predict", "m.skops", "rows.csv", "--out", "y.csv") == 0
        assert list(pd.read_csv("y.csv").iloc[:, -1]) == list(model.predict(X))
    if hasattr(model, "score_samples"):
        assert run("density", "rows.csv", "--model", "m.skops", "--out", "p.npy") == 0
        np.testing.assert_array_equal(np.load("p.npy")[:, 0], model.score_samples(X))
    capsys.readouterr()
    assert run("info", "m.skops") == 0
    said = capsys.readouterr().out
    assert type(model).__name__ in said
    assert "3: a, b, c" in said


def test_a_command_that_does_not_suit_the_model_says_so(folder, capsys):
    save(KernelDensity().fit(table()[NAMES]), "m.skops")
    assert run("transform", "m.skops", "rows.csv", "--out", "Z.csv") == 1
    assert "holds KernelDensity, which has no transform" in capsys.readouterr().err
    save(NCA(2, max_iter=1, tol=1e3).fit(table()[NAMES], table()["kind"]), "n.skops")
    assert run("density", "rows.csv", "--model", "n.skops", "--out", "p.csv") == 1
    assert "holds NCA, which has no score_samples" in capsys.readouterr().err


WRONG = {
    "parameter": (["fit", "--set", "colour=1"], "nca has no parameter 'colour'; it has alpha"),
    "of another": (["fit", "--bandwidth", "1"], "nca has no parameter 'bandwidth'"),
    "no value": (["fit", "--set", "tol"], "NAME=VALUE"),
    "value": (["fit", "--set", "solver=adam"], "solver='adam' is not known; choose from"),
    "needed": (["fit", "--method", "manifold-parzen"], "needs --set n_neighbors=... and"),
    "density": (["fit", "--method", "density-classifier", "--set", "estimator=x"], "choose from"),
    "folds": (["evaluate", "--folds", "1"], "--folds 1: 2 to 60 were expected"),
    "share": (["evaluate", "--held-out", "2"], "a share between 0 and 1"),
    "small share": (["evaluate", "--held-out", "0.01"], "--held-out 0.01: 1 of 60 rows would be"),
    "large share": (["evaluate", "--held-out", "0.99"], "--held-out 0.99: 60 of 60 rows would be"),
    "no neighbour": (["evaluate", "--neighbors", "0"], "--neighbors 0: 1 or more"),
    "neighbours": (["evaluate", "--neighbors", "49"], "--neighbors 49: 1 to 48 were expected"),
    "components": (["evaluate", "--components", "4"], "--components 4: 1 to 3 were expected"),
    "seed": (["evaluate", "--seed", "-1"], "--seed -1: an integer from 0"),
    "option": (["density", "--components", "1", "--out", "p.csv"], "'n_components' (--components)"),
    "clusters": (["evaluate", "--method", "mean-shift"], "fastmetric cluster"),
    "queries": (
        ["density", "--model", "m.skops", "--queries", "q.csv", "--out", "p.csv"],
        "--queries belongs to a fit and has no effect on the model of --model",
    ),
    "scale": (["evaluate", "--model", "m.skops", "--scale"], "--scale belongs to a fit"),
    "nothing": (["density"], "give --out FILE, --picture FILE or both"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_option_is_one_clear_line(arguments, message, folder, capsys):
    command, *more = arguments
    out = ["--out", "m.skops"] if command == "fit" else []
    assert run(command, "rows.csv", "--target", "kind", *more, *out) == 1
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_method_that_learns_from_classes_needs_a_target(folder, capsys):
    assert run("fit", "rows.csv", "--out", "m.skops") == 1
    assert "nca learns from classes: give their column as --target" in capsys.readouterr().err


def test_texts_are_no_features_of_a_density_unasked(folder, capsys):
    assert run("density", "rows.csv", "--out", "p.csv") == 1
    assert "--target kind if it is the class, --id kind" in capsys.readouterr().err
    assert run("density", "rows.csv", "--categories", "kind", "--out", "p.csv") == 0


def test_advice_can_be_pasted_into_a_shell(folder, capsys):
    names = {"a": "length (cm)", "b": "wide, high"}
    rows = table().rename(columns=names)
    rows.loc[3, list(names.values())] = None
    rows.to_csv("rows.csv", index=False)
    fit = ["fit", "rows.csv", "--target", "kind", "--out", "m.skops", *FIT]
    assert run(*fit) == 1
    advice = capsys.readouterr().err.split(", or ")[-1]
    assert shlex.split(advice) == ["--drop", 'length (cm),"wide, high"']
    assert run(*fit, "--components", "1", *shlex.split(advice)) == 0


# The preparation


def prepared_by_hand(rows, like):
    """Return rows prepared by medians, means and categories of the rows `like`."""
    numbers = []
    for name in NAMES:
        median = like[name].median()
        whole = like[name].fillna(median)
        numbers.append((rows[name].fillna(median) - whole.mean()) / whole.std(ddof=0))
    categories = [
        (rows["colour"].fillna(like["colour"].mode()[0]) == one).astype(float)
        for one in sorted(like["colour"].dropna().unique())
    ]
    return np.column_stack([*numbers, *categories])


def coloured(n=60):
    rng = np.random.default_rng(1)
    rows = table(n)
    rows["colour"] = pd.Series(rng.choice(["red", "green", "blue"], n), dtype=object)
    rows.loc[rng.choice(n, 9, replace=False), "b"] = np.nan
    rows.loc[rng.choice(n, 5, replace=False), "colour"] = None
    return rows


def test_the_preparation_is_saved_and_applied(folder, capsys):
    rows = coloured()
    rows[:40].to_csv("rows.csv", index=False)
    rows[40:][["colour", "kind", "c", "b", "a"]].to_csv("new.csv", index=False)
    options = ["--target", "kind", "--impute", "median", "--scale", "--out", "m.skops"]
    assert run("fit", "rows.csv", *options, *FIT) == 0
    assert "one column of 0 and 1 for each category of colour (3)" in capsys.readouterr().err
    assert run("transform", "m.skops", "new.csv", "--out", "Z.npy") == 0
    model = load("m.skops")
    by_hand = prepared_by_hand(rows[40:], rows[:40]) @ model[-1].components_.T
    np.testing.assert_allclose(np.load("Z.npy"), by_hand, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(np.load("Z.npy"), model.transform(rows[40:]))  # in Python, too
    assert run("info", "m.skops") == 0
    said = capsys.readouterr().out
    assert "missing values become the median" in said
    assert "mean 0 and variance 1" in said
    assert "each category of colour (3)" in said


def test_a_category_that_the_model_has_not_seen_is_reported(folder, capsys):
    coloured().to_csv("rows.csv", index=False)
    coloured().replace({"colour": {"red": "pink"}}).to_csv("new.csv", index=False)
    options = ["--target", "kind", "--impute", "mean", "--out", "m.skops"]
    assert run("fit", "rows.csv", *options, *FIT) == 0
    assert run("predict", "m.skops", "new.csv", "--out", "y.csv") == 0
    assert "warning: the model has not seen colour: pink" in capsys.readouterr().err


def test_new_rows_with_gaps_need_a_model_that_imputes(folder, capsys):
    assert run("fit", "rows.csv", "--target", "kind", "--out", "m.skops", *FIT) == 0
    coloured().to_csv("gaps.csv", index=False)
    assert run("transform", "m.skops", "gaps.csv", "--out", "Z.npy") == 1
    assert re.search(r"gaps.csv, row \d+, column b: the value is missing", capsys.readouterr().err)


def test_models_of_earlier_versions_are_read(folder):
    assert run("fit", "rows.csv", "--target", "kind", "--out", "m.skops", *FIT) == 0
    with zipfile.ZipFile("m.skops") as archive, zipfile.ZipFile("old.skops", "w") as old:
        for name in archive.namelist():
            data = archive.read(name)
            if name == "fastmetric.json":
                data = json.dumps({"features": NAMES, "target": "kind", "format": 1}).encode()
            old.writestr(name, data)
    for model in ("m", "old"):
        assert run("transform", f"{model}.skops", "rows.csv", "--out", f"{model}.npy") == 0
    np.testing.assert_array_equal(np.load("m.npy"), np.load("old.npy"))


def test_predictions_have_probabilities_and_say_how_many_are_right(folder, capsys):
    assert run("fit", "rows.csv", "--target", "kind", "--out", "m.skops", *FIT) == 0
    capsys.readouterr()
    assert run("predict", "m.skops", "rows.csv", "--out", "y.csv", "--proba") == 0
    result, model = pd.read_csv("y.csv"), load("m.skops")
    assert list(result.columns) == ["kind", "predicted", "p(high)", "p(low)"]
    P = model.predict_proba(table()[NAMES])
    np.testing.assert_allclose(result[["p(high)", "p(low)"]], P, rtol=1e-12)
    right = (result["predicted"] == result["kind"]).mean()
    assert f"{right:.1%} of them as column kind says" in capsys.readouterr().out


@pytest.mark.parametrize("classes", [("high", "low"), (0, 1)])
def test_rows_without_a_class_are_neither_right_nor_wrong(classes, folder, capsys):
    rows = table()
    rows["kind"] = np.where(rows["kind"] == "high", *classes)
    rows.to_csv("rows.csv", index=False)
    assert run("fit", "rows.csv", "--target", "kind", "--out", "m.skops", *FIT) == 0
    gaps = rows.assign(kind=rows["kind"].astype(object))
    gaps.loc[3:5, "kind"] = None  # pandas reads the numbers as floats
    gaps.to_csv("gaps.csv", index=False)
    capsys.readouterr()
    options = ["--out", "y.csv", "--picture", "y.png"]
    assert run("predict", "m.skops", "gaps.csv", *options[:2]) == 0
    model, known = load("m.skops"), np.r_[0:3, 6:60]
    share = (model.predict(rows[NAMES]) == rows["kind"])[known].mean()
    assert f"{share:.1%} of the 57 with a class as column kind says" in capsys.readouterr().out
    given = pd.read_csv("y.csv", dtype=str)["kind"]
    assert list(given[known]) == [str(one) for one in rows["kind"][known]]
    assert given[3:6].isna().all()
    assert run("evaluate", "gaps.csv", "--model", "m.skops") == 0
    said = capsys.readouterr()
    assert f"57 rows: {share:.1%} ±" in said.out
    assert "3 rows without a class: left out" in said.err
    assert run("transform", "m.skops", "gaps.csv", "--force", *options) == 0


# Files


@pytest.mark.parametrize("command", ["fit", "transform", "predict", "density", "cluster", "demo"])
@pytest.mark.parametrize("place", ["there", "folder/there", "there/"])
def test_a_wrong_output_is_refused_before_the_work(command, place, folder, capsys, monkeypatch):
    suffix = {"fit": ".skops", "demo": ".png"}.get(command, ".csv")
    out = folder / f"{place.strip('/')}{suffix}"
    if place == "there":
        out.write_text("precious")
    elif place == "there/":
        out.mkdir()
    for name in ("fastmetric.cli.work.read_raw", "fastmetric.cli.files.models.read_model"):
        monkeypatch.setattr(name, no_work)
    monkeypatch.setattr("fastmetric.cli.demo.load_digits", no_work)
    words = {"transform": ["m.skops", "rows.csv"], "predict": ["m.skops", "rows.csv"], "demo": []}
    assert run(command, *words.get(command, ["rows.csv"]), "--out", out) == 1
    said = {"there": "give --force", "folder/there": "no folder", "there/": "a folder"}
    error = capsys.readouterr().err
    assert said[place] in error
    assert len(error.splitlines()) == 1
    if place == "there":
        assert out.read_text() == "precious"


def no_work(*_, **__):
    raise AssertionError("the work began")


def test_force_does_not_replace_a_file_that_is_read(folder, capsys):
    assert run("fit", "rows.csv", "--target", "kind", "--out", "m.skops", *FIT) == 0
    before = (folder / "rows.csv").read_bytes()
    assert run("predict", "m.skops", "rows.csv", "--out", folder / "rows.csv", "--force") == 1
    assert "rows.csv: this file is read, too" in capsys.readouterr().err
    assert (folder / "rows.csv").read_bytes() == before


def test_force_replaces_a_file(folder):
    (folder / "m.skops").write_text("old")
    assert run("fit", "rows.csv", "--target", "kind", "--out", "m.skops", "--force", *FIT) == 0
    assert isinstance(load("m.skops"), NCA)


def test_warnings_are_shown_on_one_line(folder, capsys):
    assert run("fit", "rows.csv", "--target", "kind", "--out", "m.skops", *FIT) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("fastmetric fit: warning: NCA has not converged after 2 iterations")


def test_warmup_passes_its_options_on(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr("fastmetric.cli.commands.warmup", lambda **options: calls.append(options))
    assert run("warmup") == 0
    assert run("warmup", "--jobs", "1", "--quiet") == 0
    assert calls == [{"n_jobs": None, "verbose": 1}, {"n_jobs": 1, "verbose": 0}]
    monkeypatch.undo()
    assert run("warmup", "--jobs", "0") == 1
    assert "n_jobs" in capsys.readouterr().err


# Evaluation


def test_evaluate_gives_the_accuracies_of_cross_validation(folder, capsys):
    assert run("evaluate", "rows.csv", "--target", "kind", "--folds", "3", *FIT) == 0
    out = capsys.readouterr().out
    expected = ["most frequent", "raw features", "PCA", "scikit-learn's NCA", "fastmetric's NCA"]
    assert all(name in out for name in [*expected, "by its class posterior"])
    splits = StratifiedKFold(3, shuffle=True, random_state=0)
    X, y = table()[NAMES], table()["kind"]
    for name, estimator in (
        ("raw features, 1-NN", KNeighborsClassifier(1)),
        ("by its class posterior", NCA(2, max_iter=2)),
    ):
        scores = cross_val_score(estimator, X, y, cv=splits)
        assert re.search(rf"{name} +{scores.mean():.1%} ± {scores.std():.1%}", out)


def test_evaluate_gives_the_likelihood_of_held_out_rows(folder, capsys):
    options = ["--method", "kernel-density", "--bandwidth", "0.5", "--drop", "kind"]
    assert run("evaluate", "rows.csv", *options, "--held-out", "0.25", "--quiet") == 0
    out = capsys.readouterr().out
    score = r" +(-?[0-9.]+) "
    peer = float(re.search("scikit-learn's KernelDensity, 0.5" + score, out)[1])
    assert float(re.search("fastmetric's KernelDensity" + score, out)[1]) == peer
    assert all(name in out for name in ("one Gaussian", "PCA to 2 and noise"))


def test_a_peer_that_fails_does_not_end_the_evaluation(folder, capsys):
    rows = table()
    rows["c"] = rows["a"]  # singular, for PCA to two dimensions
    rows.to_csv("rows.csv", index=False)
    options = ["--method", "kernel-density", "--bandwidth", "0.5", "--features", "a,c", "--quiet"]
    assert run("evaluate", "rows.csv", *options) == 0
    out = capsys.readouterr().out
    assert re.search(r"PCA to 2 and noise +fails: .*singular", out)
    assert re.search(r"fastmetric's KernelDensity +-?\d", out)


def test_a_seed_draws_the_folds_of_a_method_without_chance(folder, capsys):
    options = ["--method", "kernel-density", "--bandwidth", "0.5", "--drop", "kind", "--quiet"]
    said = []
    for seed in ("0", "1"):
        assert run("evaluate", "rows.csv", *options, "--seed", seed) == 0
        said.append(re.search(r"fastmetric's KernelDensity +(-\S+)", capsys.readouterr().out)[1])
    assert said[0] != said[1]


def test_evaluate_measures_a_saved_model(folder, capsys):
    assert run("fit", "rows.csv", "--target", "kind", "--out", "m.skops", *FIT) == 0
    capsys.readouterr()
    assert run("evaluate", "rows.csv", "--model", "m.skops") == 0
    right = load("m.skops").score(table()[NAMES], table()["kind"])
    assert f"60 rows: {right:.1%} ±" in capsys.readouterr().out


def test_a_class_of_one_row_cannot_be_evaluated(folder, capsys):
    rows = table()
    rows.loc[0, "kind"] = "rare"
    rows.to_csv("rows.csv", index=False)
    assert run("evaluate", "rows.csv", "--target", "kind", *FIT) == 1
    assert "class rare has 1 rows, and 5 are needed" in capsys.readouterr().err


# Densities and clusters


@pytest.mark.parametrize("features", ["a", "a,b", "a,b,c"])
@pytest.mark.parametrize("command", ["density", "cluster"])
def test_results_are_written_and_drawn(command, features, folder):
    options = ["--features", features, "--scale", "--id", "kind", "--quiet"]
    assert run(command, "rows.csv", *options, "--out", "r.csv", "--picture", "r.png") == 0
    result = pd.read_csv("r.csv")
    assert list(result.columns) == ["kind", "log_density" if command == "density" else "cluster"]
    assert len(result) == 60
    assert (folder / "r.png").read_bytes().startswith(b"\x89PNG")


def test_densities_at_queries_are_those_of_python(folder):
    queries = pd.DataFrame({"c": [0.0, 5.0], "a": [0.0, 5.0], "b": [1.0, 5.0]})
    queries.to_csv("queries.csv", index=False)
    options = ["--drop", "kind", "--queries", "queries.csv", "--bandwidth", "0.7"]
    assert run("density", "rows.csv", *options, "--out", "p.csv") == 0
    density = KernelDensity(bandwidth=0.7).fit(table()[NAMES])
    expected = density.score_samples(queries[NAMES])
    np.testing.assert_allclose(pd.read_csv("p.csv")["log_density"], expected, rtol=1e-14)


def test_the_projection_is_drawn(folder):
    assert run("fit", "rows.csv", "--target", "kind", "--out", "m.skops", *FIT) == 0
    options = ["--out", "Z.csv", "--picture", "Z.png"]
    assert run("transform", "m.skops", "rows.csv", *options) == 0
    assert (folder / "Z.png").read_bytes().startswith(b"\x89PNG")


def test_clusters_are_compared_with_the_target(folder, capsys):
    rows = table()
    rows["a"] += np.where(rows["kind"] == "high", 100, 0)
    rows.to_csv("rows.csv", index=False)
    options = ["--features", "a", "--target", "kind", "--bandwidth", "5", "--quiet"]
    assert run("cluster", "rows.csv", *options, "--out", "c.csv") == 0
    assert "2 clusters" in (out := capsys.readouterr().out)
    assert "adjusted Rand index 1.000 with kind" in out


def test_a_picture_without_matplotlib_is_refused_before_the_work(folder, capsys, monkeypatch):
    import sys

    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("fastmetric.cli.work.read_raw", no_work)
    assert run("density", "rows.csv", "--picture", "p.png") == 1
    assert 'pip install "fastmetric[plot]"' in capsys.readouterr().err


def test_a_table_from_standard_input_is_named(folder, capsys, monkeypatch):
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,x\n2,y\n3\n")))
    assert run("fit", "-", "--target", "b", "--out", "m.skops") == 1
    assert "standard input, row 4: 1 field, the header has 2" in capsys.readouterr().err
