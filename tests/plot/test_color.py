"""Colors keep their order for every reader, and a terminal gets no more of them than it shows."""

import io
from itertools import pairwise

import pytest

from regard.plot.color import RAMP, Depth, depth, luminance, nearest_256, ramp, readable_on


class Terminal(io.StringIO):
    """A stream that says it is a terminal, with the given encoding."""

    def __init__(self, encoding: str = "utf-8", interactive: bool = True) -> None:
        super().__init__()
        self._encoding, self._interactive = encoding, interactive

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._interactive


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({"COLORTERM": "truecolor", "TERM": "xterm-256color"}, Depth.TRUECOLOR),
        ({"COLORTERM": "24bit"}, Depth.TRUECOLOR),
        ({"TERM": "xterm-direct"}, Depth.TRUECOLOR),
        ({"TERM": "screen-256color"}, Depth.PALETTE),
        ({"TERM": "xterm"}, Depth.SHADE),
        ({}, Depth.SHADE),
        ({"COLORTERM": "truecolor", "NO_COLOR": "1"}, Depth.SHADE),
        ({"COLORTERM": "truecolor", "NO_COLOR": ""}, Depth.TRUECOLOR),
        ({"COLORTERM": "truecolor", "TERM": "dumb"}, Depth.SHADE),
    ],
)
def test_environment_decides(environment: dict[str, str], expected: Depth) -> None:
    assert depth("auto", environment, Terminal()) is expected


def test_a_pipe_gets_no_colors_and_ascii_gets_no_shades() -> None:
    rich = {"COLORTERM": "truecolor"}
    assert depth("auto", rich, Terminal(interactive=False)) is Depth.SHADE
    assert depth("auto", rich, Terminal("ascii")) is Depth.PLAIN
    assert depth("auto", rich, Terminal("latin-1")) is Depth.PLAIN


def test_a_depth_asked_for_by_name_ignores_the_environment() -> None:
    assert depth("truecolor", {"NO_COLOR": "1"}, Terminal("ascii")) is Depth.TRUECOLOR
    with pytest.raises(ValueError, match="color is one of auto, truecolor, 256, shade, plain; got 'always'"):
        depth("always")


# Viénot, Brettel, Mollon 1999: what protanopes and deuteranopes see, on linear RGB
BLINDNESS = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.1124, 0.8876, 0), (0.1124, 0.8876, 0), (0.0040, -0.0040, 1)),
    "deutan": ((0.2928, 0.7072, 0), (0.2928, 0.7072, 0), (-0.0223, 0.0223, 1)),
}


@pytest.mark.parametrize("kind", BLINDNESS)
@pytest.mark.parametrize("shown", [Depth.TRUECOLOR, Depth.PALETTE])
def test_stronger_is_darker_for_every_eye(kind: str, shown: Depth) -> None:
    def lightness(fraction: float) -> float:
        linear = [luminance((part, part, part)) for part in ramp(fraction, shown)]
        r, g, b = (sum(w * v for w, v in zip(row, linear, strict=True)) for row in BLINDNESS[kind])
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    steps = [lightness(index / 6) for index in range(7)]
    assert all(a - b > 0.01 for a, b in pairwise(steps))


@pytest.mark.parametrize("shown", [Depth.TRUECOLOR, Depth.PALETTE])
def test_numbers_can_be_read_on_every_color(shown: Depth) -> None:
    for index in range(101):
        paper = ramp(index / 100, shown)
        lighter, darker = sorted((luminance(paper), luminance(readable_on(paper))), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5  # the web's rule for text


def test_the_ramp_ends_where_it_says_and_clips() -> None:
    assert ramp(0.0) == ramp(-3.0) == RAMP[0]
    assert ramp(1.0) == ramp(7.0) == RAMP[-1]


def test_nearest_of_256_colors() -> None:
    assert nearest_256((255, 0, 0)) == 196
    assert nearest_256((0, 0, 0)) == 16
    assert nearest_256((128, 128, 128)) == 244
    assert nearest_256((0, 95, 175)) == 25
