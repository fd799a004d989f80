"""Stretches: which frequencies they keep, which they slow, and what they refuse."""

import math
import re
from typing import Any

import pytest
import torch

from regard.spec import positions
from regard.spec.positions import NTK, Linear, Llama3, Stretch, YaRN, yarn_scale
from regard.spec.positions.sinusoidal import inverse_frequencies

WIDTH, BASE = 62, 10000.0

every = pytest.mark.parametrize(
    "stretch", [Linear(4.0), NTK(4.0), YaRN(4.0, original_length=2048), Llama3(4.0, original_length=2048)], ids=repr
)


@every
def test_frequencies_fall_and_lie_between_kept_and_divided(stretch: Stretch) -> None:
    frequencies, factor = stretch.frequencies(WIDTH, BASE)
    kept = inverse_frequencies(WIDTH, BASE)
    assert frequencies.dtype == torch.float64
    assert frequencies.device.type == "cpu"
    assert frequencies.shape == (WIDTH // 2,)
    assert isinstance(factor, float)
    assert (frequencies.diff() < 0).all()
    assert (frequencies <= kept).all()
    assert (frequencies >= kept / 4.0 * (1 - 1e-14)).all()


@pytest.mark.parametrize(
    "stretch", [Linear(1.0), NTK(1.0), YaRN(1.0, original_length=2048), Llama3(1.0, original_length=2048)], ids=repr
)
def test_a_factor_of_one_stretches_nothing(stretch: Stretch) -> None:
    frequencies, factor = stretch.frequencies(WIDTH, BASE)
    torch.testing.assert_close(frequencies, inverse_frequencies(WIDTH, BASE), atol=0, rtol=1e-15)
    assert factor == 1.0


def test_linear_is_plain_rotation_at_divided_positions() -> None:
    x = torch.randn(7, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    stretched = positions.rotary(x, positions=4 * torch.arange(7), stretch=Linear(4.0))
    torch.testing.assert_close(stretched, positions.rotary(x), atol=1e-13, rtol=0)


def test_ntk_keeps_the_fastest_pair_and_divides_the_slowest() -> None:
    frequencies, _ = NTK(4.0).frequencies(WIDTH, BASE)
    kept = inverse_frequencies(WIDTH, BASE)
    assert frequencies[0] == kept[0]
    assert frequencies[-1].item() == pytest.approx(kept[-1].item() / 4.0, rel=1e-14)


@pytest.mark.parametrize(
    ("stretch", "slow", "fast"),
    [(YaRN(4.0, original_length=2048), 1.0, 32.0), (Llama3(4.0, original_length=2048), 1.0, 4.0)],
)
def test_ramps_keep_fast_pairs_and_divide_slow_ones(stretch: Stretch, slow: float, fast: float) -> None:
    frequencies, _ = stretch.frequencies(WIDTH, BASE)
    kept = inverse_frequencies(WIDTH, BASE)
    turns = 2048 * kept / (2 * math.pi)
    # YaRN's ends are rounded outwards to whole pairs, so its ramp may reach one pair further on either side.
    step = (turns[0] / turns[1]).item() if isinstance(stretch, YaRN) else 1.0
    assert torch.equal(frequencies[turns > fast * step], kept[turns > fast * step])
    assert torch.equal(frequencies[turns < slow / step], kept[turns < slow / step] / 4.0)
    between = (turns < fast) & (turns > slow)
    assert between.any()
    assert (frequencies[between] < kept[between]).all()
    assert (frequencies[between] > kept[between] / 4.0).all()


def test_attention_factor_scales_scores_by_its_square() -> None:
    x = torch.randn(5, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    yarn = YaRN(4.0, original_length=2048)
    plain = YaRN(4.0, original_length=2048, attention_factor=1.0)
    assert yarn.frequencies(WIDTH, BASE)[1] == yarn_scale(4.0) == 0.1 * math.log(4.0) + 1.0
    torch.testing.assert_close(
        positions.rotary(x, stretch=yarn), positions.rotary(x, stretch=plain) * yarn_scale(4.0), atol=1e-14, rtol=0
    )


def test_yarn_scale() -> None:
    assert yarn_scale(1.0) == yarn_scale(0.5) == 1.0
    assert yarn_scale(40.0, 0.707) == 0.1 * 0.707 * math.log(40.0) + 1.0


def test_values_are_equal_by_content_and_frozen() -> None:
    assert Linear(4.0) == Linear(4)
    assert hash(Linear(4.0)) == hash(Linear(4))
    different: tuple[Stretch, Stretch] = (Linear(4.0), NTK(4.0))
    assert different[0] != different[1]
    assert YaRN(4.0, 2048) == YaRN(4.0, original_length=2048, beta_fast=32.0)
    assert YaRN(4.0, 2048) != YaRN(4.0, 2048, truncate=False)
    assert repr(Llama3(8.0)) == ("Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192)")
    with pytest.raises(AttributeError):
        Linear(4.0).factor = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "text"),
    [
        (
            Linear,
            {"factor": 0.5},
            ValueError,
            "Linear wants factor to be a finite number of at least 1 (4.0 reaches four times as far), got 0.5",
        ),
        (NTK, {"factor": "4"}, TypeError, "NTK wants factor to be a finite number of at least 1"),
        (Llama3, {"factor": math.inf}, ValueError, "Llama3 wants factor to be a finite number of at least 1"),
        (
            YaRN,
            {"factor": 4.0, "original_length": 2048.0},
            TypeError,
            "YaRN wants original_length to be the int length the model was trained with, got 2048.0",
        ),
        (
            YaRN,
            {"factor": 4.0, "original_length": 0},
            ValueError,
            "YaRN wants original_length to be the int length the model was trained with, at least 1, got 0",
        ),
        (
            YaRN,
            {"factor": 4.0, "original_length": 2048, "beta_fast": 1.0, "beta_slow": 32.0},
            ValueError,
            "YaRN wants beta_fast greater than beta_slow, got 1.0 and 32.0; "
            "they count turns within original_length, and fast pairs make more of them",
        ),
        (
            YaRN,
            {"factor": 4.0, "original_length": 2048, "beta_slow": 0.0},
            ValueError,
            "YaRN wants beta_slow to be a finite number greater than 0, got 0.0",
        ),
        (
            YaRN,
            {"factor": 4.0, "original_length": 2048, "attention_factor": "1"},
            TypeError,
            "YaRN wants attention_factor to be a finite number greater than 0, got '1'",
        ),
        (
            Llama3,
            {"factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0},
            ValueError,
            "Llama3 wants high_freq_factor greater than low_freq_factor, got 1.0 and 4.0; swap them",
        ),
    ],
)
def test_errors_say_what_was_wanted(
    kind: type[Any], arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        kind(**arguments)


def test_ntk_wants_two_pairs() -> None:
    text = (
        "NTK wants a rotary width of at least 4, got 2; "
        "with a single pair there is no slower one to stretch: use Linear"
    )
    with pytest.raises(ValueError, match=re.escape(text)):
        NTK(4.0).frequencies(2, BASE)


@pytest.mark.parametrize("length", [2, 10**11])
def test_yarn_wants_a_ramp_among_the_pairs(length: int) -> None:
    text = (
        f"YaRN finds no pair near 1.0 to 32.0 turns within original_length {length} at width 62 and base 10000.0; "
        "give the length the model was trained with, or use Linear or NTK"
    )
    with pytest.raises(ValueError, match=re.escape(text)):
        YaRN(4.0, original_length=length).frequencies(WIDTH, BASE)
