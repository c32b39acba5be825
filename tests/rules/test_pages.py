"""The code of the README and of every page of the documentation runs.

That of a page runs from top to bottom. A reader of the README starts anywhere: there, every block
runs by itself, in a process of its own.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import fastmetric
from fastmetric import __version__, plotting
from fastmetric.cli.commands import main

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(page):
    """Return the blocks of a page, below as many blank lines: errors name the page's own."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in CODE.finditer(text)]


def _run_alone(arguments, folder):
    """Run Python in a new process, which must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


WITH_CODE = [page for page in PAGES if "_build" not in page.parts and _blocks(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_code_of_every_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {"__name__": page.stem}
    for block in _blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("number", range(len(_blocks(README))))
def test_every_block_of_the_readme_runs_by_itself(number, tmp_path):
    path = tmp_path / "block.py"
    path.write_text(_blocks(README)[number], encoding="utf-8")
    assert _run_alone([path], tmp_path)  # and prints something


def _commands():
    """Return the lines of the README for a terminal, but those that install."""
    lines = "".join(block[1] for block in COMMANDS.finditer(README.read_text("utf-8"))).splitlines()
    return [line for line in lines if " -m venv " not in line]


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line in _commands():
        program, *arguments = shlex.split(line)
        assert program in ("python", "fastmetric")
        if program == "fastmetric":
            assert main(arguments) == 0
        else:
            _run_alone(arguments, tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert {"wine.skops", "classes.csv", "density.png"} <= written


def test_pages_with_code_are_found():
    assert len(WITH_CODE) > 5
    assert len(_blocks(README)) > 2
    assert len(_commands()) > 3


# Links: Sphinx checks those of the documentation, not those of other files.

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
OUTSIDE = ("http://", "https://", "mailto:")


def broken_links(text, folder):
    """Return the links of a page to files that are not there.

    The gallery is made by the build: sphx_glr_plot_x_001.png and plot_x.rst need plot_x.py.
    """
    found = []
    for target, _ in LINK.findall(text):
        if target.startswith(OUTSIDE):
            continue
        path = (folder / target).resolve()
        if "gallery" in path.parts:
            name = re.sub(r"^sphx_glr_|(_\d+)?\.\w+$", "", path.name)
            path = ROOT / "docs" / "examples" / f"{name}.py"
            if name == "index":
                path = path.with_name("GALLERY_HEADER.rst")
        if not path.exists():
            found.append(target)
    return found


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.stem)
def test_links_of_every_page_lead_to_a_file(page):
    if "_build" not in page.parts:
        assert not broken_links(page.read_text(encoding="utf-8"), page.parent)


def test_broken_links_are_found():
    text = "[a](README.md) [b](docs/none.md#x) ![c](docs/gallery/images/sphx_glr_plot_no_001.png)"
    missing = ["docs/none.md", "docs/gallery/images/sphx_glr_plot_no_001.png"]
    assert broken_links(text, ROOT) == missing
    assert not broken_links("[d](docs/gallery/plot_digits.rst) [e](https://no.where/x)", ROOT)


def test_every_page_with_a_version_names_the_packages_own():
    for name in ("CITATION.cff", "docs/citing.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(r"^ *version *[:=] *\{?([\d.]+)", text, re.MULTILINE)[1] == __version__, (
            name
        )


def test_readme_and_reference_name_everything_public():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    there = readme.split("## What there is")[1].split("\n## ")[0]
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    for name in {*fastmetric.__all__, *plotting.__all__} - {"__version__"}:
        assert re.search(rf"`{name}\b", there), name
        assert re.search(rf"^ +{name}$", reference, re.MULTILINE), name


def test_every_guide_and_every_method_has_a_picture():
    guides = [*(ROOT / "docs" / "guide").glob("*.md"), *(ROOT / "docs" / "howto").glob("*.md")]
    without = [page.name for page in guides if "![" not in page.read_text("utf-8")]
    assert sorted(without) == ["index.md", "reproducible.md"]  # cards, and nothing to be seen
