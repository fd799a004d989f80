"""Patterns: counts in closed form, growth, pictures that are the mask, and what is never computed."""

from collections.abc import Callable

import pytest
import torch

from regard.inspection.records import Estimate
from regard.lab import patterns
from regard.lab.patterns import BASIC, DRAWN, LONG, PATTERNS, SHORT, computed, picture
from regard.lab.patterns.task import GLOBAL, LOCAL, START, by_distance, draw
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.spec.masks import Causal, Dilated, Mask, local, longformer

Quick = Callable[[str], Report]
BY_NAME = {pattern.name: pattern for pattern in PATTERNS}


@pytest.mark.parametrize("n", [1, 7, 64])
def test_counts_in_closed_form(n: int) -> None:
    full, causal, band = (pattern.at(n).pairs(n) for pattern in BASIC)
    assert (full, causal, band) == (n * n, n * (n + 1) // 2, 3 * n - 2)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_picture_is_the_mask(name: str) -> None:
    grid = picture(BY_NAME[name])
    seen = sum(value is not None for row in grid.values for value in row)
    assert seen == BY_NAME[name].drawn.pairs(DRAWN)
    assert all(len(row) == DRAWN for row in grid.values)


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_visible_is_computed(name: str) -> None:
    mask = BY_NAME[name].at(512)
    assert mask.pairs(512) / 512**2 <= computed(mask, 512) <= 1
    assert computed(BY_NAME["full"].at(512), 512) == 1


def test_local_work_is_linear_and_full_work_quadratic(quick: Quick) -> None:
    growth = {row[0]: row[4] for row in quick("patterns").tables[0].rows}
    assert growth["full"] == 4
    assert growth["causal"] == pytest.approx(4, rel=1e-3)
    for name in ("local, window 3", "dilated, 5 keys", "global + local", "causal documents"):
        assert growth[name] == pytest.approx(2, rel=0.01)
    assert LONG == 2 * SHORT


def test_times_stand_apart(quick: Quick) -> None:
    timing = quick("patterns").timing
    assert timing is not None
    assert timing.tables[0].columns == ("n", *(pattern.name for pattern in PATTERNS), "spread")


@pytest.mark.parametrize(
    "mask, layers, share",
    [
        (local(3), 19, 1.0),
        (local(9), 5, 1.0),
        (longformer(3, [0]), 2, 1.0),
        (Causal(), 1, 210 / 400),
        (Dilated(5, 2), 5, 0.5),
    ],
)
def test_layers_until_nothing_more_becomes_known(mask: Mask, layers: int, share: float) -> None:
    """n = 20: a window of ±r needs ⌈19 / r⌉ layers; a step of 2 never meets the other half."""
    needed = patterns.layers_needed(mask, 20)
    assert needed[0] == layers
    assert needed[1] == pytest.approx(share)
    last = patterns.known(mask, 20, layers)
    assert torch.equal(last, patterns.known(mask, 20, layers + 1))
    assert not torch.equal(last, patterns.known(mask, 20, layers - 1))


def test_reach_is_what_a_change_can_touch() -> None:
    """In an untrained model: beyond the reach, outputs do not change by a bit."""
    torch.manual_seed(0)
    model = patterns.training_task(Setting(quick=True), LOCAL, 2, 25, 0).model().eval()
    tokens = draw(1, 25, torch.Generator().manual_seed(0)).tokens
    changed = tokens.clone()
    changed[0, 12] = (tokens[0, 12] + 1) % START
    with torch.no_grad():
        moved = (model(tokens) != model(changed))[0].any(-1)
    assert moved.nonzero().flatten().tolist() == list(range(12 - 8, 12 + 8 + 1))


def test_texts_hold_one_color_and_a_start() -> None:
    texts = draw(50, 17, torch.Generator().manual_seed(0))
    assert bool((texts.tokens[:, 0] == START).all())
    colored = texts.tokens < 8
    assert bool((colored.sum(1) == 1).all())
    assert torch.equal(colored.int().argmax(1), texts.where)
    assert torch.equal(texts.tokens[torch.arange(50), texts.where], texts.color)


class Knows(torch.nn.Module):
    """Names the color up to a distance, and a wrong one beyond."""

    def __init__(self, far: int) -> None:
        super().__init__()
        self.far = far

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        where = (tokens < 8).int().argmax(1, keepdim=True)
        color = tokens.gather(1, where)
        near = (torch.arange(tokens.shape[1]) - where).abs() <= self.far
        return torch.nn.functional.one_hot(torch.where(near, color, (color + 1) % 8), 8).double()


def test_right_by_distance_of_a_model_that_is_told() -> None:
    texts = draw(400, 17, torch.Generator().manual_seed(0))
    assert by_distance(Knows(5), texts).tolist() == [1.0] * 6 + [0.0] * 10
    model = patterns.TrainedPattern(LOCAL, 1, 17, by_distance(Knows(5), texts).repeat(2, 1))
    assert model.reach == 4
    everything = patterns.TrainedPattern(GLOBAL, 2, 17, by_distance(Knows(16), texts).repeat(2, 1))
    assert (everything.reach, everything.beyond()) == (15, None)


def test_a_window_fails_and_a_global_token_mends(quick: Quick) -> None:
    rows = {str(row[0]): row for row in quick("patterns").tables[2].rows}
    assert [row[2] for row in rows.values()] == [15, 4, 8, 15, 15]
    for name in ("local, 1 layer", "local, 2 layers"):
        within, beyond = rows[name][3:]
        assert isinstance(within, Estimate)
        assert isinstance(beyond, Estimate)
        assert within.mean > 0.8
        assert beyond.mean < 0.3
    mended = rows["global + local, 2 layers"][3]
    assert isinstance(mended, Estimate)
    assert mended.mean > 0.8
