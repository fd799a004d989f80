"""The words at an axis of the map: labels of its tokens, the text that they make, and phrases that are found in it."""

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from regard.cached import cached_property
from regard.inspection.tokens import BYTE_LEVEL, PLAIN, SENTENCEPIECE, SPECIAL, token_labels, token_texts, vocabulary_of

KEPT = 8  # lists of tokens
SPACES = "[ \t\n\r\u00a0]"  # what a space of a phrase stands for
NO_SPACE_BEFORE, NO_SPACE_AFTER = frozenset(".,;:!?)]}%"), frozenset("([{")
CONTRACTED = frozenset(("s", "t", "re", "ve", "ll", "d", "m"))  # don't, we've
SINGLE = 0.9  # share of tokens of one character from which a list is one of characters


class Phrase(NamedTuple):
    """Where a phrase was found: its first token, and how many it touches."""

    first: int
    tokens: int


class AxisWords:
    """The tokens of an axis as a reader sees them."""

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._tokens = tokens

    @cached_property
    def labels(self) -> list[str]:
        """What is written at the axis: one line each, with signs for spaces and line breaks."""
        return token_labels(self._tokens)

    @cached_property
    def texts(self) -> list[str]:
        """The text of each token, with its spaces; one after the other they are the text that was read."""
        return running_texts(self._tokens)

    def find(self, phrase: str) -> list[Phrase]:
        """Every place of a phrase, in upper or lower case, across tokens; if there is none, tokens that hold it."""
        wanted = phrase.replace("↵", "\n").replace("·", " ").replace("⇥", "\t").casefold()
        pattern = "".join(SPACES if re.match(SPACES, sign) else re.escape(sign) for sign in wanted)
        starts, text = self._folded
        found = []
        for match in re.finditer(pattern, text):
            first = bisect_right(starts, match.start()) - 1
            found.append(Phrase(first, bisect_right(starts, match.end() - 1) - first))
        if found:
            return found
        parts = (self._tokens, self.labels)
        folded = phrase.casefold()
        return [
            Phrase(n, 1) for n, own in enumerate(zip(*parts, strict=True)) if any(folded in w.casefold() for w in own)
        ]

    @cached_property
    def _folded(self) -> tuple[list[int], str]:
        """Where each token starts in the folded text, and that text."""
        folded = [text.casefold() for text in self.texts]
        return list(accumulate((len(text) for text in folded[:-1]), initial=0)), "".join(folded)


@lru_cache(KEPT)
def words_of(tokens: tuple[str, ...]) -> AxisWords:
    """The words of a list of tokens; layers that share their tokens share them."""
    return AxisWords(tokens)


def running_texts(tokens: tuple[str, ...]) -> list[str]:
    """The text of each token, with the space before it where the vocabulary keeps none.

    >>> "".join(running_texts(("[CLS]", "the", "cats", "##kin", ",", "isn", "'", "t", "(", "here", ")", ".")))
    "[CLS] the catskin, isn't (here)."
    >>> "".join(running_texts(("The", "Ġcat", "s", "Ċ"))), "".join(running_texts(("T", "h", "e")))
    ('The cats\\n', 'The')
    """
    texts, kind = token_texts(tokens), vocabulary_of(tokens)
    if kind in (BYTE_LEVEL, SENTENCEPIECE) or any(text != text.strip() for text in texts):
        return texts
    if sum(len(text) <= 1 for text in texts) >= SINGLE * len(texts):
        return texts
    later = [kind != PLAIN and text.startswith("##") for text in texts]  # pieces of a word
    own = [text[2:] if goes_on else text for text, goes_on in zip(texts, later, strict=True)]
    return [text if not at or later[at] or _joined(own, at) else " " + text for at, text in enumerate(own)]


def _joined(texts: list[str], at: int) -> bool:
    """Whether a token stands next to the one before it: a sign after a word, and the end of a contraction."""
    before, own = texts[at - 1], texts[at]
    if SPECIAL.fullmatch(own) or SPECIAL.fullmatch(before):
        return False
    after = texts[at + 1] if at + 1 < len(texts) else ""
    if own in ("'", "’") and before[-1:].isalpha() and after.lower() in CONTRACTED:
        return True
    if before in ("'", "’") and own.lower() in CONTRACTED:
        return True
    return own[:1] in NO_SPACE_BEFORE or before[-1:] in NO_SPACE_AFTER
