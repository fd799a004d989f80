"""heads: similarity as it is defined, heads that are called what they do, and a report that follows from the models."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard.inspection.matrix import AttentionMatrix
from regard.inspection.records import Estimate, Grid, Panel, Table
from regard.lab import heads
from regard.lab.heads import HEADS, KNOWN, MEANINGS, SEED, XAVIER, HeadProfile, average, fitting, random_heads
from regard.lab.report import Report

Quick = Callable[[str], Report]


def test_similarity_is_the_cosine_over_pairs_of_different_heads() -> None:
    maps = torch.rand(1, 3, 4, 4, dtype=torch.float64).softmax(-1)
    matrix = AttentionMatrix.from_weights(maps)
    for name, less in (("cosine", 0.0), ("centered", 0.25)):
        flat = (maps[0] - less).flatten(1)
        pairs = [torch.cosine_similarity(flat[i], flat[j], dim=0) for i in range(3) for j in range(i)]
        assert float(MEANINGS[name](matrix)) == pytest.approx(float(sum(pairs)) / 3)
        if less:
            assert float(MEANINGS["|centered|"](matrix)) == pytest.approx(float(sum(map(abs, pairs))) / 3)
    assert average(torch.full((5, 1, 1), 0.7)).tolist() == [1.0] * 5


def test_random_heads_are_unlike_when_centered_and_alike_when_not() -> None:
    maps = random_heads(torch.Generator().manual_seed(0), 200, 4, 12, XAVIER)
    assert maps.shape == (200, 4, 12, 12)
    assert float(MEANINGS["centered"](maps).mean()) == pytest.approx(0, abs=0.02)
    assert 0.3 < float(MEANINGS["cosine"](maps).mean()) < 0.7
    # with large projections maps are almost one-hot, and two of them agree by chance: 1/n
    sharp = random_heads(torch.Generator().manual_seed(0), 400, 4, 12, "1")
    assert float(MEANINGS["cosine"](sharp).mean()) == pytest.approx(1 / 12, abs=0.03)


def test_a_figure_fits_inside_the_draws_only() -> None:
    inside, above = torch.linspace(0, 2, 101), torch.linspace(0.3, 2, 101)
    draws = {
        (XAVIER, "cosine", 5): dict.fromkeys(HEADS, inside),
        (XAVIER, "cosine", 6): {**dict.fromkeys(HEADS, inside), 4: above},
        (XAVIER, "cosine", 7): {**dict.fromkeys(HEADS, inside), 8: inside - 2},
        (XAVIER, "centered", 8): dict.fromkeys(HEADS, inside),
    }
    assert fitting(draws, XAVIER, "cosine") == [5]


def _looked(*rows: tuple[float, float, float]) -> HeadProfile:
    return HeadProfile(dict.fromkeys(MEANINGS, 0.2), Table(("previous", "first", "duplicate"), rows))


def test_heads_are_called_after_what_they_look_at() -> None:
    profile = _looked((0.9, 0.1, 0.0), (0.3, 0.3, 0.4), (0.1, 0.1, 0.8), (0.6, 0.2, 0.2))
    assert profile.kinds == ["previous", "mixed", "duplicate", "previous"]
    assert profile.patterns == 2
    assert profile.best("duplicate") == 0.8


def test_quick_models_need_several_heads(quick: Quick) -> None:
    report = quick("heads")
    shares = []
    for row in report.tables[1].rows:
        cells = [cell for cell in row[2:5] if isinstance(cell, Estimate)]
        assert len(cells) == 3
        shares.append(sum(cell.mean for cell in cells) / 3)
    assert shares[0] < 0.75
    assert shares[3] > 0.9
    assert shares[0] < shares[1] < shares[3]
    patterns = [row[5].mean for row in report.tables[1].rows if isinstance(row[5], Estimate)]
    assert patterns[0] <= 1
    assert patterns[3] > 2


def test_the_table_of_heads_says_what_the_maps_show(quick: Quick) -> None:
    report = quick("heads")
    panel = report.pictures[0]
    assert isinstance(panel, Panel)
    called = [str(row[-1]) for row in report.tables[2].rows]
    assert [grid.title.split(": ")[1] for grid in panel.pictures] == called
    for grid, kind in zip(panel.pictures, called, strict=True):
        assert isinstance(grid, Grid)
        if kind == "previous":
            weights = [grid.values[place][place - 1] or 0.0 for place in range(1, len(grid.values))]
            assert sum(weights) / len(weights) > 0.4


def test_the_row_of_the_seed_stands_beside(quick: Quick) -> None:
    report = quick("heads")
    assert [row[:2] for row in report.tables[0].rows] == [(count, SEED[count]) for count in HEADS]
    assert [claim.quote.plain for claim in report.compared[0].claims[:4]] == [
        *("1 · 1.00", "2 · 0.12", "4 · 0.17", "8 · 0.19")
    ]


def _runs(one: float, four: float, after: HeadProfile) -> Any:
    before = _looked(*[(0.1, 0.1, 0.1)] * 4)
    runs = {}
    for count in HEADS:
        right = {"previous": four if count > 1 else one}
        runs[count] = [SimpleNamespace(right=right, before=before, after=after) for _ in range(3)]
    return runs


def test_verdicts_follow_the_numbers() -> None:
    own = _looked((0.9, 0.0, 0.0), (0.0, 0.9, 0.0), (0.0, 0.0, 0.9))
    none = _looked(*[(0.2, 0.2, 0.2)] * 3)
    learned = [claim.verdict for claim in heads.learned_claims(_runs(0, 1, own))]
    assert learned == ["confirmed", "confirmed", "confirmed"]
    assert {claim.verdict for claim in heads.learned_claims(_runs(0, 1, none))} == {"corrected"}
    assert heads.several_claim(_runs(0.5, 1.0, own)).verdict == "confirmed"
    assert heads.several_claim(_runs(0.8, 0.8, own)).verdict == "corrected"
    high = {
        (start, name, KNOWN): dict.fromkeys(HEADS, torch.full((9,), 0.9))
        for start in (XAVIER, "1")
        for name in MEANINGS
    }
    listed = heads.row_claims(high, _runs(0, 1, own))
    assert listed[1].outcome == "partly: random heads over 20 tokens: 0.90"
    assert listed[2].verdict == "confirmed"
    assert listed[4].verdict == "confirmed"
    spread = {**high, ("1", "cosine", 6): dict.fromkeys(HEADS, torch.linspace(0, 2, 99))}
    assert heads.row_claims(spread, _runs(0, 1, own))[4].verdict == "corrected"
    close = replace(own, alike=dict.fromkeys(MEANINGS, 0.12))
    assert heads.row_claims(high, _runs(0, 1, close))[1].verdict == "confirmed"
