"""Words at an axis: the text that tokens of every vocabulary make, and phrases in it."""

import pytest

from regard.map.words import AxisWords, Phrase, running_texts

TEXTS = {
    "byte-level": (
        ("The", "Ġcat", "s", "Ġare", "n", "'t", "Ġhere", ".", "Ċ", "ĠSection", "Ġ", "3"),
        "The cats aren't here.\n Section 3",
    ),
    "sentencepiece": (("▁The", "▁cat", "s", "▁sat", ".", "<0x0A>"), " The cats sat.\n"),
    "wordpiece": (
        ("[CLS]", "the", "cat", "##s", "aren", "'", "t", "(", "here", ")", ".", "[SEP]"),
        "[CLS] the cats aren't (here). [SEP]",
    ),
    "word-end": (("the</w>", "cat", "s</w>", "sat</w>"), "the cats sat"),
    "joined": (("the", "cat@@", "s", "sat"), "the cats sat"),
    "words": (("the", "cats", ",", "sat"), "the cats, sat"),
    "own spaces": (("the ", "cats ", "sat"), "the cats sat"),
    "characters": (tuple("the cats"), "the cats"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_tokens_make_a_text(kind: str) -> None:
    tokens, text = TEXTS[kind]
    assert "".join(running_texts(tokens)) == text
    assert len(running_texts(tokens)) == len(tokens)


@pytest.mark.parametrize(
    "kind, phrase, found",
    [
        ("byte-level", "cats", [Phrase(1, 2)]),
        ("byte-level", " THE", []),
        ("byte-level", "the", [Phrase(0, 1)]),
        ("byte-level", "here. section", []),
        ("byte-level", "section 3", [Phrase(9, 3)]),
        ("byte-level", "here. ", [Phrase(6, 3)]),  # a space stands for a line break too
        ("byte-level", ".↵", [Phrase(7, 2)]),
        ("byte-level", "·are", [Phrase(3, 1)]),
        ("byte-level", "Ġare", [Phrase(3, 1)]),
        ("wordpiece", "the cats", [Phrase(1, 3)]),
        ("wordpiece", "aren't (here)", [Phrase(4, 6)]),
        ("wordpiece", "##s", [Phrase(3, 1)]),
        ("wordpiece", "s", [Phrase(0, 1), Phrase(3, 1), Phrase(11, 1)]),
        ("wordpiece", "[cls]", [Phrase(0, 1)]),
        ("words", "cats, s", [Phrase(1, 3)]),
        ("words", ".*", []),
    ],
)
def test_phrases(kind: str, phrase: str, found: list[Phrase]) -> None:
    assert AxisWords(TEXTS[kind][0]).find(phrase) == found


def test_letters_that_grow_when_they_are_folded() -> None:
    words = AxisWords(("Straße", " İstanbul", " ends"))
    assert words.find("strasse") == [Phrase(0, 1)]
    assert words.find("ends") == [Phrase(2, 1)]
    assert AxisWords(("", "a", "")).find("a") == [Phrase(1, 1)]
