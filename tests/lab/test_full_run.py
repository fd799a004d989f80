"""The record of the full run: written from reports alone, read beside quick ones."""

import dataclasses
import json
from pathlib import Path

import pytest

from regard import lab
from regard.cli import main
from regard.inspection.records import Estimate
from regard.lab import full_run as module
from regard.lab import render
from regard.lab.full_run import FULL, full_run, record, recorded
from regard.lab.page import html_page
from regard.lab.report import VERDICTS, Claim, Compared, Report


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record that quick runs read, which is not there yet."""
    path = tmp_path / "full.json"
    monkeypatch.setattr(module, "FULL", path)
    return path


def unclear(report: Report) -> Report:
    """The report with the first claim not shown."""
    place = report.compared[0]
    claim = place.claims[0]
    (bound, _), *_ = claim.rule.bands
    vague = dataclasses.replace(claim, here=Estimate(bound, bound - 1, bound + 1))
    first = Compared(place.source, (vague, *place.claims[1:]))
    return dataclasses.replace(report, compared=(first, *report.compared[1:]))


def test_a_quick_report_says_what_the_full_run_found(empty: Path, tmp_path: Path) -> None:
    quick = lab.run("saturation", quick=True)
    assert full_run(quick) is None
    assert "full run" not in render.text(quick)
    full = dataclasses.replace(lab.run("saturation"), finding="The full run says this.")
    record([full], empty)
    assert full_run(full) is None  # it says so itself
    found = full_run(quick)
    assert found is not None
    assert found.finding == "The full run says this."
    assert "seed 0" in found.made
    vague = unclear(quick)
    claim = vague.compared[0].claims[0]
    assert claim.verdict == "not shown"
    (word,) = [each.verdict for each in full.compared[0].claims[:1]]
    assert f"(the full run: {word}, " in found.verdict(claim)
    assert found.verdict(full.compared[0].claims[0]) == ""
    together = " ".join(render.text(vague, width=100).split())
    assert "The full run says this." in together
    assert f"(the full run: {word}, " in together
    assert json.loads(render.as_json(quick))["full_run"]["finding"] == "The full run says this."
    render.write(vague, tmp_path)
    page = html_page([vague], lab.EXPERIMENTS, tmp_path)
    assert "The full run says this." in page
    assert f"(the full run: {word}, " in page


def test_a_record_keeps_what_was_not_run_again(empty: Path) -> None:
    first, second = lab.run("saturation"), dataclasses.replace(lab.run("saturation"), name="other")
    record([second], empty)
    record([first], empty)
    assert list(recorded(empty)) == ["other", "saturation"]


def test_quick_runs_are_not_recorded(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="a full run is recorded, and saturation was run with quick=True"):
        record([lab.run("saturation", quick=True)], empty)
    assert main(["lab", "all", "--quick", "--record", str(empty)]) == 1
    assert "leave --quick out" in capsys.readouterr().err
    assert main(["lab", "saturation", "--record", str(empty)]) == 0
    assert list(recorded(empty)) == ["saturation"]


def test_what_is_committed_is_of_the_lab() -> None:
    for name, found in recorded(FULL).items():
        assert name in lab.names()
        assert found.finding.endswith(".")
        assert all(word in VERDICTS for _, word in found.verdicts.values())


def test_a_claim_is_known_by_its_words_and_what_was_measured(empty: Path) -> None:
    report = lab.run("saturation")
    record([report], empty)
    claims: list[Claim] = [claim for compared in report.compared for claim in compared.claims]
    assert len(recorded(empty)["saturation"].verdicts) == len(claims)
