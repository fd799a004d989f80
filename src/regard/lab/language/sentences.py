"""Sentences with known relations between their words, and the weights that a real model gives from one word to others.

Subjects and verbs: sentences made of the words of the lab's grammar, with a second noun beside the subject. In half of
them the second noun stands between the subject and the verb ("the king behind the doors sleeps"), in the other half
before the subject ("behind the doors the king sleeps"), so that neither the first noun nor the nearest one is a good
guess. The two nouns differ in number, and the verb agrees with its subject alone.

Synonyms: pairs of a committed list, each in two sentences; the same sentence with an unrelated word in the place of the
synonym is the control.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import torch
from torch import Tensor

from regard.inspection.capture import capture
from regard.lab.translation.lexicon import ACTING_ON, ANIMALS, BEFORE, PERSONS, PLACES, STAYING, Noun

BATCH = 64  # sentences that are read at once
CONDITIONS = ("synonym", "same word", "related", "unrelated")
PREPOSITIONS = ("behind", "under", "near", "beside", "in front of")


@dataclass(frozen=True)
class VerbSentence:
    """Words, and the places of the verb, its subject and the other noun."""

    words: tuple[str, ...]
    verb: int
    subject: int
    other: int

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{' '.join(self.words).capitalize()}."

    @property
    def first_noun(self) -> int:
        """The place of the noun that comes first."""
        return min(self.subject, self.other)

    @property
    def nearest_noun(self) -> int:
        """The place of the noun nearest to the verb, which is the last one before it."""
        return max(self.subject, self.other)


def verb_sentences(count: int, seed: int) -> tuple[VerbSentence, ...]:
    """Sentences at random, half of them with the other noun between subject and verb."""
    chance = random.Random(seed)
    forms = (_behind, _before, _that, _before)
    return tuple(forms[number % len(forms)](chance) for number in range(count))


def _phrase(chance: random.Random, nouns: Sequence[Noun], plural: bool) -> list[str]:
    adjectives = [chance.choice(BEFORE).english] if chance.random() < 0.5 else []
    return ["the", *adjectives, chance.choice(nouns).english[plural]]


def _parts(chance: random.Random, others: Sequence[Noun]) -> tuple[list[str], list[str], str, bool]:
    """Subject, other noun, verb, and whether the subject is plural; the other noun then is not."""
    plural = chance.random() < 0.5
    subject, other = _phrase(chance, ANIMALS + PERSONS, plural), _phrase(chance, others, not plural)
    return subject, other, chance.choice(STAYING).english[plural], plural


def _behind(chance: random.Random) -> VerbSentence:
    """The king behind the old doors sleeps."""
    subject, other, verb, _ = _parts(chance, PLACES)
    words = [*subject, *chance.choice(PREPOSITIONS).split(), *other]
    return VerbSentence((*words, verb), len(words), len(subject) - 1, len(words) - 1)


def _before(chance: random.Random) -> VerbSentence:
    """Behind the old doors the king sleeps."""
    subject, other, verb, _ = _parts(chance, PLACES)
    first = [*chance.choice(PREPOSITIONS).split(), *other]
    words = [*first, *subject]
    return VerbSentence((*words, verb), len(words), len(words) - 1, len(first) - 1)


def _that(chance: random.Random) -> VerbSentence:
    """The king that the old nurses see sleeps."""
    subject, other, verb, plural = _parts(chance, PERSONS)
    seen = chance.choice([each for each in ACTING_ON if not each.particle]).english[not plural]
    words = [*subject, "that", *other, seen]
    return VerbSentence((*words, verb), len(words), len(subject) - 1, len(words) - 2)


@dataclass(frozen=True)
class Synonyms:
    """Two words that mean nearly the same, two controls, and sentences with two places for them."""

    word: str
    synonym: str
    related: str
    unrelated: str
    frames: tuple[str, ...]

    def first_word(self, condition: str) -> str:
        """What stands in the first place; in the second one stands the synonym."""
        return {
            "synonym": self.word,
            "same word": self.synonym,
            "related": self.related,
            "unrelated": self.unrelated,
        }[condition]

    def texts(self, condition: str) -> list[str]:
        """The sentences with a word in the first place."""
        return [frame.format(self.first_word(condition), self.synonym) for frame in self.frames]


@cache
def synonyms() -> tuple[Synonyms, ...]:
    """The committed list."""
    text = (resources.files("regard.lab.language") / "synonyms.txt").read_text(encoding="utf-8")
    pairs: list[Synonyms] = []
    frames: list[str] = []
    used = False
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("= "):
            frames, used = ([] if used else frames) + [line.removeprefix("= ")], False
            continue
        if len(words := line.split(" | ")) != 4 or len(set(words)) != 4:
            raise ValueError(f"a line is 'word | synonym | related | unrelated', got {line!r}")
        word, synonym, related, unrelated = words
        pairs.append(Synonyms(word, synonym, related, unrelated, tuple(frames)))
        used = True
    return tuple(pairs)


def spans(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Where the words stand in a text, in order, in characters."""
    places, start = [], 0
    for word in words:
        found = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE).search(text, start)
        if found is None:
            raise ValueError(f"{text!r} has no {word!r} after {start} characters")
        places.append(found.span())
        start = found.end()
    return places


@torch.no_grad()
def word_weights(model: Any, texts: Sequence[str], words: Sequence[Sequence[str]], queries: Sequence[int]) -> Tensor:
    """(text, layer, head, word): the weight of a text's query word on each of its words, 0 where there is none.

    A word of several tokens looks with its last one, and what its tokens receive is added up.
    """
    rows = []
    for first in range(0, len(texts), BATCH):
        part = slice(first, first + BATCH)
        batch = model.text_input(list(texts[part]))
        captured = capture(model, *batch.inputs, **batch.keywords)
        layers = torch.stack([layer.dense() for layer in captured], 1)  # (text, layer, head, query, key)
        for maps, text, listed, query in zip(layers, texts[part], words[part], queries[part], strict=True):
            tokens = _tokens(model.tokenizer.encode(text), spans(text, listed))
            from_query = maps[:, :, tokens[query][-1]]
            rows.append(torch.stack([from_query[..., those].sum(-1) for those in tokens], -1))
    longest = max(row.shape[-1] for row in rows)
    return torch.stack([torch.nn.functional.pad(row, (0, longest - row.shape[-1])) for row in rows]).double()


def _tokens(encoding: Any, places: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The tokens of each word."""
    listed = []
    for place in places:
        tokens = {encoding.char_to_token(character) for character in range(*place)}
        listed.append(sorted(token for token in tokens if token is not None))
    return listed
