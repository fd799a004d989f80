"""Pieces: what stands at the axes of a picture for each token of a text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = "Ġ"  # how byte-level vocabularies write a blank before a word
HALF = "\ufffd"  # how a decoder writes half a character


def pieces(tokenizer: "Tokenizer", ids: Sequence[int]) -> list[str]:
    """The tokens as their vocabulary writes them; bytes that make up characters as the characters, where they do."""
    from tokenizers.decoders import ByteLevel

    bytewise = isinstance(tokenizer.decoder, ByteLevel)
    return [_read(tokenizer, each) if bytewise else str(tokenizer.id_to_token(each)) for each in ids]


def _read(tokenizer: "Tokenizer", each: int) -> str:
    piece = str(tokenizer.id_to_token(each))
    text = str(tokenizer.decode([each], skip_special_tokens=False))
    if HALF in text or not text:
        return piece
    return SPACE + text.removeprefix(" ") if piece.startswith(SPACE) else text
