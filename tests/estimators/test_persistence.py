"""Saved estimators: every way of fitting comes back with the same bits; nothing else is loaded."""

from __future__ import annotations

import copy
import functools
import json
import operator
import os
import pickle
import signal
import stat
import subprocess
import sys
import zipfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from fastmetric import (
    NCA,
    DensityClassifier,
    KDTree,
    KernelDensity,
    LatentCoincidenceAnalysis,
    LatentCoincidenceClassifier,
    LocalComponentAnalysis,
    ManifoldParzen,
    MeanShift,
    load,
    persistence,
    save,
)
from tests.estimators.test_pickles import PUBLIC

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:No local direction is left"),
]

N = 60
rng = np.random.default_rng(0)
DATA, NEW = rng.standard_normal((2, N, 3))
DATA[:, 0] += np.arange(N) % 3
y = np.array(["left", "middle", "right"])[np.arange(N) % 3]
COINCIDE = np.where(np.arange(40) % 2, 1, -1)


def pairs_of(X):
    """Return pairs of rows (40, 2, 3)."""
    return np.stack([X[:40], X[20:]], axis=1)


# Ways of fitting: functions of X (60, 3) in either precision


def nca_ways():
    """Return NCA by every solver, kernel and background, and by its other options."""
    ways = {
        f"NCA, {solver}, {kernel}, background={background}": functools.partial(
            fit_nca, solver=solver, kernel=kernel, background=background
        )
        for solver in ("auto", "lbfgs", "stochastic", "minibatch")
        for kernel in ("gaussian", "biweight")
        for background in (False, True, 0.1, "learn")
    }
    options = {
        "priors": {"priors": "equal"},
        "early_stopping": {"early_stopping": True},
        "annealing": {"annealing": True},
        "subsample": {"subsample": 0.5},
        "tree": {"method": "tree", "rtol": 1e-3},
        "init": {"init": np.eye(2, 3), "random_state": np.random.RandomState(0)},
    }
    return ways | {
        f"NCA, {name}": functools.partial(fit_nca, **given) for name, given in options.items()
    }


def fit_nca(X, **options):
    """Return NCA fitted by few iterations."""
    return NCA(2, **{"max_iter": 2, "random_state": 0, **options}).fit(X, y)


def local_ways():
    """Return Local Component Analysis by every covariance and Gaussian part, also on-line."""
    options = {
        **{name: {"covariance": name} for name in ("full", "diag", "spherical", "local")},
        "low_rank": {"covariance": "low_rank", "rank": 1},
        "gaussian": {"gaussian": True},
        "search": {"gaussian": "search"},
    }
    whole = {"nu=auto": {"nu": "auto"}, "batches": {"batch_size": 20, "n_neighbors": 30}}
    ways = {
        f"LocalComponentAnalysis, {name}": functools.partial(fit_local, **given)
        for name, given in (options | whole).items()
    }
    return ways | {
        f"LocalComponentAnalysis.partial_fit, {name}": functools.partial(stream_local, **given)
        for name, given in options.items()
        if name not in ("local", "search")
    }


def fit_local(X, **options):
    """Return Local Component Analysis fitted by few iterations."""
    return LocalComponentAnalysis(max_iter=3, random_state=0, **options).fit(X)


def stream_local(X, **options):
    """Return Local Component Analysis after two parts of the rows."""
    model = LocalComponentAnalysis(nu=0.01, n_neighbors=20, random_state=0, **options)
    return model.partial_fit(X[:40]).partial_fit(X[40:])


DENSITIES = {
    "KernelDensity": KernelDensity(bandwidth=0.7),
    "ManifoldParzen": ManifoldParzen(1, n_neighbors=5, noise_variance=0.1),
    "LocalComponentAnalysis": LocalComponentAnalysis(max_iter=2),
    "GaussianMixture": GaussianMixture(2, random_state=0),
}

WAYS = {
    **nca_ways(),
    "NCA, unfitted": lambda X: NCA(2),
    "NCA.partial_fit": lambda X: NCA(2, random_state=0).partial_fit(X, y),
    **local_ways(),
    "KernelDensity": lambda X: KernelDensity(bandwidth=0.5).fit(X),
    "KernelDensity, weights": lambda X: KernelDensity(kernel="biweight", bandwidth="loo").fit(
        X, sample_weight=np.arange(N)
    ),
    "KernelDensity, vector": lambda X: KernelDensity(bandwidth=[0.5, 1, 2], rtol=1e-2).fit(X),
    "KernelDensity, matrix": lambda X: KernelDensity(bandwidth=np.eye(3) + 0.2).fit(X),
    "ManifoldParzen": DENSITIES["ManifoldParzen"].fit,
    "ManifoldParzen, soft": lambda X: ManifoldParzen(
        2, n_neighbors=5, noise_variance=0.1, neighborhood="soft", bandwidth=1.0
    ).fit(X),
    "MeanShift": lambda X: MeanShift(bandwidth=1.0).fit(X),
    "MeanShift, bins": lambda X: MeanShift(bin_seeding=True, cluster_all=False).fit(X),
    "MeanShift, matrix, seeds": lambda X: MeanShift(bandwidth=np.eye(3) + 0.2, seeds=X[:5]).fit(X),
    **{
        f"DensityClassifier, {name}": functools.partial(
            lambda X, density: DensityClassifier(density).fit(X, y), density=density
        )
        for name, density in DENSITIES.items()
    },
    "LatentCoincidenceAnalysis": lambda X: LatentCoincidenceAnalysis(
        2, max_iter=3, random_state=0
    ).fit(X, y),
    "LatentCoincidenceAnalysis, em": lambda X: LatentCoincidenceAnalysis(
        2, solver="em", max_iter=3, early_stopping=False
    ).fit(X, y),
    "LatentCoincidenceAnalysis.fit_pairs": lambda X: LatentCoincidenceAnalysis(
        2, max_iter=3
    ).fit_pairs(pairs_of(X), COINCIDE),
    "LatentCoincidenceAnalysis.partial_fit_pairs": lambda X: LatentCoincidenceAnalysis(
        2, random_state=0
    ).partial_fit_pairs(pairs_of(X), COINCIDE),
    "LatentCoincidenceClassifier": lambda X: LatentCoincidenceClassifier(1).fit(X, y),
    "LatentCoincidenceClassifier, em": lambda X: LatentCoincidenceClassifier(
        2, solver="em", max_iter=5
    ).fit(X, y),
    "KDTree": lambda X: KDTree(X, leaf_size=16),
    "Pipeline": lambda X: make_pipeline(StandardScaler(), NCA(2, max_iter=2)).fit(X, y),
}


def same(ours, theirs):
    """Return whether two objects are equal: types, bits of numbers, and all that they hold."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, np.ndarray) and ours.dtype != object:
        facts = [(a.dtype, a.shape, a.tobytes()) for a in (ours, theirs)]
        return facts[0] == facts[1]
    if isinstance(ours, np.ndarray | list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, np.random.RandomState):
        return same(ours.get_state(legacy=False), theirs.get_state(legacy=False))
    if isinstance(ours, BaseEstimator | KDTree):
        return same(ours.__getstate__(), theirs.__getstate__())
    return pickle.dumps(ours) == pickle.dumps(theirs)


def outputs(model, X):
    """Return what the methods of a fitted model give for rows X."""
    names = "transform", "predict", "predict_proba", "predict_log_proba", "score_samples"
    found = {name: getattr(model, name)(X) for name in names if hasattr(model, name)}
    if hasattr(model, "sample"):
        found["sample"] = model.sample(7, random_state=0)
    if isinstance(model, KDTree):
        found |= {"query": model.query(X, k=3), "ball": model.query_radius(X, 1.0)}
    return found


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("way", WAYS)
def test_a_loaded_estimator_has_the_same_state_and_outputs(way, dtype, tmp_path):
    model = WAYS[way](DATA.astype(dtype))
    save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    assert same(again, model)
    if "unfitted" not in way:
        expected = outputs(model, NEW.astype(dtype))
        assert expected or isinstance(model, MeanShift)
        assert same(outputs(again, NEW.astype(dtype)), expected)


CONTINUED = {
    "NCA.partial_fit": lambda model: model.partial_fit(NEW, y),
    "LocalComponentAnalysis, full": lambda model: model.partial_fit(NEW),
    "LocalComponentAnalysis.partial_fit, full": lambda model: model.partial_fit(NEW),
    "LatentCoincidenceAnalysis.partial_fit_pairs": lambda model: model.partial_fit_pairs(
        pairs_of(NEW), COINCIDE
    ),
    "NCA, init": lambda model: model.fit(DATA, y),  # its random numbers go on
}


@pytest.mark.parametrize("way", CONTINUED)
def test_learning_continues_after_a_file_as_if_there_were_none(way, tmp_path):
    model = WAYS[way](DATA)
    save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    for one in (again, model):
        CONTINUED[way](one).history_.pop("seconds")
    assert same(again, model)


def test_every_public_estimator_is_saved():
    saved = {name.split(",")[0].split(".")[0] for name in WAYS} - {"Pipeline"}
    assert saved == {name for _, name in PUBLIC}


def test_a_difference_in_the_last_bit_is_noticed():
    model = WAYS["NCA.partial_fit"](DATA)
    assert same(model, copy.deepcopy(model))
    for name in ("components_", "_step_rule"):
        other = copy.deepcopy(model)
        array = other.components_ if name == "components_" else other._step_rule["mean"]
        array.flat[0] = np.nextafter(array.flat[0], 9)
        assert not same(other, model)
    assert not same([1.0], [1])
    assert not same(np.array([0.0]), np.array([-0.0]))
    assert not same(KDTree(DATA), KDTree(NEW))


def test_names_of_features_are_saved(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(DATA, columns=["a", "b", "c"])
    nca = NCA(2, max_iter=1).fit(frame, y)
    save(nca, str(tmp_path / "model.skops"))
    again = load(str(tmp_path / "model.skops"))
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]
    assert same(again.transform(frame), nca.transform(frame))


# What is trusted


def test_the_trusted_types_are_the_public_estimators_and_descriptions_of_numbers():
    public = {f"{module}.{name}" for module, name in PUBLIC}
    assert set(persistence.TRUSTED_TYPES) == public | {"numpy.dtype"}


def test_a_pipeline_with_an_imputer_comes_back(tmp_path):
    X = DATA.copy()
    X[::7, 1] = np.nan
    model = make_pipeline(SimpleImputer(), NCA(2)).fit(X, y)
    save(model, tmp_path / "m.skops")
    again = load(tmp_path / "m.skops")
    assert again[0]._fit_dtype == np.float64
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


Pair = namedtuple("Pair", "a b")


class Stranger:
    """An object whose making is noticed."""

    made = 0

    def __new__(cls):
        Stranger.made += 1
        return super().__new__(cls)

    def method(self):
        """Do nothing."""


def function():
    """Do nothing."""


STRANGERS = {
    "an object": (Stranger, f"{__name__}.Stranger"),
    "a class": (lambda: Stranger, f"{__name__}.Stranger"),
    "a NamedTuple": (lambda: Pair(1, 2), f"{__name__}.Pair"),
    "a function": (lambda: function, f"{__name__}.function"),
    "a function of the system": (lambda: os.system, r"(posix|nt).system"),
    "a method": (lambda: Stranger().method, f"{__name__}.Stranger.method"),
    "a partial function": (lambda: functools.partial(print, "x"), "builtins.print"),
    "a method's name": (lambda: operator.methodcaller("system"), "operator.methodcaller"),
    "in a list": (lambda: [1, {"a": (Stranger(),)}], f"{__name__}.Stranger"),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_another_type_is_refused_by_name_before_anything_is_made(kind, tmp_path):
    make, name = STRANGERS[kind]
    path = tmp_path / "model.skops"
    nca = NCA(2, callback=make())
    skops.io.dump(nca, path)
    before = Stranger.made
    with pytest.raises(TypeError, match=rf"{name}(?s:.*)Nothing of the file was made"):
        load(path)
    assert Stranger.made == before
    path.unlink()
    with pytest.raises(TypeError, match=rf"NCA holds .*{name}.* load would refuse"):
        save(nca, path)
    assert list(tmp_path.iterdir()) == []


def test_an_estimator_of_others_is_refused(tmp_path):
    pipeline = make_pipeline(FunctionTransformer(function), NCA(2))
    with pytest.raises(TypeError, match=f"Pipeline holds {__name__}.function"):
        save(pipeline, tmp_path / "model.skops")


def test_an_object_that_skops_cannot_write_is_refused(tmp_path):
    with pytest.raises(TypeError, match="Replace it by plain data"):
        save(NCA(2, callback=(i for i in ())), tmp_path / "model.skops")
    assert list(tmp_path.iterdir()) == []


def rewritten(path, change):
    """Change the schema of a saved file, a nested dictionary, in place."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    change(schema)
    members["schema.json"] = json.dumps(schema).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def nodes(schema):
    """Return every part of a schema that names a type."""
    found = [schema] if isinstance(schema, dict) and "__class__" in schema else []
    parts = schema.values() if isinstance(schema, dict) else schema
    for part in parts:
        if isinstance(part, dict | list):
            found += nodes(part)
    return found


def test_no_part_of_a_file_can_have_a_module_imported(tmp_path, monkeypatch):
    marker = tmp_path / "imported"
    (tmp_path / "stranger_module.py").write_text(
        f"open({str(marker)!r}, 'w').close()\ndef made(*given): return 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = WAYS["NCA.partial_fit"](DATA)
    save(model, tmp_path / "model.skops")
    whole = (tmp_path / "model.skops").read_bytes()
    counted = []
    rewritten(tmp_path / "model.skops", lambda schema: counted.extend(nodes(schema)))
    messages = []
    for number in range(len(counted)):

        def change(schema, number=number):
            nodes(schema)[number].update(__module__="stranger_module", __class__="made")

        path = tmp_path / "other.skops"
        path.write_bytes(whole)
        rewritten(path, change)
        try:
            again = load(path)  # of a number or string, or the second time, nobody reads the name
        except TypeError as error:
            messages.append(str(error))
        else:
            assert same(again, model)
        assert not marker.exists()
    assert len(messages) > 20
    assert all("stranger_module.made" in message for message in messages)
    assert "stranger_module" not in sys.modules


# Files that are not as they were written


class Touching:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def saved(tmp_path):
    """Return a file with a small estimator."""
    path = tmp_path / "model.skops"
    save(WAYS["LatentCoincidenceClassifier"](DATA), path)
    return path


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_called_so(saved, share):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"truncated or damaged.*save the estimator again"):
        load(saved)


def test_a_damaged_byte_never_makes_another_estimator(saved):
    expected, whole = load(saved), saved.read_bytes()
    messages = []
    for place in range(0, len(whole), 29):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        saved.write_bytes(damaged)
        try:
            again = load(saved)  # the byte is one that nobody reads, of a date for example
        except ValueError as error:
            messages.append(str(error))
        else:
            assert same(again, expected)
    assert len(messages) > 100
    assert all(str(saved) in message for message in messages)


def zipped(path, **members):
    """Write an archive with members of these names."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "."), text)


NO_MODELS = {
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "text": (lambda path: path.write_text("a,b\n1,2\n"), r"is no \.skops file"),
    "another archive": (lambda path: zipped(path, a__txt="a"), "is damaged.*schema.json"),
    "no schema": (lambda path: zipped(path, schema__json="[1, 2]"), "is damaged"),
    "deep": (lambda path: zipped(path, schema__json="[" * 10**5), "is damaged"),
    "plain data": (lambda path: skops.io.dump({"a": 1}, path), "holds builtins.dict, no estimator"),
    "an array": (lambda path: skops.io.dump(np.ones(2), path), "holds numpy.ndarray"),
    "later": (
        lambda path: zipped(path, fastmetric__json='{"format": 99}'),
        "newer version of fastmetric.*format 99",
    ),
}


@pytest.mark.parametrize("kind", NO_MODELS)
def test_a_file_that_is_no_model_is_called_so(kind, tmp_path):
    write, message = NO_MODELS[kind]
    path = tmp_path / "model.skops"
    write(path)
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_pickle_is_not_run(tmp_path):
    path, marker = tmp_path / "model.skops", tmp_path / "ran"
    path.write_bytes(pickle.dumps(Touching(marker)))
    with pytest.raises(ValueError, match=r"joblib\.load, which runs code"):
        load(path)
    assert not marker.exists()


def test_a_file_that_skops_wrote_is_loaded(tmp_path):
    model = WAYS["KernelDensity"](DATA)
    skops.io.dump(model, tmp_path / "model.skops")
    assert same(load(tmp_path / "model.skops"), model)


@pytest.mark.parametrize(
    ("name", "error"), [("gone.skops", FileNotFoundError), (".", IsADirectoryError)]
)
def test_a_file_that_cannot_be_read_is_named(name, error, tmp_path):
    with pytest.raises(error, match=r"cannot be read .*fastmetric.save was expected"):
        load(tmp_path / name)


# Writing


def test_only_estimators_are_saved_and_only_as_skops(tmp_path):
    with pytest.raises(TypeError, match=r"given builtins.dict; an estimator was expected"):
        save({"a": 1}, tmp_path / "model.skops")
    with pytest.raises(TypeError, match="not its class"):
        save(NCA, tmp_path / "model.skops")
    with pytest.raises(ValueError, match=r"model.joblib does not end in .skops"):
        save(NCA(2), tmp_path / "model.joblib")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("gone/model.skops", FileNotFoundError),
        ("file/model.skops", NotADirectoryError),
        ("folder.skops", IsADirectoryError),
    ],
)
def test_a_place_that_cannot_be_written_is_named(name, error, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.skops").mkdir()
    with pytest.raises(error, match=r"cannot be written .*Give a file in a folder that exists"):
        save(NCA(2), tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.skops"]


def as_nobody(task):
    """Run a task in a child process without the rights of root; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 70  # anything but what a task returns
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            code = task()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork: root cannot lay down its rights")
@pytest.mark.parametrize("closed", ["folder", "file"])
def test_without_write_access_the_error_says_so_and_the_file_stays(closed, tmp_path):
    path = tmp_path / "model.skops"
    save(NCA(2), path)
    for folder in (tmp_path.parent.parent, tmp_path.parent):
        folder.chmod(0o755)
    tmp_path.chmod(0o555 if closed == "folder" else 0o777)
    path.chmod(0o666 if closed == "folder" else 0o444)
    before = path.read_bytes()

    def task():
        try:
            save(NCA(3), path)
        except PermissionError as error:
            return 0 if f"{path} cannot be written (Permission denied)" in str(error) else 2
        return 3

    try:
        assert as_nobody(task) == 0
        assert path.read_bytes() == before
    finally:
        tmp_path.chmod(0o755)


def broken_dump(estimator, file):
    """Write half of a file, and fail as a full disk does."""
    file.write(skops.io.dumps(estimator)[:300])
    raise OSError(28, "No space left on device")


def test_a_failed_write_leaves_the_previous_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "model.skops"
    save(NCA(2), path)
    before = path.read_bytes()
    monkeypatch.setattr(skops.io, "dump", broken_dump)
    with pytest.raises(OSError, match=r"cannot be written \(No space left"):
        save(NCA(3), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def kill(*given, **named):
    """Kill this process, as the power failing would."""
    os.kill(os.getpid(), signal.SIGKILL)


def killing_dump(estimator, file):
    """Write half of a file, and die."""
    file.write(skops.io.dumps(estimator)[:300])
    file.flush()
    kill()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize(
    ("place", "deed"),
    [
        ((skops.io, "dump"), killing_dump),
        ((skops.io, "get_untrusted_types"), kill),
        ((os, "fsync"), kill),
        ((os, "replace"), kill),
    ],
    ids=["half written", "unchecked", "not on disk", "not replaced"],
)
def test_a_killed_process_leaves_the_previous_file(place, deed, tmp_path):
    path = tmp_path / "model.skops"
    save(NCA(2), path)
    before = path.read_bytes()
    tmp_path.chmod(0o777)

    def task():
        setattr(*place, deed)
        save(NCA(3), path)
        return 0

    assert as_self(task) == -signal.SIGKILL
    assert path.read_bytes() == before
    save(NCA(3), path)
    assert load(path).n_components == 3


def as_self(task):
    """Run a task in a child process; return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            task()
        finally:
            os._exit(70)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_contents_are_on_disk_before_the_name(tmp_path, monkeypatch):
    events, replace, fsync = [], os.replace, os.fsync

    def noted_fsync(number):
        events.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "contents")
        fsync(number)

    def noted_replace(*given):
        events.append("name")
        replace(*given)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    save(NCA(2), tmp_path / "model.skops")
    assert events == ["contents", "name", *["folder"] * (os.name == "posix")]


@pytest.mark.skipif(os.name != "posix", reason="rights and links are those of POSIX")
def test_a_new_file_has_the_usual_rights_and_a_link_stays_a_link(tmp_path):
    plain, real, link = (tmp_path / name for name in ("plain", "real.skops", "link.skops"))
    plain.touch()
    link.symlink_to(real)
    save(NCA(2), link)
    assert link.is_symlink()
    assert load(real).n_components == 2
    assert real.stat().st_mode == plain.stat().st_mode


def test_skops_is_imported_only_when_it_is_needed():
    # It imports all of scikit-learn, half a second.
    code = "import fastmetric, sys; raise SystemExit('skops' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
