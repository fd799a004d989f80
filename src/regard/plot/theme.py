"""The color ramp of heatmaps, colors and signs of series, how many colors a terminal shows, and fonts for any script.

Colors survive print, color blindness and both kinds of terminal.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from enum import Enum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.font_manager import FontEntry

RGB = tuple[int, int, int]

# Even steps of lightness in OKLab from pale yellow over green to indigo. Lightness alone carries the order, so it
# holds without hue; the dark end stays clear of black, which is what a hidden pair looks like on a dark terminal.
RAMP: tuple[RGB, ...] = (
    (250, 249, 222),
    (210, 229, 179),
    (153, 212, 164),
    (94, 190, 172),
    (48, 163, 174),
    (1, 133, 176),
    (22, 101, 169),
    (30, 71, 152),
    (34, 43, 127),
)

# The same way through the 216 colors of the cube, in steps that a rounded RAMP would take back and forth.
_PALETTE_RAMP: tuple[RGB, ...] = (
    (255, 255, 215),
    (215, 255, 175),
    (135, 215, 175),
    (95, 175, 175),
    (0, 135, 175),
    (0, 95, 175),
    (0, 0, 175),
)

# Okabe and Ito's set without yellow and black, each of which vanishes on one kind of background.
SERIES: tuple[RGB, ...] = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (213, 94, 0),
    (204, 121, 167),
    (86, 180, 233),
    (128, 128, 128),
)

# Of the lines of many heads: the same, then colors between them that differ on both backgrounds.
HEADS: tuple[RGB, ...] = (*SERIES, (140, 107, 209), (170, 155, 0), (176, 113, 58), (47, 184, 172), (224, 69, 123))

# From negative over zero to positive: even steps of lightness on both sides, blue against orange for every eye.
DIVERGING: tuple[RGB, ...] = (
    (20, 60, 130),
    (40, 104, 178),
    (98, 155, 212),
    (168, 203, 234),
    (245, 245, 242),
    (247, 200, 150),
    (231, 148, 74),
    (196, 94, 22),
    (130, 54, 6),
)

_PALETTE_DIVERGING: tuple[RGB, ...] = (
    (0, 0, 135),
    (0, 95, 175),
    (95, 135, 215),
    (175, 215, 255),
    (238, 238, 238),
    (255, 215, 175),
    (215, 135, 95),
    (175, 95, 0),
    (135, 0, 0),
)

# What a reader should see first: apart from every color of RAMP in hue and, at both ends, in lightness.
MARK: RGB = (213, 94, 0)
_MARKERS = "●▲■◆○△□"
_FILLS = "█▒░▓"
_PLAIN_MARKERS = "ox+*#@%"
_PLAIN_FILLS = "#=-+"


class Depth(Enum):
    """What a terminal can show, from most to least."""

    TRUECOLOR = "truecolor"
    PALETTE = "256"
    SHADE = "shade"
    PLAIN = "plain"

    @property
    def colored(self) -> bool:
        """Whether cells have a color, rather than a shade character or only a number."""
        return self in (Depth.TRUECOLOR, Depth.PALETTE)


def color_depth(color: str, environment: Mapping[str, str] | None = None, stream: TextIO | None = None) -> Depth:
    """What `color` asks for; "auto" asks the environment and the stream (standard output)."""
    if color != "auto":
        try:
            return Depth(color)
        except ValueError:
            allowed = ", ".join(["auto", *(each.value for each in Depth)])
            raise ValueError(f"color is one of {allowed}; got {color!r}") from None
    environment = os.environ if environment is None else environment
    stream = sys.stdout if stream is None else stream
    if not _encodes_shades(stream):
        return Depth.PLAIN
    terminal = environment.get("TERM", "")
    if environment.get("NO_COLOR") or terminal == "dumb" or not stream.isatty():
        return Depth.SHADE
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit") or terminal.endswith("-direct"):
        return Depth.TRUECOLOR
    if "WT_SESSION" in environment:  # Windows Terminal sets nothing else
        return Depth.TRUECOLOR
    return Depth.PALETTE if "256" in terminal else Depth.SHADE


def _encodes_shades(stream: TextIO) -> bool:
    try:
        "░▒▓█⣿│…●".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError, AttributeError):
        return False
    return True


_COLORS: ContextVar[tuple[RGB, ...]] = ContextVar("colors", default=RAMP)
_SAMPLES = 33  # colors that stand for a colormap of matplotlib


@contextmanager
def colored(colormap: str | None) -> Iterator[None]:
    """Draw with the colors of a colormap of matplotlib in this block; None and "regard" are `RAMP`."""
    colors = RAMP if colormap in (None, "regard") else _sampled(str(colormap))
    token = _COLORS.set(colors)
    try:
        yield
    finally:
        _COLORS.reset(token)


@cache
def _sampled(name: str) -> tuple[RGB, ...]:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            f"the colormap {name!r} is one of matplotlib's: pip install regard[pictures], or take 'regard'"
        ) from error
    if name not in matplotlib.colormaps:
        near = get_close_matches(name, list(matplotlib.colormaps), 3) or ["viridis", "magma", "gray_r"]
        raise ValueError(
            f"there is no colormap {name!r}; take one of matplotlib's, such as {', '.join(near)}, or 'regard'"
        )
    chosen = matplotlib.colormaps[name]
    colors = (chosen(step / (_SAMPLES - 1)) for step in range(_SAMPLES))
    return tuple((round(255 * r), round(255 * g), round(255 * b)) for r, g, b, _ in colors)


def colors() -> tuple[RGB, ...]:
    """The colors from weak to strong that pictures are drawn with now."""
    return _COLORS.get()


def ramp(fraction: float, depth: Depth = Depth.TRUECOLOR, *, signed: bool = False) -> RGB:
    """The color at `fraction` of the way from weak (0) to strong (1), one of a few where colors are few.

    `signed`: from negative (0) over zero (1/2) to positive (1).
    """
    fraction = min(max(fraction, 0.0), 1.0)
    shown = DIVERGING if signed else colors()
    if depth is Depth.PALETTE and shown in (RAMP, DIVERGING):
        few = _PALETTE_DIVERGING if signed else _PALETTE_RAMP
        return few[round(fraction * (len(few) - 1))]
    place = fraction * (len(shown) - 1)
    step = min(int(place), len(shown) - 2)
    part = place - step
    r, g, b = (round(low + (high - low) * part) for low, high in zip(shown[step], shown[step + 1], strict=True))
    return r, g, b


def hex_color(color: RGB) -> str:
    """The color as "#rrggbb"."""
    return "#{:02x}{:02x}{:02x}".format(*color)


def colormap(signed: bool = False) -> "LinearSegmentedColormap":
    """The colors for matplotlib; `signed`, from negative to positive."""
    return _colormap(DIVERGING if signed else colors())


@cache
def _colormap(colors: tuple[RGB, ...]) -> "LinearSegmentedColormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("regard", [hex_color(color) for color in colors])


def readable_on(paper: RGB) -> RGB:
    """Black or white, whichever has the higher contrast on `paper`, as the web's contrast rules define it."""
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (part / 255 for part in paper))
    light = 0.2126 * r + 0.7152 * g + 0.0722 * b
    return (0, 0, 0) if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else (255, 255, 255)


def nearest_256(color: RGB) -> int:
    """The index of the closest color among the 216 of the cube and the 24 grays of a 256-color terminal."""
    levels = (0, 95, 135, 175, 215, 255)
    steps = [min(range(6), key=lambda step: abs(levels[step] - part)) for part in color]
    gray = min(max(round((sum(color) / 3 - 8) / 10), 0), 23)

    def distance(other: RGB) -> int:
        return sum((a - b) ** 2 for a, b in zip(color, other, strict=True))

    cube: RGB = (levels[steps[0]], levels[steps[1]], levels[steps[2]])
    shade = 8 + 10 * gray
    if distance((shade, shade, shade)) < distance(cube):
        return 232 + gray
    return 16 + 36 * steps[0] + 6 * steps[1] + steps[2]


def series_color(index: int) -> RGB:
    """The color of a series, the same in every picture."""
    return SERIES[index % len(SERIES)]


def marker(index: int, depth: Depth) -> str:
    """The sign of a curve, so that color is never the only difference."""
    signs = _PLAIN_MARKERS if depth is Depth.PLAIN else _MARKERS
    return signs[index % len(signs)]


def fill(index: int, depth: Depth) -> str:
    """What a bar is made of: whole blocks where there is color, else a pattern for each series."""
    signs = _PLAIN_FILLS if depth is Depth.PLAIN else _FILLS[:1] if depth.colored else _FILLS
    return signs[index % len(signs)]


def shading(depth: Depth) -> str:
    """What the interval of a curve is filled with."""
    return ":" if depth is Depth.PLAIN else "░"


FIRST = "DejaVu Sans"  # comes with matplotlib
# where several fonts have a character, the first of these is used, then any other
_PREFERRED = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP"),
    *("Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "Heiti TC", "Hiragino Sans"),
    *("Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "MS Gothic", "Malgun Gothic", "NanumGothic"),
    *("Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji"),
    *("Segoe UI Symbol", "Symbola", "Arial Unicode MS"),
)
_UNUSABLE = ("lastresort", "last resort", "notdef", "color emoji")  # boxes for everything, or bitmaps


def families_for(characters: Iterable[str]) -> list[str]:
    """The families that together have these characters, as far as any does, the first one first."""
    missing = {ord(character) for character in characters if not character.isspace()}
    chosen = [FIRST]
    missing -= _family_characters(FIRST)
    if missing:
        chosen += _covering(missing)
    if missing and _learn_new_fonts():
        chosen += [family for family in _covering(missing) if family not in chosen]
    return chosen


def _covering(missing: set[int]) -> list[str]:
    """Families that have some of the characters; those they have are taken out of `missing`."""
    from matplotlib.font_manager import fontManager

    names = {entry.name for entry in fontManager.ttflist}
    installed = sorted(name for name in names if not any(part in name.lower() for part in _UNUSABLE))
    ordered = [name for name in _PREFERRED if name in installed]
    chosen: list[str] = []
    for family in [*ordered, *(name for name in installed if name not in ordered)]:
        if not missing:
            break
        if missing & (covered := _family_characters(family)):
            chosen.append(family)
            missing -= covered
    return chosen


def _family_characters(family: str) -> frozenset[int]:
    """The characters of the regular face of a family."""
    from matplotlib.font_manager import fontManager

    entries = [entry for entry in fontManager.ttflist if entry.name == family]
    plain = [entry for entry in entries if entry.style == "normal" and entry.weight in (400, "normal", "regular")]
    return _characters((plain or entries)[0]) if entries else frozenset()


@cache
def _characters(entry: "FontEntry") -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    number = getattr(entry, "index", 0)  # of a face in a collection, from matplotlib 3.11 on
    try:
        font = FT2Font(entry.fname, face_index=number) if number else FT2Font(entry.fname)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(font.get_charmap())


def _learn_new_fonts() -> bool:
    """Add fonts that were installed since matplotlib made its list; returns whether there were any."""
    from matplotlib.font_manager import fontManager

    listed = {entry.fname for entry in fontManager.ttflist}
    new = [path for path in _installed() if path not in listed and Path(path).is_file()]
    for path in new:
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError):
            continue  # not a font that matplotlib can read
    return bool(new)


@cache
def _installed() -> tuple[str, ...]:
    """Fonts of the system, and of the package mplfonts, which has Chinese ones for those who may not install others."""
    from matplotlib.font_manager import findSystemFonts

    package = find_spec("mplfonts")
    folders = [] if package is None else list(package.submodule_search_locations or [])
    own = [str(font) for folder in folders for font in Path(folder, "fonts").glob("*.[ot]tf")]
    return tuple(sorted([*findSystemFonts(), *own]))
