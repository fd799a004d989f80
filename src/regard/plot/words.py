"""Words made of sub-words: which tokens belong together, and weights between words instead of tokens.

The weight from one word to another is the mean over the first word's tokens of the sum over the second word's: rows
that added up to 1 still do. A pair of words is hidden where all pairs of their tokens are.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.matrix.indexing import LIMIT
from regard.inspection.tokens import byte_level_bytes

_SPECIAL = re.compile(r"\[[A-Z]+\d*\]|</?[a-z_]+\d*>|<\|.*\|>|<0x[0-9A-F]{2}>", re.DOTALL)
_STARTS = ("Ġ", "▁", " ")  # of byte-level and SentencePiece vocabularies, and of tokens that are decoded
_GOES_ON = "##"  # of WordPiece
_BLANK = "ĊĠĉč"  # line break, space, tab and return as byte-level vocabularies write them


@dataclass(frozen=True)
class Words:
    """Words of a text: the number of the first token of each, and their texts."""

    starts: tuple[int, ...]
    texts: tuple[str, ...]

    def edges(self, tokens: int) -> list[int]:
        """Where each word starts, and where the last ends."""
        return [*self.starts, tokens]


def words_of(tokens: Sequence[str]) -> Words:
    """The words of a text by the marks of its tokens: Ġ, ▁ or a space where a word begins, ## where one goes on.

    Special tokens, line breaks, punctuation, and characters of scripts without spaces are words of their own. Without
    marks every token is a word. Byte-level tokens are turned back into the text they stand for.
    """
    mark = next((mark for mark in _STARTS if any(t.startswith(mark) and t.strip(mark) for t in tokens)), None)
    if mark is None or (mark == " " and any(map(_continues, tokens))):
        return _grouped(tokens, lambda n: not _continues(tokens[n]), lambda text: text.removeprefix(_GOES_ON))
    if mark == "Ġ":
        decoded = [token if (data := _bytes(token)) is None else data for token in tokens]
        return _grouped(decoded, lambda n: _is_new(tokens, n, mark), str)
    return _grouped(tokens, lambda n: _is_new(tokens, n, mark), lambda text: text.replace(mark, " "))


def _grouped(tokens: Sequence[Any], is_new: Callable[[int], bool], plain: Callable[[str], str]) -> Words:
    starts = [n for n in range(len(tokens)) if n == 0 or is_new(n)]
    parts = [tokens[start:stop] for start, stop in pairwise([*starts, len(tokens)])]
    texts = []
    for part in parts:
        if any(isinstance(token, bytes) for token in part):
            text = b"".join(t if isinstance(t, bytes) else t.encode() for t in part).decode("utf-8", "replace")
        else:
            text = "".join(map(plain, part))
        texts.append(text.strip(" ") or text)
    return Words(tuple(starts), tuple(texts))


def _continues(token: str) -> bool:
    return token.startswith(_GOES_ON) and len(token) > len(_GOES_ON)


def _is_new(tokens: Sequence[str], number: int, mark: str) -> bool:
    token, before = tokens[number], tokens[number - 1]
    if token.startswith(mark) or _stands_alone(token) or _stands_alone(before):
        return True
    if mark == "Ġ":
        data, last = _bytes(token), _bytes(before)
        if data is not None and data and 0x80 <= data[0] < 0xC0:
            return False  # the rest of a character
        token = (data or b"").decode("utf-8", "replace") or token
        before = (last or b"").decode("utf-8", "replace") or before
    if not token or not before.strip(mark):
        return False
    return _kind(token[0]) != _kind(before[-1]) or _kind(token[0]) == "unspaced"


def _stands_alone(token: str) -> bool:
    return _SPECIAL.fullmatch(token) is not None or (bool(token) and (token.isspace() or not token.strip(_BLANK)))


def _kind(character: str) -> str:
    """A letter or digit, a character of a script without spaces, or anything else."""
    category = unicodedata.category(character)
    if category[0] not in "LMN":
        return "other"
    unspaced = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
    return "unspaced" if unicodedata.name(character, "").startswith(unspaced) else "letter"


def _bytes(token: str) -> bytes | None:
    """What a byte-level token stands for; None for a token in plain text."""
    return None if _SPECIAL.fullmatch(token) else byte_level_bytes(token)


def words(matrix: AttentionMatrix) -> AttentionMatrix:
    """The weights between words, with the words as its tokens; hidden pairs are weights of 0 in it.

    It is as large as words × words: refused above 2**26 numbers.
    """
    tokens = matrix.query_tokens, matrix.key_tokens
    if tokens[0] is None and tokens[1] is None:
        raise ValueError("words are made of tokens, and this matrix has none: pass query_tokens and key_tokens")
    down, right = (None if each is None else words_of(each) for each in tokens)
    lead, (queries, keys) = matrix.shape[:-2], matrix.shape[-2:]
    rows, columns = (
        list(range(count + 1)) if words is None else words.edges(count)
        for words, count in ((down, queries), (right, keys))
    )
    count = int(np.prod(lead)) * (len(rows) - 1) * (len(columns) - 1)
    if count > LIMIT:
        raise ValueError(f"this would build {count:,} weights between words, more than {LIMIT:,}; choose a head")
    weights = torch.zeros(*lead, len(rows) - 1, len(columns) - 1, dtype=matrix.dtype, device="cpu")
    step = max(1, (1 << 22) // max(1, int(np.prod(lead)) * keys))
    first = 0
    while first < len(rows) - 1:
        last = max(first + 1, int(np.searchsorted(rows, rows[first] + step, "right")) - 1)
        block = matrix[..., rows[first] : rows[last], :].detach().cpu()
        weights[..., first:last, :] = merged(block, [edge - rows[first] for edge in rows[first : last + 1]], columns)
        first = last
    return AttentionMatrix.from_weights(
        weights, down.texts if down is not None else None, right.texts if right is not None else None
    )


def merged(weights: Tensor, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """Weights (…, query, key) between the words that start at these rows and columns: mean down, sum across."""
    down, right = (torch.as_tensor(np.diff(edges), device="cpu") for edges in (rows, columns))
    across = torch.zeros(*weights.shape[:-1], len(right), dtype=weights.dtype, device="cpu")
    across.index_add_(-1, torch.arange(len(right), device="cpu").repeat_interleave(right), weights)
    result = torch.zeros(*weights.shape[:-2], len(down), len(right), dtype=weights.dtype, device="cpu")
    result.index_add_(-2, torch.arange(len(down), device="cpu").repeat_interleave(down), across)
    return result / down.unsqueeze(-1).to(weights.dtype)
