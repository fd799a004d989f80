"""Text as a terminal shows it: how many columns it takes, and nothing in it that a terminal would obey.

Labels are tokens of documents nobody has read, so every string passes `visible` before it is drawn.
"""

import re
import unicodedata

# Hangul vowels and final consonants join the syllable before them; unicodedata calls them neutral, one column wide.
_JOINING_JAMO = range(0x1160, 0x1200)
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)
_SKIN_TONES = range(0x1F3FB, 0x1F400)


def visible(text: str, *, ascii_only: bool = False) -> str:
    r"""The same text with everything unprintable spelled out: a line break becomes `\n`, an escape `\x1b`.

    Spelled out too: characters that reorder or join their neighbors, and those whose width terminals disagree on.
    Variation selectors are left out. A mark that would land on whatever stands before the text gets a carrier.
    """
    shown = ""
    for character in text:
        if ord(character) in _VARIATION_SELECTORS:
            continue
        hidden = not character.isprintable() or ord(character) in _SKIN_TONES
        if hidden or (ascii_only and not character.isascii()):
            character = character.encode("unicode_escape").decode("ascii")
        shown += character
    if shown and _is_joining(shown[0]):
        shown = "\N{DOTTED CIRCLE}" + shown
    return shown


def json_shown(text: str) -> str:
    r"""JSON that a terminal does not obey: DEL and the controls of ISO 6429 as `\u009b`, which means the same there."""
    return re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _is_joining(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me") or ord(character) in _JOINING_JAMO


def display_width(text: str) -> int:
    """Columns that `text` takes in a terminal: two for East Asian wide characters and emoji, none for marks."""
    if text.isascii():
        return len(text)
    single = [character for character in text if not _is_joining(character)]
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in single)


def clusters(text: str) -> list[str]:
    """The text cut into characters, each with the marks that sit on it."""
    characters: list[str] = []
    for character in text:
        if characters and _is_joining(character):
            characters[-1] += character
        else:
            characters.append(character)
    return characters


def fit(text: str, width: int) -> str:
    """The text itself if it fits, else its beginning and `…`."""
    if display_width(text) <= width:
        return text
    if width <= 0:
        return ""
    start = ""
    for cluster in clusters(text):
        if display_width(start + cluster) > width - 1:
            break
        start += cluster
    return start + "…"


def left(text: str, width: int) -> str:
    """The text in exactly `width` columns, starting at the left."""
    text = fit(text, width)
    return text + " " * (width - display_width(text))


def right(text: str, width: int) -> str:
    """The text in exactly `width` columns, ending at the right."""
    text = fit(text, width)
    return " " * (width - display_width(text)) + text


def center(text: str, width: int) -> str:
    """The text in exactly `width` columns, in the middle; an odd space goes to the left."""
    text = fit(text, width)
    space = width - display_width(text)
    return " " * (space - space // 2) + text + " " * (space // 2)


def wrap(text: str, width: int) -> list[str]:
    """The words of `text` in lines of at most `width` columns; a longer word is cut."""
    lines: list[str] = []
    for word in text.split():
        word = fit(word, width)
        if lines and display_width(lines[-1]) + 1 + display_width(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines
