"""Sentences in which one word has one of two senses, and the words of each that tell which."""

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

MARKS = re.compile(r"\[(?P<word>[^\]]+)\]|\*(?P<cue>[^*]+)\*")
Span = tuple[int, int]


@dataclass(frozen=True)
class Sentence:
    """A text, the place of its ambiguous word, and those of the cues, the words that tell the sense (in characters)."""

    word: str
    sense: str
    text: str
    at: Span
    cues: tuple[Span, ...]


def parsed(line: str) -> Sentence:
    """A line `word | sense | text`, the word in [brackets] and its cues in *stars*."""
    fields = line.split(" | ")
    if len(fields) != 3:
        raise ValueError(f"a line is 'word | sense | text', got {line!r}")
    word, sense, marked = fields
    text, end = "", 0
    places: dict[str, list[Span]] = {"word": [], "cue": []}
    for found in MARKS.finditer(marked):
        text += marked[end : found.start()]
        kind = found.lastgroup
        assert kind is not None
        places[kind].append((len(text), len(text) + len(found[kind])))
        text, end = text + found[kind], found.end()
    text += marked[end:]
    if [text[slice(*span)].lower() for span in places["word"]] != [word] or not places["cue"]:
        raise ValueError(f"a text has [{word}] once, and at least one *cue*, got {marked!r}")
    return Sentence(word, sense, text, places["word"][0], tuple(places["cue"]))


@cache
def sentences() -> tuple[Sentence, ...]:
    """All sentences of the package, word by word and sense by sense."""
    text = (resources.files("regard.lab.context") / "senses.txt").read_text(encoding="utf-8")
    return tuple(parsed(line) for line in text.splitlines() if line and not line.startswith("#"))


def words(chosen: tuple[Sentence, ...]) -> tuple[str, ...]:
    """The ambiguous words, in order."""
    return tuple(dict.fromkeys(each.word for each in chosen))
