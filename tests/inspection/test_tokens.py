"""Tokens as text: every kind of vocabulary is read, and plain words stay as they are."""

import copy
import pickle
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.tokens import (
    BYTES,
    TokenList,
    ascii_label,
    text_of,
    token_label,
    token_labels,
    token_texts,
    vocabulary_of,
)


@pytest.mark.parametrize(
    "text, label",
    [
        ("cat", "cat"),
        ("\n", "↵"),
        ("a\tb", "a⇥b"),
        ("\r\n", r"\r↵"),
        ("\x00", r"\x00"),
        ("\x7f", r"\x7f"),
        ("\x1b[31m", r"\x1b[31m"),
        (" the", "·the"),
        ("New York ", "New York·"),
        ("  ", "␣␣"),
        ("", '""'),
        ("▁the", "▁the"),
        ("Ġthe", "Ġthe"),
        ("猫", "猫"),
        ("שלום", "שלום"),
        ("😀", "😀"),
        ("\u202eevil", r"\u202eevil"),
    ],
)
def test_labels_of_text(text: str, label: str) -> None:
    assert token_label(text) == label


@pytest.mark.parametrize(
    "kind, tokens, labels",
    [
        ("byte-level", ["The", "Ġcat", "s", ".", "ĊĊ", "Ġ", "ĠĠ"], ["The", "·cat", "s", ".", "↵↵", "␣", "␣␣"]),
        ("byte-level", ["Hello", "Ċ", "world"], ["Hello", "↵", "world"]),
        ("byte-level", ["ĉif", "Ġx", ":ĊĊ"], ["⇥if", "·x", ":↵↵"]),
        ("byte-level", ["æĪ", "ĳ", "Ġå¥½"], ["我⟨1/2⟩", "我⟨2/2⟩", "·好"]),
        ("byte-level", ["ĠcafÃ©", "<|end|>"], ["·café", "<|end|>"]),
        ("byte-level", ["Ġð", "Ł", "ĺĢð", "ŁĺĢ"], ["·😀⟨1/3⟩", "😀⟨2/3⟩", "😀⟨3/3⟩😀⟨1/2⟩", "😀⟨2/2⟩"]),
        ("byte-level", ["ĳ", "Ġå¥½", "æĪ"], [r"\x91", "·好", r"\xe6\x88"]),  # a part of a longer text
        ("byte-level", ["Ġæ", "<s>", "å¥½"], [r"·\xe6", "<s>", "好"]),
        ("byte-level", ["<｜begin▁of▁sentence｜>", "The", "Ġcat"], ["<｜begin▁of▁sentence｜>", "The", "·cat"]),
        ("sentencepiece", ["<s>", "▁The", "▁un", "able", "▁", "</s>"], ["<s>", "·The", "·un", "able", "␣", "</s>"]),
        ("sentencepiece", ["▁a", "<0xE6>", "<0x88>", "<0x91>", "<0x0A>"], ["·a", "我⟨1/3⟩", "我⟨2/3⟩", "我⟨3/3⟩", "↵"]),
        ("sentencepiece", ["猫", "<0x0A>"], ["猫", "↵"]),
        ("wordpiece", ["[CLS]", "un", "##believ", "##able", "[SEP]"], ["[CLS]", "un", "…believ", "…able", "[SEP]"]),
        ("word-end", ["a</w>", "pho", "to</w>", "<|endoftext|>"], ["a", "pho", "…to", "<|endoftext|>"]),
        ("joined", ["inter@@", "nation@@", "al", "law"], ["inter", "…nation", "…al", "law"]),
        ("plain", [], []),
    ],
)
def test_labels_of_every_vocabulary(kind: str, tokens: list[str], labels: list[str]) -> None:
    assert vocabulary_of(tokens) == kind
    assert token_labels(tokens) == labels


@pytest.mark.parametrize(
    "words",
    [
        ["The", "letter", "Ġ", "is", "Maltese"],
        ["Ġorġ", "kiel", "ħobż"],
        ["Visit", "Ġgantija", "on", "Gozo"],
        ["Ġgantija", "temples", "stand", "there."],
        ["čaj", "je", "noč"],
        ["naïve", "café"],
        ["▁", "is", "a", "sign"],
        ["▁▂▃", "grows"],
        ["snake▁case", "▁x"],
        ["##Heading", "one"],
        ["##", "one"],
        ["C#", "##"],
        ["a", "<0x41>"],
        ["a@b.c", "@@", "x"],
        ["New York", "猫", "😀"],
    ],
)
def test_plain_words_stay_as_they_are(words: list[str]) -> None:
    assert vocabulary_of(words) == "plain"
    assert token_labels(words) == token_texts(words) == words


def test_a_known_vocabulary_is_not_guessed() -> None:
    assert token_labels(TokenList(["Ġgantija", "is"])) == ["Ġgantija", "is"]
    assert token_labels(TokenList(["Donau", "dampf", "Ġ"], "byte-level")) == ["Donau", "dampf", "␣"]
    kept = TokenList(["##a"], "wordpiece")
    for other in (copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        assert other == kept
        assert other.vocabulary == "wordpiece"
    with pytest.raises(ValueError, match=r"vocabulary must be one of byte-level, .*plain, got 'bpe'"):
        TokenList(["a"], "bpe")


def test_texts_keep_spaces_and_line_breaks() -> None:
    assert token_texts(["The", "Ġcat", "Ċ"]) == ["The", " cat", "\n"]
    assert token_texts(["▁The", "▁"]) == [" The", " "]
    assert token_texts(["a", "##b"]) == ["a", "##b"]
    assert token_texts(["a@@", "b"]) == ["a", "##b"]


@pytest.mark.parametrize(
    "tokens, text",
    [
        (["[CLS]", "the", "sleep", "##ing", "cat", ".", "[SEP]"], "the sleeping cat."),
        (["[CLS]", "我", "[UNK]", "北", "京", "[SEP]"], "我 [UNK] 北京"),
        (["<s>", "▁The", "▁cat", "<0x0A>", "▁sat"], "The cat sat"),
        (["The", "Ġcat", "Ġæ", "Ī", "ĳ", "Ċ"], "The cat 我"),
        (["New York", "is", "big", "!"], "New York is big!"),
        (["The", " cat", "s"], "The cats"),
        (["\x1b[31m"], r"\x1b[31m"),
        (["[CLS]"], ""),
        ([], ""),
    ],
)
def test_the_text_of_tokens(tokens: list[str], text: str) -> None:
    assert text_of(tokens) == text
    assert text_of(tokens, 60) == text


def test_labels_in_ascii() -> None:
    assert ascii_label("·cat") == "_cat"
    assert ascii_label("…ing") == "~ing"
    assert ascii_label("我⟨1/2⟩") == r"\u6211<1/2>"


@given(st.text(min_size=1), st.data())
def test_bytes_that_are_split_anywhere_are_the_text(text: str, data: st.DataObject) -> None:
    letters = {byte: letter for letter, byte in BYTES.items()}
    written = "".join(letters[byte] for byte in text.encode("utf-8", "replace"))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(written) - 1, 1)))))
    tokens = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True) if a < b]
    decoded = "".join(token_texts(TokenList(tokens, "byte-level")))
    plain = text.encode("utf-8", "replace").decode()
    assert plain.replace("⟨", "") in _without_parts(decoded).replace("⟨", "") or any(c in plain for c in "⟨⟩<[")


def _without_parts(text: str) -> str:
    import re

    whole = re.sub(r"(.)⟨1/\d⟩", r"\1", text, flags=re.DOTALL)
    return re.sub(r".⟨\d/\d⟩", "", whole, flags=re.DOTALL)


@given(st.lists(st.text()))
def test_labels_of_anything_are_one_line_and_harmless(tokens: list[str]) -> None:
    labels = token_labels(tokens)
    assert len(labels) == len(tokens) == len(token_texts(tokens))
    assert all(label and label.isprintable() for label in labels)
    assert not {unicodedata.category(c) for label in labels for c in label} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert all(map(str.isascii, map(ascii_label, labels)))
