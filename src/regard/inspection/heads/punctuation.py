"""Punctuation: which tokens are nothing else, whatever marks a tokenizer puts on parts of words."""

import unicodedata

BEFORE, AFTER = ("Ġ", "▁", "##"), ("</w>", "@@")


def is_punctuation(token: str) -> bool:
    """Whether a token holds punctuation (Unicode's categories P…) and, marks and spaces aside, nothing else.

    >>> [is_punctuation(token) for token in (",", "Ġ(", "▁...", "##'", "“", "âĢľ", "it's", "[CLS]", "+", "▁")]
    [True, True, True, True, True, True, False, False, False, False]
    """
    text = _bare(_decoded(token).strip())
    return bool(text) and all(unicodedata.category(letter).startswith("P") for letter in text)


def _bare(text: str) -> str:
    for mark in BEFORE:
        if text.startswith(mark) and len(text) > len(mark):
            text = text.removeprefix(mark)
    for mark in AFTER:
        if text.endswith(mark) and len(text) > len(mark):
            text = text.removesuffix(mark)
    return text.strip()


def _letters() -> dict[str, int]:
    """The byte that each letter stands for in byte-level vocabularies: itself if it can be printed, else one from
    U+0100 on."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


BYTES = _letters()


def _decoded(token: str) -> str:
    """The text of a token of a byte-level vocabulary; all others as they are."""
    if token.isascii() or any(letter not in BYTES for letter in token):
        return token
    try:
        return bytes(BYTES[letter] for letter in token).decode()
    except UnicodeDecodeError:
        return token
