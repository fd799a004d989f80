"""docs/masks.md: its code runs and prints what stands below it."""

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "masks.md"
WIDTH = "100"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<printed>.*?)```)?", re.DOTALL)


def printed(code: str, names: dict[str, Any]) -> str:
    """What the code prints on a terminal without colors, without the spaces at the ends of lines."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(stream):
        exec(code, names)
    stream.seek(0)
    return "".join(line.rstrip() + "\n" for line in stream)


def test_the_page_tells_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python tests/spec/masks/test_page.py` writes what the code prints now into the page."""
    monkeypatch.setenv("COLUMNS", WIDTH)
    names: dict[str, Any] = {}
    blocks = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(blocks) > 10
    for block in blocks:
        assert printed(block["code"], names) == (block["printed"] or "")


def rewrite() -> None:
    """Run the code of the page and put its output in place."""
    os.environ["COLUMNS"] = WIDTH
    names: dict[str, Any] = {}

    def block(match: re.Match[str]) -> str:
        text = printed(match["code"], names)
        return f"```python\n{match['code']}```" + (f"\n\n```text\n{text}```" if text else "")

    PAGE.write_text(BLOCK.sub(block, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
