"""Sentences that are looked at: the seed's, and a harder one. Neither is ever trained on."""

from functools import cache
from itertools import count
from random import Random

from regard.lab.translation.corpus import draw, held_out
from regard.lab.translation.grammar import NounPhrase, Pair, Sentence
from regard.lab.translation.lexicon import ANIMALS, PLACES, STAYING, WHERE


def cat() -> Pair:
    """The cat sits on the mat."""
    (subject,) = (noun for noun in ANIMALS if noun.english[0] == "cat")
    (place,) = (noun for noun in PLACES if noun.english[0] == "mat")
    (verb,) = (verb for verb in STAYING if verb.english[0] == "sits")
    (where,) = (where for where in WHERE if where[0] == "on")
    return Sentence(NounPhrase(subject, False, 0), verb, False, where, NounPhrase(place, False, 0)).pair()


@cache
def harder() -> Pair:
    """The first unseen sentence that has it all: denial, a verb of two words, adjectives on both sides, an elision."""
    chance = Random(0)
    for _ in count():
        sentence = draw(chance)
        pair = sentence.pair()
        both = sentence.subject.before is not None and sentence.subject.after is not None
        if held_out(sentence) and sentence.negated and sentence.verb.participle and both and "l'" in pair.french:
            return pair
    raise AssertionError("a grammar without such a sentence")


def labels(pair: Pair) -> tuple[list[str], list[str]]:
    """English and French words as they are written: the first with a capital."""
    english, french = ([words[0].capitalize(), *words[1:]] for words in (pair.english, pair.french))
    return english, french
