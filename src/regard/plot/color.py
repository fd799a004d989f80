"""Colors that survive print, color blindness and both kinds of terminal, and how many of them a terminal shows."""

import os
import sys
from collections.abc import Mapping
from enum import Enum
from typing import TextIO

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


# What a reader should see first: apart from every color of RAMP in hue and, at both ends, in lightness.
MARK: RGB = (213, 94, 0)


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


def depth(color: str, environment: Mapping[str, str] | None = None, stream: TextIO | None = None) -> Depth:
    """What `color` asks for; "auto" asks the environment and the stream (standard output)."""
    if color != "auto":
        try:
            return Depth(color)
        except ValueError:
            known = ", ".join(["auto", *(each.value for each in Depth)])
            raise ValueError(f"color is one of {known}; got {color!r}") from None
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


def ramp(fraction: float, depth: Depth = Depth.TRUECOLOR) -> RGB:
    """The color at `fraction` of the way from weak (0) to strong (1), one of a few where colors are few."""
    fraction = min(max(fraction, 0.0), 1.0)
    if depth is Depth.PALETTE:
        return _PALETTE_RAMP[round(fraction * (len(_PALETTE_RAMP) - 1))]
    place = fraction * (len(RAMP) - 1)
    step = min(int(place), len(RAMP) - 2)
    part = place - step
    r, g, b = (round(low + (high - low) * part) for low, high in zip(RAMP[step], RAMP[step + 1], strict=True))
    return r, g, b


def luminance(color: RGB) -> float:
    """Relative luminance as the web's contrast rules define it: 0 for black, 1 for white."""
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (part / 255 for part in color))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def readable_on(paper: RGB) -> RGB:
    """Black or white, whichever has the higher contrast on `paper`."""
    light = luminance(paper)
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
