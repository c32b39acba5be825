"""Runs every Python block of the documentation, each page from top to bottom.

Usage: python docs/run_code_blocks.py [page.md ...]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(page: Path) -> int:
    """Run the blocks of a page in one namespace; return how many there are."""
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": page.stem}
    blocks = list(_BLOCK.finditer(text))
    for block in blocks:
        # Blank lines above, so that a traceback shows the page's own line numbers.
        code = "\n" * (text[: block.start(1)].count("\n")) + block[1]
        exec(compile(code, str(page), "exec"), namespace)
    return len(blocks)


def main() -> None:
    """Run the given pages, or all."""
    written = [*DOCS.glob("*.md"), *DOCS.glob("guide/*.md")]
    for page in [Path(name) for name in sys.argv[1:]] or sorted(written):
        count = run(page)
        if count:
            print(f"{page.name}: {count} blocks ran")


if __name__ == "__main__":
    main()
