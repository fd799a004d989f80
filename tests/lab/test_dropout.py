"""dropout: pairs, sums and means of random attention, texts of topics, and a report that follows from the readers."""

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard.inspection.records import Estimate, Grid, Panel
from regard.lab import dropout
from regard.lab.dropout import DroppedWeights, dropped, hidden
from regard.lab.dropout.task import HEADS, Reader, ReaderScores, TopicReading, TopicTexts, read, right
from regard.lab.maps import KEYS
from regard.lab.report import Report
from regard.plot.figure import grid_layout

Quick = Callable[[str], Report]


def test_kept_weights_grow_and_the_spread_of_sums_is_as_computed() -> None:
    draw = dropped(torch.Generator().manual_seed(0), 200, 0.3)
    assert torch.allclose(draw.before.sum(-1), torch.ones(()).double())
    stays = ~draw.gone
    assert torch.allclose(draw.after[stays], draw.before[stays] / 0.7)
    assert float(draw.gone.double().mean()) == pytest.approx(0.3, abs=0.005)
    assert float(draw.sums.std()) == pytest.approx(draw.spread, rel=0.05)
    assert float(draw.left.mean()) == pytest.approx(1.0, abs=0.01)


def test_heads_that_drop_the_same_pairs_are_noticed() -> None:
    draw = dropped(torch.Generator().manual_seed(0), 50, 0.5)
    assert float(draw.together.mean().abs()) < 0.02
    same = DroppedWeights(0.5, draw.before, draw.after[:, :1].expand(-1, HEADS, -1, -1))
    assert same.together.tolist() == pytest.approx([1.0] * 50)


def test_hidden_before_softmax_rows_sum_to_1() -> None:
    assert torch.allclose(hidden(torch.Generator().manual_seed(0), 5, 0.3), torch.ones(()).double(), atol=1e-12)


def test_texts_use_the_words_of_their_topic_more() -> None:
    task = TopicReading(0, 1, rate=0.0, rise=0.1, looks=1, dropout=0.0, length=20, own=5, common=10, hint=0.5)
    texts = task.drawn(400, 0)
    own = texts.words // 5 == texts.topics.unsqueeze(1)
    assert float(own.double().mean()) == pytest.approx(0.5 + 0.5 * 5 / 30, abs=0.02)
    assert int(texts.words.max()) < 30


def test_reading_without_words_and_without_heads() -> None:
    torch.manual_seed(0)
    model = Reader(30, 8, HEADS, 4, 0.0).eval()
    task = TopicReading(0, 1, rate=0.0, rise=0.1, looks=1, dropout=0.0, length=10, own=5, common=10, hint=0.5)
    texts = task.drawn(60, 1)
    scores = read(model, texts, texts, torch.Generator().manual_seed(2))
    assert scores.trained_on == scores.new == right(model, texts)
    assert 1 < scores.words <= 10
    # a text of one word again and again reads the same without half of them
    same = TopicTexts(texts.words[:, :1].expand(-1, 10), texts.topics)
    again = read(model, same, same, torch.Generator().manual_seed(2))
    assert again.half == again.new
    assert again.words == pytest.approx(10, rel=1e-5)


def test_dropout_keeps_quick_readers_from_learning_by_heart(quick: Quick) -> None:
    rows = quick("dropout").tables[1].rows
    none, most = rows[0], rows[-1]
    assert (none[0], most[0]) == ("0", "0.5")
    for place, rises in ((2, True), (3, False), (4, True)):
        one, other = none[place], most[place]
        assert isinstance(one, Estimate)
        assert isinstance(other, Estimate)
        assert (other.mean > one.mean) == rises


def test_the_picture_leaves_dropped_pairs_blank(quick: Quick) -> None:
    panel = quick("dropout").pictures[0]
    assert isinstance(panel, Panel)
    before, after, *_ = panel.pictures
    assert isinstance(before, Grid)
    assert isinstance(after, Grid)
    pairs = [
        (one, other)
        for row, line in zip(before.values, after.values, strict=True)
        for one, other in zip(row, line, strict=True)
    ]
    blank = sum(other is None for _, other in pairs)
    assert 8 < blank < 32
    assert grid_layout(after).note == ["bars: sums of rows; hatched: dropped"]
    assert all(len(row) == KEYS for row in after.values)  # whole rows, whose sums are drawn
    assert list(after.margins[0]) == pytest.approx([math.fsum(value or 0 for value in row) for row in after.values])
    assert list(before.margins[0]) == pytest.approx([1.0] * len(before.values))
    assert all(other is None or other == pytest.approx((one or 0) / 0.7) for one, other in pairs)


def test_presets_are_those_of_the_configurations() -> None:
    transformers = pytest.importorskip("transformers")
    named = {model: (seed, said) for model, seed, said, _ in dropout.PRESETS}
    assert named["BERT"] == (0.1, transformers.BertConfig().attention_probs_dropout_prob)
    assert named["GPT-2"] == (0.1, transformers.GPT2Config().attn_pdrop)


def test_verdicts_follow_the_numbers() -> None:
    random = {p: dropped(torch.Generator().manual_seed(0), 20, p) for p in (0.1, 0.3, 0.5)}
    worse = ReaderScores(1.0, 0.5, 0.4, 0.4, 5.0)

    def runs(better: ReaderScores) -> Any:
        none = [SimpleNamespace(read=replace(worse, new=0.5 + shift)) for shift in (0.0, 0.01, 0.02)]
        more = [SimpleNamespace(read=replace(better, new=better.new + shift)) for shift in (0.0, 0.012, 0.02)]
        return {0.0: none, 0.5: more}

    gained = dropout.claims(random, runs(ReaderScores(1.0, 0.7, 0.6, 0.69, 12.0)))
    assert [claim.verdict for claim in gained[:5]] == ["confirmed"] * 5
    assert gained[5].verdict == "partly"
    lost = dropout.claims(random, runs(ReaderScores(1.0, 0.3, 0.3, 0.1, 2.0)))
    assert [claim.verdict for claim in lost[1:5]] == ["corrected"] * 4
    halved = DroppedWeights(0.1, random[0.1].before, 0.5 * random[0.1].before)
    assert dropout.claims({**random, 0.1: halved}, runs(worse))[0].verdict == "corrected"
