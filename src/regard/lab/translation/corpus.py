"""Sentences drawn at random, and which of them no model may learn from.

Held out is what happens between whom: a tenth of all combinations of subject, verb and other noun. A sentence of the
test differs from every sentence of the training in at least that, not just in an article or a color.
"""

import random
import zlib

from regard.lab.translation.grammar import Mood, NounPhrase, Pair, Sentence
from regard.lab.translation.lexicon import (
    ACTING_ON,
    AFTER,
    ANIMALS,
    BEFORE,
    DETERMINERS,
    PERSONS,
    PLACES,
    STAYING,
    WHERE,
    Noun,
)

ACTING = ANIMALS + PERSONS
SINGULAR, PLURAL = ([place for place, forms in enumerate(DETERMINERS) if forms[column]] for column in (1, -1))

SHOWN = "cat sits mat"  # the seed's sentence; kept from training whatever its number, colors and articles
EVERY = 10  # one of so many combinations is held out
DESCRIBED, STAYS = 0.35, 0.6  # how often
MOODS = {Mood.PLAIN: 0.5, Mood.DENIED: 0.3, Mood.STRESSED: 0.2}


def held_out(sentence: Sentence) -> bool:
    """Whether a sentence is for the test alone."""
    content = sentence.content()
    return content == SHOWN or zlib.crc32(content.encode()) % EVERY == 0


def draw(chance: random.Random) -> Sentence:
    """A sentence, whether held out or not."""
    subject = _noun_phrase(chance, ACTING)
    (mood,) = chance.choices(list(MOODS), list(MOODS.values()))
    if chance.random() < STAYS:
        return Sentence(subject, chance.choice(STAYING), mood, chance.choice(WHERE), _noun_phrase(chance, PLACES))
    return Sentence(subject, chance.choice(ACTING_ON), mood, None, _noun_phrase(chance, ACTING + PLACES))


def _noun_phrase(chance: random.Random, nouns: tuple[Noun, ...]) -> NounPhrase:
    noun, plural = chance.choice(nouns), chance.random() < 0.5
    before = chance.choice(BEFORE) if chance.random() < DESCRIBED else None
    after = chance.choice(AFTER[noun.kind]) if chance.random() < DESCRIBED else None
    return NounPhrase(noun, plural, chance.choice(PLURAL if plural else SINGULAR), before, after)


def sentences(count: int, seed: int, *, unseen: bool) -> list[Pair]:
    """So many sentences, for the test (`unseen`) or for training."""
    chance = random.Random(f"{seed} {'unseen' if unseen else 'seen'}")
    found: list[Pair] = []
    while len(found) < count:
        sentence = draw(chance)
        if held_out(sentence) == unseen:
            found.append(sentence.pair())
    return found


def possible() -> int:
    """How many sentences the grammar makes."""
    acting, places = _phrases(ACTING), _phrases(PLACES)
    where, what = len(STAYING) * len(WHERE) * places, len(ACTING_ON) * (acting + places)
    return len(Mood) * acting * (where + what)


def _phrases(nouns: tuple[Noun, ...]) -> int:
    determiners = len(SINGULAR) + len(PLURAL)
    return sum(determiners * (len(BEFORE) + 1) * (len(AFTER[noun.kind]) + 1) for noun in nouns)
