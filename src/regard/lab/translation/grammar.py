"""Sentences of the grammar in both languages, with the words that belong together.

French is not English word by word: adjectives of color follow their noun, everything agrees in gender and number,
le and ne elide before a vowel, "sits" takes two words (est assis), "not" stands on both sides of the verb (ne … pas),
"does" alone is stress (does see: voit bien), and "looks at" or "in front of" shrink to one. Words are lower case; an
elided word is a word of its own (l' arbre).
"""

from dataclasses import dataclass
from enum import Enum

from regard.lab.translation.lexicon import DETERMINERS, Adjective, Noun, Verb, elides

Link = tuple[int, int]  # places of a French word and of an English word


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
