"""Sentences that are looked at: the seed's, and a harder one. Neither is ever trained on."""

from regard.lab.translation.grammar import Mood, NounPhrase, Pair, Sentence
from regard.lab.translation.lexicon import AFTER, ANIMALS, BEFORE, DETERMINERS, PERSONS, PLACES, STAYING, WHERE

THE = [forms[0] for forms in DETERMINERS].index("the")
_NOUNS = {noun.english[0]: noun for noun in ANIMALS + PERSONS + PLACES}
_VERBS = {verb.english[0]: verb for verb in STAYING}
_WHERE = {where[0]: where for where in WHERE}


def cat() -> Pair:
    """The cat sits on the mat."""
    subject, place = (NounPhrase(_NOUNS[noun], False, THE) for noun in ("cat", "mat"))
    return Sentence(subject, _VERBS["sits"], Mood.PLAIN, _WHERE["on"], place).pair()


def friends() -> Sentence:
    """The young curious friends do not lie in front of the tree: denial, a verb of two words, an adjective on either
    side of its noun, three words that become one, and an elision."""
    (young,) = (each for each in BEFORE if each.english == "young")
    (curious,) = (each for each in AFTER["person"] if each.english == "curious")
    subject = NounPhrase(_NOUNS["friend"], True, THE, young, curious)
    return Sentence(subject, _VERBS["lies"], Mood.DENIED, _WHERE["in front of"], NounPhrase(_NOUNS["tree"], False, THE))


def labels(pair: Pair) -> tuple[list[str], list[str]]:
    """English and French words as they are written: the first with a capital."""
    english, french = ([words[0].capitalize(), *words[1:]] for words in (pair.english, pair.french))
    return english, french
