"""Sentences of the grammar in both languages, with the words that belong together.

French is not English word by word: adjectives of color follow their noun, everything agrees in gender and number,
le and ne elide before a vowel, "sits" takes two words (est assis), "not" stands on both sides of the verb (ne … pas),
"does" alone is stress (does see: voit bien), and "looks at" or "in front of" shrink to one. Words are lower case; an
elided word is a word of its own (l' arbre).

Sentences are drawn at random. Held out from training is what happens between whom: a tenth of all combinations of
subject, verb and other noun, so that a test sentence differs in more than an article or a color. At the end of the file
are two example sentences that are never trained on, and the words as numbers for a model.
"""

import random
import zlib
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from regard.lab.translation.lexicon import (
    ACTING_ON,
    AFTER,
    ANIMALS,
    BEFORE,
    COLORS,
    DETERMINERS,
    MANNERS,
    PERSONS,
    PLACES,
    STAYING,
    WHERE,
    Adjective,
    Noun,
    Verb,
    elides,
)

Link = tuple[int, int]  # places of a French word and of an English word
ACTING = ANIMALS + PERSONS
SINGULAR, PLURAL = ([place for place, forms in enumerate(DETERMINERS) if forms[column]] for column in (1, -1))
SHOWN = "cat sits mat"  # the seed's sentence; kept from training whatever its number, colors and articles
EVERY = 10  # one of so many combinations is held out
DESCRIBED, STAYS = 0.35, 0.6  # how often
THE = [forms[0] for forms in DETERMINERS].index("the")
_NOUN = {noun.english[0]: noun for noun in ANIMALS + PERSONS + PLACES}
_VERB = {verb.english[0]: verb for verb in STAYING}
_PREPOSITION = {where[0]: where for where in WHERE}
PAD, START, END = 0, 1, 2
SPECIAL = ("·", "<start>", "<end>")
_NOUNS = ANIMALS + PERSONS + PLACES
_ADJECTIVES = BEFORE + COLORS + MANNERS
_VERBS = STAYING + ACTING_ON


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages and its alignment, as (French place, English place).

    `sure` holds one link for each French word. `possible` holds those and the links to the other words of an English
    expression that is one word in French: "at" of "looks at".
    """

    english: tuple[str, ...]
    french: tuple[str, ...]
    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner (an index of DETERMINERS), and an adjective on either side of the French noun."""

    noun: Noun
    plural: bool
    determiner: int
    before: Adjective | None = None
    after: Adjective | None = None

    def english(self) -> list[str]:
        """Determiner, adjectives, noun."""
        words = [each.english for each in (self.before, self.after) if each is not None]
        words.append(self.noun.english[self.plural])
        determiner = DETERMINERS[self.determiner][0]
        return ["an" if determiner == "a" and words[0][0] in "aeiou" else determiner, *words]

    def french(self) -> list[tuple[str, int]]:
        """Words, each with the place of its English word in `english()`."""
        last = len(self.english()) - 1
        noun, feminine = self.noun.french[self.plural], self.noun.feminine
        words = [(noun, last)]
        if self.before is not None:
            words.insert(0, (self.before.agree(feminine, self.plural, elides(noun)), 1))
        if self.after is not None:
            words.append((self.after.agree(feminine, self.plural, False), last - 1))
        return [(self._determiner(words[0][0]), 0), *words]

    def _determiner(self, following: str) -> str:
        _, masculine, feminine, vowel, feminine_vowel, plural = DETERMINERS[self.determiner]
        if self.plural:
            return plural
        if elides(following):
            return feminine_vowel if self.noun.feminine else vowel
        return feminine if self.noun.feminine else masculine


class Mood(Enum):
    """How a thing is said: sits, does not sit, does sit."""

    PLAIN = "sits"
    DENIED = "does not sit"
    STRESSED = "does sit"


@dataclass(frozen=True)
class Sentence:
    """Someone does something to another, or somewhere: `where` is a preposition in both languages, or None."""

    subject: NounPhrase
    verb: Verb
    mood: Mood
    where: tuple[str, str] | None
    other: NounPhrase

    def content(self) -> str:
        """What happens between whom, whatever their number, color, article and mood: "cat sits mat"."""
        verb = f"{self.verb.english[0]} {self.verb.particle}".strip()
        return f"{self.subject.noun.english[0]} {verb} {self.other.noun.english[0]}"

    def pair(self) -> Pair:
        """The sentence in both languages with its alignment."""
        pair = _Builder()
        pair.noun_phrase(self.subject)
        self._predicate(pair)
        if self.where is not None:
            pair.expression(*self.where)
        pair.noun_phrase(self.other)
        return pair.done()

    def _predicate(self, pair: "_Builder") -> None:
        plural, mood = self.subject.plural, self.mood
        helper = ["do" if plural else "does"] if mood is not Mood.PLAIN else []
        helper += ["not"] if mood is Mood.DENIED else []
        start = pair.source([*helper, self.verb.english[plural or bool(helper)]])
        verb, last = start + len(helper), start + len(helper) - 1
        particle = [pair.source([self.verb.particle])] if self.verb.particle else []
        finite = self.verb.french[plural].split()
        if mood is Mood.DENIED:
            pair.target("n'" if elides(finite[0]) else "ne", last)
        for word in finite:
            pair.target(word, verb, particle)
        if mood is not Mood.PLAIN:
            pair.target("pas" if mood is Mood.DENIED else "bien", last)
        if forms := self.verb.participle:
            agreed = forms[2 * plural + self.subject.noun.feminine] if len(forms) > 1 else forms[0]
            pair.target(agreed, verb)


class _Builder:
    """Collects words and links."""

    def __init__(self) -> None:
        self._english: list[str] = []
        self._french: list[str] = []
        self._sure: set[Link] = set()
        self._possible: set[Link] = set()

    def source(self, words: list[str]) -> int:
        """Add English words; where the first of them stands."""
        self._english += words
        return len(self._english) - len(words)

    def target(self, word: str, sure: int, possible: list[int] | None = None) -> None:
        """Add a French word and where it comes from."""
        self._sure.add((len(self._french), sure))
        self._possible |= {(len(self._french), place) for place in (sure, *(possible or []))}
        self._french.append(word)

    def noun_phrase(self, phrase: NounPhrase) -> None:
        """Add a noun phrase to both sides."""
        start = self.source(phrase.english())
        for word, place in phrase.french():
            self.target(word, start + place)

    def expression(self, english: str, french: str) -> None:
        """Add English words that are one French word; the link to the longest of them is sure."""
        words = english.split()
        start = self.source(words)
        longest = max(range(len(words)), key=lambda place: len(words[place]))
        self.target(french, start + longest, list(range(start, start + len(words))))

    def done(self) -> Pair:
        """What was collected."""
        return Pair(tuple(self._english), tuple(self._french), frozenset(self._sure), frozenset(self._possible))


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
    """`count` sentences, for the test (`unseen`) or for training."""
    chance = random.Random(f"{seed} {'unseen' if unseen else 'seen'}")
    pairs: list[Pair] = []
    while len(pairs) < count:
        sentence = draw(chance)
        if held_out(sentence) == unseen:
            pairs.append(sentence.pair())
    return pairs


def possible() -> int:
    """How many sentences the grammar makes."""
    acting, places = _phrases(ACTING), _phrases(PLACES)
    where, what = len(STAYING) * len(WHERE) * places, len(ACTING_ON) * (acting + places)
    return len(Mood) * acting * (where + what)


def _phrases(nouns: tuple[Noun, ...]) -> int:
    determiners = len(SINGULAR) + len(PLURAL)
    return sum(determiners * (len(BEFORE) + 1) * (len(AFTER[noun.kind]) + 1) for noun in nouns)


def cat() -> Pair:
    """The cat sits on the mat."""
    subject, place = (NounPhrase(_NOUN[noun], False, THE) for noun in ("cat", "mat"))
    return Sentence(subject, _VERB["sits"], Mood.PLAIN, _PREPOSITION["on"], place).pair()


def friends() -> Sentence:
    """The young curious friends do not lie in front of the tree: denial, a verb of two words, an adjective on either
    side of its noun, three words that become one, and an elision."""
    (young,) = (each for each in BEFORE if each.english == "young")
    (curious,) = (each for each in AFTER["person"] if each.english == "curious")
    subject = NounPhrase(_NOUN["friend"], True, THE, young, curious)
    return Sentence(
        subject, _VERB["lies"], Mood.DENIED, _PREPOSITION["in front of"], NounPhrase(_NOUN["tree"], False, THE)
    )


def labels(pair: Pair) -> tuple[list[str], list[str]]:
    """English and French words as they are written: the first with a capital."""
    english, french = ([words[0].capitalize(), *words[1:]] for words in (pair.english, pair.french))
    return english, french


def _listed(*words: str) -> tuple[str, ...]:
    """The words of all these strings, each once, in order."""
    return (*SPECIAL, *dict.fromkeys(" ".join(words).split()))


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
