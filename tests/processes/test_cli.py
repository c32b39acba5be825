"""The command line, as a person would use it."""

import contextlib
import gzip
import io
import re
import subprocess
import sys
import warnings
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastmetric import NCA, KernelDensity, load, save
from fastmetric.cli.commands import main
from fastmetric.cli.files.columns import Choice, columns_to_fit
from fastmetric.cli.files.tables import read_raw
from fastmetric.cli.files.text_tables import TableError


@pytest.fixture
def iris_csv(tmp_path):
    X, y = load_iris(return_X_y=True)
    path = tmp_path / "iris.csv"
    names = ["setosa", "versicolor", "virginica"]
    lines = [",".join([*map(str, row), names[c]]) for row, c in zip(X, y, strict=True)]
    path.write_text("\n".join(["sl,sw,pl,pw,species", *lines]) + "\n")
    return path


def _run(*arguments):
    return main([str(argument) for argument in arguments])


def test_demo_prints_accuracies_and_draws_a_picture(tmp_path, capsys):
    picture = tmp_path / "demo.png"
    assert _run("demo", "--out", picture) == 0
    out = capsys.readouterr().out
    lines = dict(line.strip().split("  ", 1) for line in out.splitlines() if "learnt in" in line)
    right = {name: float(re.search(r"([0-9.]+)%", text)[1]) for name, text in lines.items()}
    assert list(right) == [
        "raw pixels, 64-D",
        "PCA, 2-D",
        "scikit-learn's NCA, 2-D",
        "fastmetric's NCA, 2-D",
        "fastmetric's NCA, 8-D",
    ]
    pca, peer, ours, more = list(right.values())[1:]
    assert pca < peer < ours < more
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["skops", "joblib"])
def test_fit_and_transform_a_csv(kind, iris_csv, tmp_path, capsys):
    model, projected = tmp_path / f"iris.{kind}", tmp_path / "projected.csv"
    assert _run("fit", iris_csv, "--target", "species", "--out", model) == 0
    assert "3 classes" in capsys.readouterr().out
    trust = ["--trust"] * (kind == "joblib")
    assert _run("transform", model, iris_csv, "--out", projected, *trust) == 0
    assert projected.read_text().startswith("species,nca0,nca1\nsetosa,")
    Z = np.loadtxt(projected, delimiter=",", skiprows=1, usecols=(1, 2))
    nca = joblib.load(model)["model"] if kind == "joblib" else load(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows without names
        np.testing.assert_array_equal(Z, nca.transform(load_iris().data))


class Touching:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["m.joblib", "m.pkl", "m.pickle", "m.skops", "m", "m.csv"])
def test_a_pickle_is_not_run_without_trust(name, iris_csv, tmp_path, capsys):
    model, marker = tmp_path / name, tmp_path / "ran"
    joblib.dump(Touching(marker), model)
    assert _run("transform", model, iris_csv, "--out", tmp_path / "Z.csv") == 1
    assert not marker.exists()
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    if name in ("m.joblib", "m.pkl", "m.pickle"):
        assert "runs whatever code it names" in error
        assert "--trust" in error
        assert _run("transform", model, iris_csv, "--out", tmp_path / "Z.csv", "--trust") == 1
        assert marker.exists()
        assert "is not a model saved by" in capsys.readouterr().err


def test_trust_does_not_run_what_calls_itself_skops(iris_csv, tmp_path, capsys):
    model, marker = tmp_path / "m.skops", tmp_path / "ran"
    joblib.dump(Touching(marker), model)
    assert _run("transform", model, iris_csv, "--out", tmp_path / "Z.csv", "--trust") == 1
    assert not marker.exists()


@pytest.mark.filterwarnings("error")
def test_transform_with_a_model_saved_in_python(tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True)
    frame = pandas.DataFrame(X, columns=["sl", "sw", "pl", "pw"])
    pipeline = make_pipeline(StandardScaler(), NCA(2, max_iter=2, tol=1e3))
    data, out, model = tmp_path / "rows.csv", tmp_path / "Z.npy", tmp_path / "m.skops"
    for rows in (frame, X):  # with names and without
        save(pipeline.fit(rows, y), model)
        frame.to_csv(data, index=False)
        assert _run("transform", model, data, "--out", out, "--force") == 0
        np.testing.assert_array_equal(np.load(out), pipeline.transform(rows))
    save(pipeline.fit(frame, y), model)
    frame.rename(columns={"sl": "other"}).to_csv(data, index=False)
    assert _run("transform", model, data, "--out", out, "--force") == 1
    assert "no column sl; the model was fitted on sl, sw, pl, pw" in capsys.readouterr().err


def test_a_model_without_transform_is_named(iris_csv, tmp_path, capsys):
    save(KernelDensity(), tmp_path / "m.skops")
    assert _run("transform", tmp_path / "m.skops", iris_csv, "--out", tmp_path / "Z.csv") == 1
    assert "holds KernelDensity, which has no transform" in capsys.readouterr().err


def test_transform_needs_no_target(iris_csv, tmp_path):
    model, bare, out = tmp_path / "m.skops", tmp_path / "bare.csv", tmp_path / "Z.npy"
    assert _run("fit", iris_csv, "--target", "species", "--out", model, "--quiet") == 0
    lines = iris_csv.read_text().splitlines()
    bare.write_text("\n".join(line.rsplit(",", 1)[0] for line in lines))
    assert _run("transform", model, bare, "--out", out) == 0
    assert np.load(out).shape == (150, 2)


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_fit_and_transform_numpy_files(kind, tmp_path):
    X, y = load_iris(return_X_y=True)
    data, model, out = tmp_path / f"d.{kind}", tmp_path / "m.skops", tmp_path / f"Z.{kind}"
    if kind == "npz":
        np.savez(data, X=X, y=y)
    else:
        np.save(data, np.c_[X, y])
    target = "y" if kind == "npz" else "-1"
    options = ["--components", "3", "--max-iter", "5", "--quiet", "--out", model]
    assert _run("fit", data, "--target", target, *options) == 0
    assert _run("transform", model, data, "--out", out) == 0
    Z = np.load(out)
    assert (Z["Z"] if kind == "npz" else Z).shape == (150, 3)


def test_quiet_prints_no_iterations(iris_csv, tmp_path, capsys):
    _run("fit", iris_csv, "--target", "species", "--out", tmp_path / "m.skops", "--quiet")
    assert "[NCA]" not in capsys.readouterr().out


BAD = {
    "no file": (["fit", "nowhere.csv", "--target", "y", "--out", "m.skops"], "no such file"),
    "kind": (["fit", "data.xlsx", "--target", "y", "--out", "m.skops"], "unknown kind"),
    "out": (
        ["fit", "good.csv", "--target", "y", "--out", "m.pkl"],
        "end in .skops or .joblib",
    ),
    "folder": (["fit", "good.csv", "--target", "y", "--out", "no/m.skops"], "no folder no"),
    "damaged": (["transform", "damaged.skops", "good.csv", "--out", "Z.csv"], "is no .skops file"),
    "target": (["fit", "good.csv", "--target", "z", "--out", "m.skops"], "no column 'z'"),
    "word": (["fit", "words.csv", "--target", "y", "--out", "m.skops"], "row 3, column b: 'x'"),
    "ragged": (["fit", "ragged.csv", "--target", "y", "--out", "m.skops"], "row 3: 2 fields"),
    "empty": (["fit", "empty.csv", "--target", "y", "--out", "m.skops"], "a header"),
    "components": (
        ["fit", "good.csv", "--target", "y", "--components", "9", "--out", "m.skops"],
        "n_components",
    ),
    "one class": (["fit", "one.csv", "--target", "y", "--out", "m.skops"], "one class"),
    "no model": (["transform", "good.csv", "good.csv", "--out", "Z.csv"], "is not a model"),
    "gone": (["transform", "gone.skops", "good.csv", "--out", "Z.csv"], "gone.skops"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_errors_are_one_clear_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text("a,b,y\n1,2,u\n2,3,v\n3,3,u\n")
    (tmp_path / "one.csv").write_text("a,b,y\n1,2,u\n2,3,u\n")
    (tmp_path / "words.csv").write_text("a,b,y\n1,2,u\n2,x,v\n")
    (tmp_path / "ragged.csv").write_text("a,b,y\n1,2,u\n2,v\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "damaged.skops").write_text("a,b\n")
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert not (tmp_path / "m.skops").exists()


def _npz(X, **arrays):
    """Return the bytes of a good .npz."""
    file = io.BytesIO()
    np.savez_compressed(file, X=X, y=np.arange(len(X)) % 2, **arrays)
    return file.getvalue()


def _npy(X):
    """Return the bytes of a .npy."""
    file = io.BytesIO()
    np.save(file, X, allow_pickle=True)
    return file.getvalue()


_X = np.random.default_rng(0).normal(size=(200, 3))
_GOOD, _PLAIN = _npz(_X), _npy(_X)
_MIDDLE = len(_GOOD) // 3
DAMAGED = {
    "cut.npz": (_GOOD[: len(_GOOD) // 2], "damaged"),
    "member.npz": (_GOOD[:_MIDDLE] + b"\xff" * 99 + _GOOD[_MIDDLE + 99 :], "damaged"),
    "text.npz": (b"not a zip file", "damaged"),
    "empty.npz": (b"", "damaged"),
    "no arrays.npz": (b"PK\x05\x06" + b"\0" * 18, "the file has none"),
    "objects.npz": (_npz(_X, more=np.array([{}], object)), "numbers and strings"),
    "cut.npy": (_PLAIN[: len(_PLAIN) // 2], "damaged"),
    "header.npy": (_PLAIN[:8] + b"\xff" * 60 + _PLAIN[68:], "damaged"),
    "huge.npy": (_PLAIN.replace(b"(200, 3)", b"(9**9,3)"), "damaged"),
    "empty.npy": (b"", "damaged"),
    "objects.npy": (_npy(np.array([[{}, 1]], object)), "numbers and strings"),
    "number.npy": (_npy(np.array(3.0)), "rows and columns were expected"),
    "bytes.csv": (b"a,b,y\n1,2,u\n\xff\xfe,3,v\n", "save it as UTF-8"),
    "utf16.csv": ("a,b,y\n1,2,u\n".encode("utf-16"), "save it as UTF-8"),
    "quote.csv": (b'a,b,y\n1,2,"u\n2,3,v\n', "comma-separated"),
    "gz.csv.gz": (b"a,b,y\n1,2,u\n", "damaged"),
    "cut.csv.gz": (gzip.compress(b"a,b,y\n1,2,u\n" * 99)[:-20], "damaged"),
}


@pytest.mark.parametrize(("name", "message"), [(k, message) for k, (_, message) in DAMAGED.items()])
def test_a_damaged_file_is_one_clear_line(name, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(DAMAGED[name][0])
    assert main(["fit", name, "--target", "y", "--out", "m.joblib"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert name in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "m.joblib").exists()


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_any_damage_of_a_file_is_read_or_refused(kind, tmp_path):
    """The middle of a .npy may be any bytes; a checksum guards that of a .npz."""
    good, path = {"npz": _GOOD, "npy": _PLAIN}[kind], tmp_path / f"damaged.{kind}"
    rng = np.random.default_rng(1)
    for _ in range(200):
        damaged = bytearray(good)
        for place in rng.integers(0, len(damaged), 3):
            damaged[place] = rng.integers(256)
        path.write_bytes(bytes(damaged[: rng.integers(len(damaged) // 2, len(damaged) + 1)]))
        with contextlib.suppress(TableError):
            columns_to_fit(read_raw(path), Choice("y" if kind == "npz" else "0"))


def test_a_folder_is_refused(tmp_path, capsys):
    (tmp_path / "data.csv").mkdir()
    assert _run("fit", tmp_path / "data.csv", "--target", "y", "--out", "m.joblib") == 1
    assert "a folder" in capsys.readouterr().err


def test_model_refuses_other_columns(iris_csv, tmp_path, capsys):
    model = tmp_path / "m.skops"
    _run("fit", iris_csv, "--target", "species", "--out", model, "--quiet")
    other = tmp_path / "other.csv"
    other.write_text("a,b,c,d\n1,2,3,4\n")
    assert _run("transform", model, other, "--out", tmp_path / "Z.csv") == 1
    assert "no column sl, sw, pl, pw; the model was fitted on" in capsys.readouterr().err


def test_runs_as_a_module_and_helps():
    help_text = subprocess.run(
        [sys.executable, "-m", "fastmetric", "--help"], capture_output=True, text=True, check=True
    ).stdout
    commands = "demo evaluate fit transform predict density cluster info warmup"
    assert all(re.search(rf"^ +{word}( |$)", help_text, re.MULTILINE) for word in commands.split())
    assert "examples:" in help_text
