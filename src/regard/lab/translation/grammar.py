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
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.lab.translation import lexicon
from regard.lab.translation.lexicon import AFTER, BEFORE, DETERMINERS, PLACES, WHERE, Adjective, Noun, Verb, elides

Link = tuple[int, int]  # places of a French word and of an English word
ACTING = lexicon.ANIMALS + lexicon.PERSONS
SINGULAR, PLURAL = ([place for place, forms in enumerate(DETERMINERS) if forms[column]] for column in (1, -1))
THE = [forms[0] for forms in DETERMINERS].index("the")
EXAMPLE = "cat sits mat"  # the seed's sentence; held out from training whatever its number, colors and articles
EVERY = 10  # one of so many combinations is held out
DESCRIBED, STAYS = 0.35, 0.6  # how often
PAD, START, END = 0, 1, 2
SPECIAL = ("·", "<start>", "<end>")
_NOUNS = {noun.english[0]: noun for noun in ACTING + PLACES}
_ADJECTIVES = {adjective.english: adjective for adjective in BEFORE + lexicon.COLORS + lexicon.MANNERS}
_VERBS = lexicon.STAYING + lexicon.ACTING_ON


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
        forms = DETERMINERS[self.determiner]
        determiner = forms[5 if self.plural else 1 + 2 * elides(words[0][0]) + feminine]
        return [(determiner, 0), *words]


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
        pair = _PairBuilder()
        pair.noun_phrase(self.subject)
        self._predicate(pair)
        if self.where is not None:  # English words that are one French word; the link to the longest is sure
            words, french = self.where[0].split(), self.where[1]
            places = range(len(pair.english), len(pair.english) + len(words))
            pair.english += words
            pair.target(french, max(places, key=lambda place: len(pair.english[place])), places)
        pair.noun_phrase(self.other)
        return Pair(tuple(pair.english), tuple(pair.french), frozenset(pair.sure), frozenset(pair.possible))

    def _predicate(self, pair: "_PairBuilder") -> None:
        plural, mood = self.subject.plural, self.mood
        helper = ["do" if plural else "does"] if mood is not Mood.PLAIN else []
        helper += ["not"] if mood is Mood.DENIED else []
        verb = len(pair.english) + len(helper)
        particle = [self.verb.particle] if self.verb.particle else []
        pair.english += [*helper, self.verb.english[plural or bool(helper)], *particle]
        finite = self.verb.french[plural].split()
        if mood is Mood.DENIED:
            pair.target("n'" if elides(finite[0]) else "ne", verb - 1)
        for word in finite:
            pair.target(word, verb, range(verb, len(pair.english)))
        if mood is not Mood.PLAIN:
            pair.target("pas" if mood is Mood.DENIED else "bien", verb - 1)
        if forms := self.verb.participle:
            pair.target(forms[2 * plural + self.subject.noun.feminine] if len(forms) > 1 else forms[0], verb)


class _PairBuilder:
    """Collects words and links."""

    def __init__(self) -> None:
        self.english: list[str] = []
        self.french: list[str] = []
        self.sure: set[Link] = set()
        self.possible: set[Link] = set()

    def target(self, word: str, sure: int, possible: Iterable[int] = ()) -> None:
        """Add a French word and the places of its English words."""
        self.sure.add((len(self.french), sure))
        self.possible |= {(len(self.french), place) for place in (sure, *possible)}
        self.french.append(word)

    def noun_phrase(self, phrase: NounPhrase) -> None:
        """Add a noun phrase to both sides."""
        start = len(self.english)
        self.english += phrase.english()
        for word, place in phrase.french():
            self.target(word, start + place)


MOODS = {Mood.PLAIN: 0.5, Mood.DENIED: 0.3, Mood.STRESSED: 0.2}


def held_out(sentence: Sentence) -> bool:
    """Whether a sentence is for the test alone."""
    content = sentence.content()
    return content == EXAMPLE or zlib.crc32(content.encode()) % EVERY == 0


def draw(chance: random.Random) -> Sentence:
    """A sentence, whether held out or not."""
    subject = _noun_phrase(chance, ACTING)
    (mood,) = chance.choices(list(MOODS), list(MOODS.values()))
    if chance.random() < STAYS:
        verb, where = chance.choice(lexicon.STAYING), chance.choice(WHERE)
        return Sentence(subject, verb, mood, where, _noun_phrase(chance, PLACES))
    return Sentence(subject, chance.choice(lexicon.ACTING_ON), mood, None, _noun_phrase(chance, ACTING + PLACES))


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
    where, what = len(lexicon.STAYING) * len(WHERE) * places, len(lexicon.ACTING_ON) * (acting + places)
    return len(Mood) * acting * (where + what)


def _phrases(nouns: tuple[Noun, ...]) -> int:
    determiners = len(SINGULAR) + len(PLURAL)
    return sum(determiners * (len(BEFORE) + 1) * (len(AFTER[noun.kind]) + 1) for noun in nouns)


def cat() -> Pair:
    """The cat sits on the mat."""
    subject, place = (NounPhrase(_NOUNS[noun], False, THE) for noun in ("cat", "mat"))
    return _staying(subject, "sits", Mood.PLAIN, "on", place).pair()


def friends() -> Sentence:
    """The young curious friends do not lie in front of the tree.

    Denial, a verb of two words, an adjective on either side of its noun, three words that become one, and an elision.
    """
    subject = NounPhrase(_NOUNS["friend"], True, THE, _ADJECTIVES["young"], _ADJECTIVES["curious"])
    return _staying(subject, "lies", Mood.DENIED, "in front of", NounPhrase(_NOUNS["tree"], False, THE))


def _staying(subject: NounPhrase, verb: str, mood: Mood, where: str, place: NounPhrase) -> Sentence:
    (chosen,) = (each for each in lexicon.STAYING if each.english[0] == verb)
    return Sentence(subject, chosen, mood, (where, dict(WHERE)[where]), place)


def labels(pair: Pair) -> tuple[list[str], list[str]]:
    """English and French words as they are written: the first with a capital."""
    english, french = ([words[0].capitalize(), *words[1:]] for words in (pair.english, pair.french))
    return english, french


def _vocabulary(*words: str) -> dict[str, int]:
    """Numbers of the special words, then of the words of all these strings, each once, in order."""
    listed = (*SPECIAL, *dict.fromkeys(" ".join(words).split()))
    return {word: number for number, word in enumerate(listed)}


ENGLISH = _vocabulary(
    "an do does not",
    *(forms[0] for forms in DETERMINERS),
    *(word for noun in _NOUNS.values() for word in noun.english),
    *_ADJECTIVES,
    *(f"{' '.join(verb.english)} {verb.particle}" for verb in _VERBS),
    *(english for english, _ in WHERE),
)

FRENCH = _vocabulary(
    "ne n' pas bien",
    *(word for forms in DETERMINERS for word in forms[1:]),
    *(word for noun in _NOUNS.values() for word in noun.french),
    *(word for adjective in _ADJECTIVES.values() for word in adjective.forms),
    *(word for verb in _VERBS for word in (*verb.french, *verb.participle)),
    *(french for _, french in WHERE),
)


def sources(pairs: list[Pair]) -> Tensor:
    """English words as numbers, (sentence, word), padded on the right."""
    rows = [torch.tensor([ENGLISH[word] for word in pair.english]) for pair in pairs]
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


def targets(pairs: list[Pair]) -> Tensor:
    """French words as numbers between a start and an end, (sentence, word), padded on the right."""
    rows = [torch.tensor([START, *(FRENCH[word] for word in pair.french), END]) for pair in pairs]
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


def french_words(row: list[int]) -> tuple[str, ...]:
    """The French words of a row of numbers, up to its end."""
    words = list(FRENCH)
    return tuple(words[number] for number in (row[: row.index(END)] if END in row else row))
