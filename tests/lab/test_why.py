"""why: questions about what was marked, models that see as far as they say, and a report that follows from them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from regard.inspection.records import Estimate, Lines, Panel
from regard.lab import why
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.lab.statistics import over_trainings, parameters
from regard.lab.why import RecallResults, lengths, task
from regard.lab.why.task import drawn
from regard.nn import Block

Quick = Callable[[str], Report]


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("marked", [1, 4])
def test_the_answer_is_under_the_mark_that_is_asked_for(marked: int) -> None:
    asked = drawn(500, 30, marked, _generator())
    for symbols, marks, answer, distance in zip(
        asked.symbols.tolist(), asked.marks.tolist(), asked.answer.tolist(), asked.distance.tolist(), strict=True
    ):
        assert sorted(mark for mark in marks[:-1] if mark) == list(range(1, marked + 1))
        at = marks.index(marks[-1] - marked)
        assert symbols[at] == answer
        assert 29 - at == distance
    far = asked.distance.double()
    assert float((far < 5.5).double().mean()) == pytest.approx(0.5, abs=0.1)  # √30: half of the doublings
    assert int(far.max()) > 20


@pytest.mark.parametrize("kind", task.KINDS)
def test_models_have_the_same_size_and_see_as_far_as_they_say(kind: str) -> None:
    torch.manual_seed(0)
    width = task.fitted(kind, 1)
    model = task.Recaller(kind, 1, width)
    assert 9_000 < parameters(model) <= 10_000
    assert parameters(task.Recaller(kind, 1, width + 1)) > 10_000
    asked = drawn(8, 40, 1, _generator())
    assert task.reach(model, asked) == (task.REACH if kind == "convolution" else 39)
    # by hand: a token that far back changes the answer, and one further does not
    x = model.embedded(asked.symbols, asked.marks).detach()
    for back, felt in ((16, True), (17, kind != "convolution")):
        other = x.clone()
        other[:, -1 - back, 0] += 5.0  # all alike would be lost in the norm
        assert (float((model.answer(other) - model.answer(x)).detach().abs().max()) > 0) == felt


def test_chains_grow_only_where_a_step_waits_for_the_last() -> None:
    torch.manual_seed(0)
    found = {kind: [task.chain(body(8), length, 8) for length in (10, 20, 40)] for kind, body in task.KINDS.items()}
    assert len(set(found["attention"])) == len(set(found["convolution"])) == 1
    first, second, third = found["recurrence"]
    assert third - second == 2 * (second - first) > 0
    assert task.chain(nn.Sequential(nn.Tanh(), nn.Tanh(), nn.Tanh()), 5, 2) == task.chain(nn.Tanh(), 5, 2) + 2


def test_fixed_operations_are_fixed() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 60, 6)
    assert task.slid(task.Convolving(6), x, 7) < 1e-5
    assert task.stepped(task.Recurring(6), x) < 1e-5


def test_focus_is_the_weight_on_what_is_asked_for() -> None:
    torch.manual_seed(0)
    asked = drawn(40, 25, 1, _generator())
    model = task.Recaller("attention", 1, 16)
    assert isinstance(model.body, Block)
    attention = model.body.attention
    assert attention is not None
    with torch.no_grad():
        attention.q_proj.weight.zero_()
    assert torch.allclose(task.focus(model, asked), torch.full((20,), 1 / 25, dtype=torch.float64))


def test_questions_about_a_distance_are_counted_apart() -> None:
    right, far = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0]), torch.tensor([1, 2, 20, 30, 30])
    found = RecallResults([], [right, right], [far, far], {}, 0, [], [])
    assert found.accuracy(1, 17).mean == 1.0
    assert found.accuracy(17).mean == pytest.approx(1 / 3)
    assert over_trainings([right]).mean == pytest.approx(0.6)


def test_quick_models_show_the_difference(quick: Quick) -> None:
    rows = {(row[0], row[1]): row for row in quick("why").tables[0].rows}

    def far(kind: str, marked: int) -> float:
        cell = rows[kind, marked][5]
        assert isinstance(cell, Estimate)
        return cell.mean

    assert far("attention", 1) > 0.7
    assert far("convolution", 1) < 0.3
    assert far("attention", 4) > max(far("convolution", 4), far("recurrence", 4)) + 0.1


def test_the_picture_and_the_way(quick: Quick) -> None:
    report = quick("why")
    panel = report.pictures[0]
    assert isinstance(panel, Panel)
    parts = [part for part in panel.pictures if isinstance(part, Lines)]
    assert [part.title for part in parts] == ["one token to keep", "4 tokens to keep"]
    assert list(parts[0].lines[0].x) == [1, 2, 4, 8, 16]
    reach = {row[0]: row[2] for row in report.tables[2].rows}
    assert reach == {"attention": 23, "convolution": 16, "recurrence": 23}
    assert report.timing is not None
    assert [row[0] for row in report.timing.tables[0].rows] == [64, 256, 1024]


def test_verdicts_follow_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    far = torch.full((40,), 30)
    good = RecallResults([], [torch.ones(40)], [far], {}, 0, [], [])
    chance = replace(good, right=[torch.tensor([1.0, 0, 0, 0, 0, 0, 0, 0] * 5)])
    chains = {"attention": (9, 9), "convolution": (9, 9), "recurrence": (90, 180)}
    monkeypatch.setattr(why, "chains", lambda found, kind, length: chains[kind])

    def verdicts(attention: RecallResults) -> list[str]:
        results = {("attention", 4): attention, ("convolution", 4): chance, ("recurrence", 4): chance}
        return [claim.verdict for claim in why.course_claims(results, 64)]

    assert verdicts(good) == ["confirmed", "confirmed", "confirmed"]
    chains["attention"] = (9, 18)
    assert verdicts(chance) == ["partly", "corrected", "confirmed"]


def test_lengths_are_around_the_trained_one() -> None:
    assert lengths(64) == (16, 32, 64, 128, 256)
    assert why.training_task(Setting(), "attention", 4, 0, 64).batch == 32
