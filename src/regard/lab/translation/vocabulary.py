"""Words as numbers: every word of the lexicon, and padding, start and end."""

import torch
from torch import Tensor

from regard.lab.translation.grammar import Pair
from regard.lab.translation.lexicon import (
    ACTING_ON,
    ANIMALS,
    BEFORE,
    COLORS,
    DETERMINERS,
    MANNERS,
    PERSONS,
    PLACES,
    STAYING,
    WHERE,
)

PAD, START, END = 0, 1, 2
SPECIAL = ("·", "<start>", "<end>")


def _listed(*words: str) -> tuple[str, ...]:
    """The words of all these strings, each once, in order."""
    return (*SPECIAL, *dict.fromkeys(" ".join(words).split()))


_NOUNS = ANIMALS + PERSONS + PLACES
_ADJECTIVES = BEFORE + COLORS + MANNERS
_VERBS = STAYING + ACTING_ON

ENGLISH = _listed(
    "an do does not",
    *(forms[0] for forms in DETERMINERS),
    *(word for noun in _NOUNS for word in noun.english),
    *(adjective.english for adjective in _ADJECTIVES),
    *(f"{' '.join(verb.english)} {verb.particle}" for verb in _VERBS),
    *(english for english, _ in WHERE),
)

FRENCH = _listed(
    "ne n' pas bien",
    *(word for forms in DETERMINERS for word in forms[1:]),
    *(word for noun in _NOUNS for word in noun.french),
    *(word for adjective in _ADJECTIVES for word in adjective.forms),
    *(word for verb in _VERBS for word in (*verb.french, *verb.participle)),
    *(french for _, french in WHERE),
)

_ENGLISH_PLACES = {word: place for place, word in enumerate(ENGLISH)}
_FRENCH_PLACES = {word: place for place, word in enumerate(FRENCH)}


def sources(pairs: list[Pair]) -> Tensor:
    """English words as numbers, (sentence, word), padded on the right."""
    return _padded([[_ENGLISH_PLACES[word] for word in pair.english] for pair in pairs])


def targets(pairs: list[Pair]) -> Tensor:
    """French words as numbers between a start and an end, (sentence, word), padded on the right."""
    return _padded([[START, *(_FRENCH_PLACES[word] for word in pair.french), END] for pair in pairs])


def written(row: list[int]) -> tuple[str, ...]:
    """The French words of a row of numbers, up to its end."""
    row = row[: row.index(END)] if END in row else row
    return tuple(FRENCH[number] for number in row)


def _padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
