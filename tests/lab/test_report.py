"""Verdicts: the printed rule, applied to the printed number, gives the printed word; quotations are exact."""

import json
import math
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from regard import lab
from regard.inspection.records import Estimate
from regard.lab.render import reasons
from regard.lab.report import (
    QUOTES,
    VERDICTS,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    above,
    all_of,
    below,
    near,
    printed,
    quoted,
    rounds_to,
    within,
)

Quick = Callable[[str], Report]
NUMBER = r"(-?[\d.]+(?:e-?\d+)?)"
# the three forms in which a rule is printed
TWO = re.compile(rf"(.+) (above|up to) {NUMBER}, (.+) else")
BETWEEN = re.compile(rf"(.+) above {NUMBER} up to {NUMBER}, (.+) else")
BANDS = re.compile(rf"(.+?) up to {NUMBER}, ")


def words_of(rule: str, low: float, high: float) -> str:
    """What a printed rule says of an interval, read as a person reads it."""
    if found := BETWEEN.fullmatch(rule):
        word, start, stop, other = found[1], float(found[2]), float(found[3]), found[4]
        bounds, words = [start, stop], [other, word, other]
    elif found := TWO.fullmatch(rule):
        bounds = [float(found[3])]
        words = [found[1], found[4]] if found[2] == "up to" else [found[4], found[1]]
    else:
        listed = list(BANDS.finditer(rule))
        bounds = [float(each[2]) for each in listed]
        words = [*(each[1] for each in listed), rule[listed[-1].end() :].removesuffix(" above")]
    inside = {words[sum(value > bound for bound in bounds)] for value in (low, high)}
    inside |= {words[place + 1] for place, bound in enumerate(bounds) if low <= bound < high}
    inside |= {words[place] for place, bound in enumerate(bounds) if low <= bound < high}
    return inside.pop() if len(inside) == 1 else "not shown"


@pytest.mark.parametrize("name", lab.names())
def test_every_printed_rule_gives_the_printed_word(quick: Quick, name: str) -> None:
    count = 0
    for compared in quick(name).compared:
        for _, _, here, rule, verdict in compared.table().rows:
            ends = re.findall(NUMBER, str(here))
            assert len(ends) in (1, 3), here
            low, high = (float(ends[0]),) * 2 if len(ends) == 1 else (float(ends[1]), float(ends[2]))
            word = words_of(str(rule), low, high)
            assert word in VERDICTS
            assert str(verdict) == word or str(verdict).startswith(f"{word}: ")
            count += 1
    assert count


@pytest.mark.parametrize("name", lab.names())
def test_every_takeaway_is_what_its_rules_say(quick: Quick, name: str) -> None:
    takeaway = quick(name).takeaway
    if takeaway is None:
        return
    words = set()
    for reason in reasons(takeaway):
        found = re.fullmatch(r".*: (\S+(?: \[.*?\])?) \((.*)\): (confirmed|corrected|partly|not shown)", reason)
        assert found, reason
        ends = [float(each) for each in re.findall(NUMBER, found[1])]
        low, high = (ends[0],) * 2 if len(ends) == 1 else (ends[1], ends[2])
        assert words_of(found[2], low, high) == found[3], reason
        words.add(found[3])
    if words == {"confirmed"}:
        assert takeaway.sentence == takeaway.says
    elif words <= {"confirmed", "not shown"}:
        assert takeaway.sentence == f"Not shown with this many runs: “{takeaway.says}”"
    else:
        assert takeaway.sentence == takeaway.otherwise


@pytest.mark.parametrize(
    "here, verdict, sentence",
    [
        (Estimate(0.2, 0.1, 0.3), "confirmed", "Yes."),
        (Estimate(0.2, -0.1, 0.3), "not shown", "Not shown with this many runs: “Yes.”"),
        (Estimate(-0.2, -0.3, -0.1), "corrected", "No."),
    ],
)
def test_a_takeaway_looks_at_every_interval(here: Estimate, verdict: str, sentence: str) -> None:
    takeaway = Takeaway("Yes.", "No.", (Evidence("x", 1.0, above(0)), Evidence("y", here, above(0))))
    assert (takeaway.verdict, takeaway.sentence) == (verdict, sentence)
    both = Takeaway("Yes.", "No.", (*takeaway.evidence, Evidence("z", -1.0, above(0))))
    assert both.sentence == "No."


@pytest.mark.parametrize("name", lab.names())
def test_no_interval_is_impossible(quick: Quick, name: str) -> None:
    report = quick(name)
    for table in (*report.tables, *(report.timing.tables if report.timing else ())):
        for row in table.rows:
            for column, cell in zip(table.columns, row, strict=True):
                if isinstance(cell, Estimate):
                    assert cell.low <= cell.mean <= cell.high, (table.title, column)
                    if re.search(r"second|loss, |^loss|ms$", column) and "lost" not in column:
                        assert cell.low > 0, (table.title, column)
                    if re.search(r"share|right|nearest has", column) and "lost" not in column:
                        assert 0 <= cell.low <= cell.high <= 1, (table.title, column)


@pytest.mark.parametrize(
    "rule, here, word",
    [
        (above(0), Estimate(0.2, 0.1, 0.3), "confirmed"),
        (above(0), Estimate(0.2, -0.1, 0.5), "not shown"),
        (above(0), Estimate(-0.2, -0.3, -0.1), "corrected"),
        (above(0), 0.0, "corrected"),
        (above(0), Estimate(0.5, 0.0001, 1.0), "not shown"),  # printed as 0.00
        (below(0.05), 0.05, "confirmed"),
        (below(0.05, "partly"), 0.06, "partly"),
        (within(1, 2), Estimate(1.5, 1.1, 1.9), "confirmed"),
        (within(1, 2), Estimate(1.5, 0.9, 2.1), "not shown"),
        (within(1, 2), Estimate(0.5, 0.4, 0.6), "corrected"),
        (near(64, 1), 64.5, "confirmed"),
        (rounds_to(0.67, 2), 0.6652, "confirmed"),
        (rounds_to(0.67, 2), 0.6649, "corrected"),
        (all_of(3), 3, "confirmed"),
        (all_of(3), 1, "partly"),
        (all_of(3), 0, "corrected"),
        (all_of(1), 1, "confirmed"),
        (
            DecisionRule(((0, "corrected"), (1, "corrected"), (math.inf, "confirmed"))),
            Estimate(0, -1, 0.5),
            "corrected",
        ),
    ],
)
def test_rules(rule: DecisionRule, here: float | Estimate, word: str) -> None:
    assert rule.verdict(here) == word
    ends = [float(each) for each in re.findall(NUMBER, printed(here))]
    low, high = (ends[0], ends[0]) if len(ends) == 1 else (ends[1], ends[2])
    assert words_of(str(rule), low, high) == word


def test_a_rule_prints_as_a_sentence() -> None:
    assert str(above(0.5)) == "confirmed above 0.5, corrected else"
    assert str(below(1e-12)) == "confirmed up to 1e-12, corrected else"
    assert str(near(3, 0.5)) == "confirmed above 2.5 up to 3.5, corrected else"
    assert str(all_of(3)) == "corrected up to 0.5, partly up to 2.5, confirmed above"


def test_unknown_quotations_are_refused() -> None:
    with pytest.raises(KeyError, match="add it with the heading above it"):
        quoted("mini-course", "attention is all you need")


def test_every_quotation_is_used_and_known() -> None:
    listed = json.loads(QUOTES.read_text(encoding="utf-8"))
    assert list(listed) == ["score functions", "important concepts", "mini-course", "experiment results"]
    texts = [text for headings in listed.values() for group in headings.values() for text in group]
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(lab.__file__).parent.rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*"', "", source).replace("\\\\", "\\").replace('\\"', '"')
    unused = [text for text in texts if text not in joined and not text.startswith(("| BERT", "| GPT"))]
    assert not unused


SEEDS = os.environ.get("SEEDS_FOLDER")


@pytest.mark.skipif(not SEEDS, reason="SEEDS_FOLDER names no folder with the four documents")
def test_quotations_stand_in_the_documents_under_their_heading() -> None:
    assert SEEDS is not None
    documents = []
    for path in sorted(Path(SEEDS).iterdir()):
        text = path.read_text(encoding="utf-8")
        with suppress(UnicodeError):  # two of them were decoded as Mac Roman
            text = text.encode("mac_roman").decode()
        documents.append(text)
    for headings in json.loads(QUOTES.read_text(encoding="utf-8")).values():
        for heading, texts in headings.items():
            for quote in texts:
                (text,) = [each for each in documents if quote in each and heading in each][:1]
                above_it = re.findall(r"^#+ (.*)$", text[: text.index(quote)], re.MULTILINE)[-1]
                assert re.sub(r"\s*\{#.*?\}\s*$", "", above_it).strip() == heading
