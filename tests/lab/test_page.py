"""The page of many reports: complete, closed to the network, and safe from what stands in a text."""

import re
from html.parser import HTMLParser
from pathlib import Path

from regard import lab
from regard.inspection.records import Bars, Estimate, Table
from regard.lab.page import html_page
from regard.lab.render import write
from regard.lab.report import Claim, Compared, Evidence, Quote, Report, Takeaway, above
from regard.lab.run_all import Failed

EVIL = "<script>alert(1)</script>&"
REPORT = Report(
    "one",
    f"Is {EVIL} a question?",
    (Table(("a", "b"), [("x", 1.5), (EVIL, 2.25)], "numbers"),),
    (Bars(["p"], {"s": [1.0]}, "y", "bars"),),
    "It is.",
    (
        Compared(
            "course",
            (
                Claim(Quote("course", "heading", "so"), "x", 1.0, above(0)),
                Claim(Quote("course", "heading", f"not {EVIL}"), "x", -1.0, above(0), "by 1"),
                Claim(Quote("course", "heading", "in part"), "x", -1.0, above(0, "partly")),
                Claim(Quote("course", "heading", "odd"), "x", Estimate(0, -1, 1), above(0)),
            ),
        ),
    ),
    {"seed": 4, "quick": True, "regard": "0", "torch": "2", "machine": "m"},
    why=f"Because of {EVIL}.",
    setup="It was tried.",
    takeaway=Takeaway("Remember this.", "Or that.", (Evidence("y", 2.0, above(1)),)),
)


class _Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_part_is_there_and_texts_are_texts(tmp_path: Path) -> None:
    write(REPORT, tmp_path)
    asked = {"one": "asked & answered", "two": "what"}
    page = html_page([REPORT, Failed("two", "ValueError: no <model>")], asked, tmp_path)
    parser = _Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "script" not in parser.seen
    assert parser.seen.count("img") == 2  # the small one on top, and the figure
    assert page.count('alt="Bar chart, bars: y. s: p 1."') == 2
    first, section = page.split('<section id="one">')
    assert "Remember this." in first
    assert "It is." not in first  # the numbers stand in the section
    parts = ("a question?", "Because of", "It was tried.", "<figure>", "Remember this.", "y: 2 (", "It is.", "2.25")
    places = [section.index(text) for text in parts]
    assert places == sorted(places)
    assert parser.seen.count("table") == 2
    for text in ("asked &amp; answered", "It is.", "2.25", "Not run: ValueError: no &lt;model&gt;", "--quick --seed 4"):
        assert text in page
    assert "1 confirmed</span>" in page
    assert "1 corrected</span>" in page
    assert "1 partly</span>" in page
    assert "1 not shown</span>" in page


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    report = lab.run("saturation", quick=True)
    write(report, tmp_path)
    page = html_page([report], lab.EXPERIMENTS, tmp_path)
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
