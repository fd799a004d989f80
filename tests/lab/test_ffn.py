"""ffn: formulas that are counted, questions with known answers, and verdicts that follow the numbers."""

import dataclasses
from collections.abc import Callable

import pytest
import torch

from regard.inspection.records import Estimate
from regard.lab import ffn
from regard.lab.ffn import (
    ALONE,
    ATTENTION,
    BOTH,
    DEEP,
    FEED,
    KINDS,
    QUESTIONS,
    ROUTE,
    TOGETHER,
    TRANSFORM,
    BlockCost,
    BlockParts,
    answers,
    crossing,
    drawn,
)
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.nn import MultiHeadAttention

Quick = Callable[[str], Report]


def test_costs_are_those_of_layers() -> None:
    cost = BlockCost(*ffn.CHECKED)
    assert ffn.count() == (cost.attention, cost.feed)
    assert MultiHeadAttention(cost.width, 4).summary(cost.length).total_flops == cost.attention


@pytest.mark.parametrize("width", [64, 768])
def test_they_cross_at_twice_the_width(width: int) -> None:
    assert crossing(width) == 2 * width + 1
    assert BlockCost(width, 2 * width).attention == BlockCost(width, 2 * width).feed
    assert BlockCost(width, 4 * width).pairs == BlockCost(width, 4 * width).feed


def test_answers_are_what_was_asked() -> None:
    tokens, place = drawn(50, 6, 3, torch.Generator().manual_seed(0))
    assert set(tokens.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal((tokens[..., -1] > 0).sum(1), torch.ones(50, dtype=torch.long))
    for text in range(50):
        marked = tokens[text, place[text]]
        assert float(marked[-1]) == 1
        assert set(answers(ROUTE, tokens, place)[text].tolist()) == {float(marked[0] > 0)}
        odd = float((marked[:3] < 0).sum() % 2 == 0)
        assert set(answers(TOGETHER, tokens, place)[text].tolist()) == {odd}
        own = [float((token[:3] < 0).sum() % 2 == 0) for token in tokens[text]]
        assert answers(TRANSFORM, tokens, place)[text].tolist() == own


def test_three_layers_of_attention_are_as_large_as_a_block() -> None:
    sizes = {
        kind: sum(p.numel() for part in BlockParts(kind, 4, 32, 4).parts for p in part.parameters()) for kind in KINDS
    }
    assert sizes[DEEP] == pytest.approx(sizes[BOTH], rel=0.02)


def test_attention_over_one_token_is_linear_and_feed_forward_is_not() -> None:
    torch.manual_seed(0)
    a, b, zero = torch.randn(1, 1, 4), torch.randn(1, 1, 4), torch.zeros(1, 1, 4)
    for kind, linear in ((ATTENTION, True), (DEEP, True), (FEED, False)):
        model = BlockParts(kind, 4, 32, 4)
        apart = model(a + b) + model(zero) - model(a) - model(b)
        assert (float(apart.detach().abs().max()) < 1e-5) == linear


def test_feed_forward_lets_nothing_pass_between_tokens(quick: Quick) -> None:
    rows = {row[0]: row[1] for row in quick("ffn").tables[3].rows}
    assert rows["feed-forward"] == Estimate(0.0, 0.0, 0.0)
    assert isinstance(rows["attention"], Estimate)
    assert rows["attention"].low > 0


def test_what_cannot_be_learned_is_not(quick: Quick) -> None:
    rows = {str(row[0]): dict(zip(KINDS, row[1:], strict=True)) for row in quick("ffn").tables[2].rows}
    means = {
        (question, kind): cell.mean
        for question, row in rows.items()
        for kind, cell in row.items()
        if isinstance(cell, Estimate)
    }
    assert means[ROUTE, ATTENTION] > 0.95
    assert means[ROUTE, FEED] < 0.65
    assert means[TOGETHER, FEED] < 0.65
    assert means[ALONE, FEED] > 0.95
    assert means[ALONE, ATTENTION] <= 0.8  # a linear rule gets three of four at most
    assert means[TOGETHER, BOTH] > 0.8


def test_verdicts_follow_the_numbers() -> None:
    setting = Setting(quick=True, seed=3)
    ideal = {(question, kind): [1.0, 1.0] for question in QUESTIONS for kind in KINDS}
    ideal |= {(ROUTE, FEED): [0.5, 0.6], (ALONE, ATTENTION): [0.5, 0.7], (TOGETHER, FEED): [0.5, 0.5]}
    results = ffn.PartResults(ffn.count(), ffn.influence(setting, 2), ideal, [])
    said = {claim.measured.removeprefix("share of right answers, "): claim.verdict for claim in ffn.claims(results)}
    assert said[f"{FEED}: {ROUTE}"] == said[f"{BOTH}: {TOGETHER}"] == "confirmed"
    assert said[f"{ATTENTION}: {ALONE}"] == "confirmed"
    assert said[f"{ATTENTION}: {TRANSFORM}"] == "corrected"
    assert "agree" in ffn.crossing_table(results).title
    other = dataclasses.replace(
        results,
        counted=(1, 1),
        right={key: [1.0, 1.0] if key[1] == FEED else [0.5, 0.5] for key in ideal},
        influence={"attention": torch.full((2,), 0.5), "feed-forward": torch.ones(2)},
    )
    said = {claim.measured.removeprefix("share of right answers, "): claim.verdict for claim in ffn.claims(other)}
    assert said[f"{ATTENTION}: {ROUTE}"] == "corrected"
    assert next(word for what, word in said.items() if what.startswith("largest change")) == "corrected"
    assert said[f"{ATTENTION}: {TRANSFORM}"] == "confirmed"
    assert "differ" in ffn.crossing_table(other).title
