"""The package as it is installed: a wheel with every module, that fits outside the checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = 77  # what pyproject.toml asks for

_IMPORTS_AND_FITS = """
import importlib, json, pkgutil
import numpy as np
import fastmetric

modules = [found.name for found in pkgutil.walk_packages(fastmetric.__path__, "fastmetric.")]
modules.remove("fastmetric.__main__")  # it would run the command
for name in modules:
    importlib.import_module(name)
X = np.random.default_rng(0).standard_normal((30, 2))
nca = fastmetric.NCA(1, max_iter=2, tol=0).fit(X, np.arange(30) % 2)
print(json.dumps([fastmetric.__file__, modules, nca.components_.shape]))
"""


def pip(*words: str | Path) -> None:
    """Run pip, which must succeed."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def builds_here() -> bool:
    """Return whether this environment can build a wheel by itself, without the network."""
    if importlib.util.find_spec("setuptools") is None:
        return False
    import setuptools

    return int(setuptools.__version__.split(".")[0]) >= SETUPTOOLS


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Return a folder into which a wheel of a clean copy of the sources was installed."""
    folder = tmp_path_factory.mktemp("wheel")
    source, target = folder / "source", folder / "target"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fastmetric", source / "fastmetric", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    alone = ["--no-build-isolation"] if builds_here() else []
    pip("wheel", "--no-deps", *alone, "--wheel-dir", folder, source)
    [wheel] = folder.glob("*.whl")
    pip("install", "--no-deps", "--target", target, wheel)
    return target


def test_the_wheel_has_every_module_and_fits(installed, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _IMPORTS_AND_FITS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    file, modules, shape = json.loads(done.stdout.splitlines()[-1])
    assert Path(file).parent == installed / "fastmetric"
    assert shape == [1, 2]
    here = {path.relative_to(ROOT) for path in (ROOT / "fastmetric").rglob("*.py")}
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in here}
    assert set(modules) == names - {"fastmetric", "fastmetric.__main__"}


def test_the_wheel_says_that_it_has_types(installed):
    assert (installed / "fastmetric" / "py.typed").exists()
