"""Captures in a terminal: as many layers and heads as the window holds, and what is left out is said."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.inspection.text import display_width
from regard.plot.capture import print_capture
from regard.plot.capture_window import capture_text

Made = Callable[..., Any]


@pytest.mark.parametrize("color", ["truecolor", "256", "shade", "plain"])
@pytest.mark.parametrize("width, height", [(80, 24), (120, 50), (40, 12), (100, None)])
@pytest.mark.parametrize("layers, heads, size", [(6, 12, 7), (30, 5, 40), (2, 3, 3)])
def test_it_fits_the_window(
    captured: Made, softmax: Made, color: str, width: int, height: int | None, layers: int, heads: int, size: int
) -> None:
    given = captured([softmax(heads, size, seed=layer) for layer in range(layers)])
    text = capture_text(given, width=width, height=height, color=color)
    lines = text.split("\n")
    assert height is None or len(lines) <= height
    if color in ("shade", "plain"):
        assert max(map(display_width, lines)) <= width
    assert text.isascii() or color != "plain"


def test_each_map_is_where_its_layer_and_head_are(captured: Made) -> None:
    weights = torch.zeros(2, 1, 3, 2, 2)
    weights[1, 0, 2, 1, 1] = 1.0
    text = capture_text(captured(list(weights)), width=60, color="plain")
    assert [line.rstrip() for line in text.split("\n")[:7]] == [
        "  0    1    2",
        "0 ..   ..   ..",
        "  ..   ..   ..",
        "",
        "1 ..   ..   ..",
        "  ..   ..   .#",
        "",
    ]


def test_layers_without_room_are_counted_and_the_ends_are_shown(captured: Made, softmax: Made) -> None:
    given = captured([softmax(9, 20, seed=layer) for layer in range(30)])
    text = capture_text(given, width=80, height=24, color="shade")
    shown = [line.split()[0] for line in text.split("\n") if line[:2].strip().isdigit() and line[2] == " "]
    assert (shown[0], shown[-1]) == ("0", "29")
    assert f"These are {len(shown)} of 30 layers." in " ".join(text.split())
    narrow = capture_text(captured([softmax(64, 8)]), width=60, color="shade")
    assert "These are 11 of 64 heads." in " ".join(narrow.split())


def test_refused_layers_say_why(captured: Made, softmax: Made) -> None:
    text = capture_text(captured([softmax(2, 4), None]), width=60, color="shade")
    assert "1 refused: its weights cannot be computed again" in text
    assert "1 layer refused" in text


def test_one_layer_is_printed_larger(captured: Made, softmax: Made, capsys: pytest.CaptureFixture[str]) -> None:
    given = captured([softmax(2, 4), None])
    print_capture(given, layer=0, color="plain")
    assert "layer 0: blocks.0.attention" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"blocks\.1\.attention cannot be shown: its weights cannot be computed"):
        print_capture(given, layer=1)
    for layer, text in ((2, "there is no layer 2: there are 2, 0 to 1"), ("x", r"no layer 'x'; there are blocks\.0")):
        with pytest.raises(ValueError, match=text):
            print_capture(given, layer=layer)
    print_capture(given, layer="blocks.0.attention", color="plain")
    assert "layer 0: blocks.0.attention" in capsys.readouterr().out
    print_capture(given, color="plain", title="all")
    assert capsys.readouterr().out.startswith("all")


def test_a_window_too_small_says_so(captured: Made, softmax: Made) -> None:
    with pytest.raises(ValueError, match="20 columns and 8 lines at least, got 10 columns and None lines"):
        capture_text(captured([softmax(1, 2)]), width=10)
