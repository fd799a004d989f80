"""The sinusoidal table: the paper's formula, layouts, precision far from the start."""

import math
import re

import mpmath  # type: ignore[import-untyped]
import pytest
import torch

from regard.spec import positions

LENGTH, WIDTH = 11, 14


def test_columns_follow_the_formula_of_the_paper() -> None:
    table = positions.sinusoidal(LENGTH, WIDTH, dtype=torch.float64)
    for position in range(LENGTH):
        for i in range(WIDTH // 2):
            angle = position / 10000 ** (2 * i / WIDTH)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-15)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-15)


@pytest.mark.parametrize("width", [1, 2, 13, 14])
def test_halves_holds_the_same_columns_in_another_order(width: int) -> None:
    interleaved = positions.sinusoidal(LENGTH, width)
    halves = positions.sinusoidal(LENGTH, width, layout="halves")
    assert torch.equal(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=-1))


def test_odd_width_ends_with_a_sine() -> None:
    table = positions.sinusoidal(LENGTH, 5, dtype=torch.float64)
    rows = torch.arange(LENGTH, dtype=torch.float64)
    assert table.shape == (LENGTH, 5)
    torch.testing.assert_close(table[:, 4], (rows / 10000 ** (4 / 5)).sin(), atol=1e-15, rtol=0)


@pytest.mark.parametrize("start", [-7, 0, 3])
def test_start_cuts_rows_out_of_the_whole_table(start: int) -> None:
    whole = positions.sinusoidal(29, WIDTH, start=-7)
    assert torch.equal(positions.sinusoidal(LENGTH, WIDTH, start=start), whole[start + 7 : start + 7 + LENGTH])


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_a_shift_is_a_rotation_the_same_for_every_row(layout: str) -> None:
    """The reason given in the paper: the row at i + s is a fixed linear function of the row at i."""
    shift = 5
    table = positions.sinusoidal(LENGTH + shift, WIDTH, layout=layout, dtype=torch.float64)  # type: ignore[arg-type]
    pairing = "half" if layout == "halves" else "interleaved"
    # (sin a, cos a) turned by -s is (sin(a + s), cos(a + s)), because a pair's first entry is its sine.
    same = torch.full((LENGTH,), -shift)
    turned = positions.rotary(table[:LENGTH], positions=same, pairing=pairing)  # type: ignore[arg-type]
    torch.testing.assert_close(turned, table[shift:], atol=1e-14, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rounded_once(dtype: torch.dtype) -> None:
    exact = positions.sinusoidal(LENGTH, WIDTH, dtype=torch.float64)
    assert torch.equal(positions.sinusoidal(LENGTH, WIDTH, dtype=dtype), exact.to(dtype))


def test_right_far_from_the_start() -> None:
    start = 1_000_000
    table = positions.sinusoidal(2, WIDTH, start=start)
    for i in range(WIDTH // 2):
        angle = start / mpmath.mpf(10000) ** (mpmath.mpf(2 * i) / WIDTH)
        assert abs(float(mpmath.sin(angle)) - table[0, 2 * i].item()) <= 2**-24
        assert abs(float(mpmath.cos(angle)) - table[0, 2 * i + 1].item()) <= 2**-24


def test_empty_and_default_device() -> None:
    assert positions.sinusoidal(0, WIDTH).shape == (0, WIDTH)
    with torch.device("meta"):
        assert positions.sinusoidal(3, WIDTH).device.type == "cpu"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"length": 3.0}, TypeError, "sinusoidal wants length to be an int, got 3.0 (float)"),
        ({"length": -1}, ValueError, "sinusoidal wants length of at least 0, got -1"),
        ({"width": 0}, ValueError, "sinusoidal wants width of at least 1, got 0"),
        ({"start": True}, TypeError, "sinusoidal wants start to be an int, got True (bool)"),
        (
            {"layout": "half"},
            ValueError,
            "sinusoidal wants layout 'interleaved' (sin, cos, sin, cos) or 'halves' (sines, then cosines), got 'half'",
        ),
        (
            {"dtype": torch.int64},
            TypeError,
            "sinusoidal wants dtype float16, bfloat16, float32 or float64, got torch.int64",
        ),
        ({"base": 1.0}, ValueError, "base wants a finite number greater than 1, got 1.0; the usual one is 10000.0"),
        ({"base": math.nan}, ValueError, "base wants a finite number greater than 1, got nan"),
        ({"base": "1e4"}, TypeError, "base wants a number greater than 1, got '1e4'"),
    ],
)
def test_errors_say_what_was_wanted(arguments: dict[str, object], error: type[Exception], text: str) -> None:
    given: dict[str, object] = {"length": 3, "width": 4} | arguments
    with pytest.raises(error, match=re.escape(text)):
        positions.sinusoidal(**given)  # type: ignore[arg-type]
