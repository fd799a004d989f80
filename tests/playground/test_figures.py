"""The stored figures are what the page draws. DRAW_FIGURES=1 stores what it draws now."""

import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main
from regard.playground.figures import DRAWINGS, FIGURES, NAMES, Drawing, figures

STILL = Path(__file__).with_name("still.js").read_text(encoding="utf-8")
GAP, CAPTION, TITLE = 24, 24, 40  # px
SVG = "{http://www.w3.org/2000/svg}"


def text(words: str, x: float, y: float, size: int) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" font-weight="600" fill="#1b1f24">{escape(words)}</text>'


def drawn(chapter: Any, figure: Drawing) -> str:
    """The pictures of the figure as they are in the page now, in rows, as one SVG."""
    placed, y, widest, count = [], GAP + TITLE, 0.0, 0
    for row in figure.rows:
        x, tallest = GAP, 0.0
        for part in row:
            chapter.set(**part.state)
            given = {"label": part.label, "prefix": f"p{count}-"}
            taken = chapter.page.evaluate(f"(given) => {{ {STILL}\nreturn taken(given); }}", given)
            count += 1
            placed.append(
                f"{text(part.caption, x, y + 14, 14)}\n"
                f'<g transform="translate({x} {y + CAPTION}) scale({figure.scale})">{taken["markup"]}</g>'
            )
            x += round(taken["width"] * figure.scale) + GAP
            tallest = max(tallest, taken["height"] * figure.scale)
        widest, y = max(widest, x), y + CAPTION + round(tallest) + GAP
    title = escape(figure.title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {widest} {y}" width="{widest}" height="{y}" role="img" '
        f'aria-label="{title}" font-family="system-ui, \'Noto Sans\', sans-serif">\n<rect width="100%" height="100%" '
        f'fill="#ffffff"/>\n{text(figure.title, GAP, GAP + 18, 20)}\n' + "\n".join(placed) + "\n</svg>\n"
    )


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_the_drawings_of_the_page(open_chapter: Callable[..., Any], name: str) -> None:
    figure = FIGURES[name]
    now = drawn(open_chapter(figure.chapter, color_scheme="light", reduced_motion="reduce"), figure)
    stored = DRAWINGS / f"{name}.svg"
    if os.environ.get("DRAW_FIGURES") == "1":
        stored.write_text(now, encoding="utf-8")
    assert stored.read_text(encoding="utf-8") == now


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--figures", str(tmp_path / "all")]) == 0
    assert "9 figures" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == sorted(f"{name}.svg" for name in NAMES)
    for path in (tmp_path / "all").iterdir():
        root = ET.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        assert len(list(root.iter())) > 20
        assert "var(" not in path.read_text(encoding="utf-8")
    assert main(["play", "--figures", str(tmp_path), "--no-browser"]) == 1
    assert "serve nothing" in capsys.readouterr().err


def test_from_python(tmp_path: Path) -> None:
    written = figures(tmp_path)
    assert [path.stem for path in written] == list(NAMES)
    assert all(path.stat().st_size > 1000 for path in written)
