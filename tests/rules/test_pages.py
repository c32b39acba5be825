"""The code of the README and of every page of the documentation runs, from top to bottom."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(page):
    """Return the blocks of a page, below as many blank lines: errors name the page's own."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in CODE.finditer(text)]


WITH_CODE = [page for page in PAGES if "_build" not in page.parts and _blocks(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_code_of_every_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {"__name__": page.stem}
    for block in _blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


def test_pages_with_code_are_found():
    assert len(WITH_CODE) > 5
