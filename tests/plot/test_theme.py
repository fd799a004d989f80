"""Colors keep their order for every reader, a terminal gets no more than it shows, and fonts have the characters."""

import io
from itertools import pairwise

import pytest
from matplotlib.font_manager import FontEntry, fontManager

from regard.plot import theme
from regard.plot.theme import FIRST, RAMP, Depth, color_depth, families_for, nearest_256, ramp, readable_on


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
    assert color_depth("auto", environment, Terminal()) is expected


def test_a_pipe_gets_no_colors_and_ascii_gets_no_shades() -> None:
    rich = {"COLORTERM": "truecolor"}
    assert color_depth("auto", rich, Terminal(interactive=False)) is Depth.SHADE
    assert color_depth("auto", rich, Terminal("ascii")) is Depth.PLAIN
    assert color_depth("auto", rich, Terminal("latin-1")) is Depth.PLAIN


def test_a_depth_asked_for_by_name_ignores_the_environment() -> None:
    assert color_depth("truecolor", {"NO_COLOR": "1"}, Terminal("ascii")) is Depth.TRUECOLOR
    with pytest.raises(ValueError, match="color is one of auto, truecolor, 256, shade, plain; got 'always'"):
        color_depth("always")


# Viénot, Brettel, Mollon 1999: what protanopes and deuteranopes see, on linear RGB
BLINDNESS = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.1124, 0.8876, 0), (0.1124, 0.8876, 0), (0.0040, -0.0040, 1)),
    "deutan": ((0.2928, 0.7072, 0), (0.2928, 0.7072, 0), (-0.0223, 0.0223, 1)),
}


def luminance(color: tuple[int, int, int]) -> float:
    """Relative luminance as the web's contrast rules define it: 0 for black, 1 for white."""
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (part / 255 for part in color))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


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


def test_plain_text_needs_no_other_font() -> None:
    assert families_for("The cat × ▁the Ġ ## → ™ Ж α שלום مرحبا\n ") == [FIRST]
    assert families_for("") == [FIRST]


def test_fonts_are_added_for_what_the_first_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    faces = {"Alpha": {0x732B}, "Noto Sans CJK SC": {0x732B, 0x72D7}, "Beta": {0x1F98A}, "Last Resort": {0x5B57}}
    entries = [FontEntry(fname=f"{name}.ttf", name=name, weight=400) for name in faces]
    monkeypatch.setattr(fontManager, "ttflist", [*fontManager.ttflist[:0], *entries])
    monkeypatch.setattr(theme, "_characters", lambda entry: frozenset(faces[entry.name]))
    monkeypatch.setattr(theme, "_installed", lambda: ())
    assert families_for("猫") == [FIRST, "Noto Sans CJK SC"]  # preferred to Alpha
    assert families_for("猫🦊") == [FIRST, "Noto Sans CJK SC", "Beta"]
    assert families_for("字") == [FIRST]  # a font of boxes is none


def test_fonts_installed_after_matplotlib_made_its_list_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = FontEntry(fname="fresh.ttf", name="Fresh", weight=400)
    monkeypatch.setattr(fontManager, "ttflist", [])
    monkeypatch.setattr(fontManager, "addfont", lambda path: fontManager.ttflist.append(fresh))
    monkeypatch.setattr(theme, "_installed", lambda: (__file__,))
    monkeypatch.setattr(theme, "_characters", lambda entry: frozenset({0x732B}))
    assert families_for("猫") == [FIRST, "Fresh"]


def test_a_chinese_label_is_drawn_where_there_is_a_font(recwarn: pytest.WarningsRecorder) -> None:
    from regard.inspection.records import Grid
    from regard.plot.figure import figure_bytes
    from regard.plot.render import draw

    if families_for("猫") == [FIRST]:
        pytest.skip("no installed font has Chinese characters (such as Debian's fonts-noto-cjk)")
    for form in ("png", "pdf"):
        assert figure_bytes(draw(Grid([[1.0]], ["猫"], ["日本語"])), form)
    assert not [warning for warning in recwarn if "in no installed font" in str(warning.message)]
