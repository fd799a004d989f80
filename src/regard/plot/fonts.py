"""Fonts for labels in any script: those installed that have the characters. Imported when the first figure is drawn."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from matplotlib.font_manager import FontEntry, findSystemFonts, fontManager
from matplotlib.ft2font import FT2Font

FIRST = "DejaVu Sans"  # comes with matplotlib
# where several fonts have a character, these are asked in this order; any other comes after them
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
    missing -= _of_family(FIRST)
    if missing:
        chosen += _found(missing)
    if missing and _learn_new_fonts():
        chosen += [family for family in _found(missing) if family not in chosen]
    return chosen


def _found(missing: set[int]) -> list[str]:
    """Families that have some of the characters; those they have are taken out of `missing`."""
    installed = sorted({entry.name for entry in fontManager.ttflist if _usable(entry.name)})
    ordered = [name for name in _PREFERRED if name in installed]
    chosen: list[str] = []
    for family in [*ordered, *(name for name in installed if name not in ordered)]:
        if not missing:
            break
        if missing & (covered := _of_family(family)):
            chosen.append(family)
            missing -= covered
    return chosen


def _usable(name: str) -> bool:
    return not any(part in name.lower() for part in _UNUSABLE)


def _of_family(family: str) -> frozenset[int]:
    """What the face has that a plain text of the family is drawn with."""
    entries = [entry for entry in fontManager.ttflist if entry.name == family]
    plain = [entry for entry in entries if entry.style == "normal" and entry.weight in (400, "normal", "regular")]
    return _characters((plain or entries)[0]) if entries else frozenset()


@cache
def _characters(entry: FontEntry) -> frozenset[int]:
    number = getattr(entry, "index", 0)  # of a face in a collection, from matplotlib 3.11 on
    try:
        font = FT2Font(entry.fname, face_index=number) if number else FT2Font(entry.fname)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(font.get_charmap())


def _learn_new_fonts() -> bool:
    """Tell matplotlib, whose list is made once, of fonts that were installed since; whether there were any."""
    known = {entry.fname for entry in fontManager.ttflist}
    new = [path for path in _installed() if path not in known and Path(path).is_file()]
    for path in new:
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError):
            continue  # not a font that matplotlib can read
    return bool(new)


@cache
def _installed() -> tuple[str, ...]:
    return tuple(sorted(findSystemFonts()))
