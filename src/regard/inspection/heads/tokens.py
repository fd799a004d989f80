"""The tokens at the keys of a layer: which are equal, and which are punctuation."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.inspection.tokens import byte_level_bytes

TokenRows = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True, eq=False)
class KeyTokens:
    """(1 or batch, key) each: numbers that are equal where tokens are, and which tokens are punctuation; None if
    unknown."""

    ids: Tensor | None = None
    punctuation: Tensor | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyTokens):
            return NotImplemented
        pairs = ((self.ids, other.ids), (self.punctuation, other.punctuation))
        return all(a is b or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs)


def key_tokens(ids: Any, tokens: TokenRows | None) -> KeyTokens:
    """`ids` are integers, (key,) or (batch, key); `tokens` strings, one row or one for each batch row."""
    numbers = None if ids is None else _token_numbers(ids)
    if tokens is None:
        return KeyTokens(numbers)
    if isinstance(tokens, str):
        raise TypeError("tokens must be a sequence of strings, got one string; split it first")
    one = len(tokens) == 0 or isinstance(tokens[0], str)
    rows: list[list[Any]] = [list(tokens)] if one else [list(row) for row in tokens]
    if len({len(row) for row in rows}) > 1 or any(not isinstance(token, str) for row in rows for token in row):
        raise TypeError("tokens must be strings, one row of them or a batch of rows of one length; pad the short ones")
    if numbers is not None and numbers.shape[-1] != len(rows[0]):
        raise ValueError(f"ids and tokens must be of one length, got {numbers.shape[-1]} ids and {len(rows[0])} tokens")
    distinct: dict[str, int] = {}
    equal = torch.tensor(
        [[distinct.setdefault(token, len(distinct)) for token in row] for row in rows], device="cpu", dtype=torch.int64
    )
    signs = torch.tensor([is_punctuation(token) for token in distinct], dtype=torch.bool, device="cpu")
    return KeyTokens(equal if numbers is None else numbers, signs[equal])


def _token_numbers(ids: Any) -> Tensor:
    rows = ids if isinstance(ids, Tensor) else torch.as_tensor(np.asarray(ids), device="cpu")
    if rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool or rows.ndim not in (1, 2):
        kind = str(rows.dtype).removeprefix("torch.")
        raise TypeError(
            f"ids must be integers, (key,) or (batch, key), got {kind} of shape {tuple(rows.shape)}; "
            "strings are passed as tokens="
        )
    rows = rows.detach().cpu().long()
    rows = rows if rows.ndim == 2 else rows.unsqueeze(0)
    numbers: Tensor = rows.unique(return_inverse=True)[1]
    return numbers.view(rows.shape)


BEFORE, AFTER = ("Ġ", "▁", "##"), ("</w>", "@@")


def is_punctuation(token: str) -> bool:
    """Whether a token holds punctuation (Unicode's categories P…) and, marks and spaces aside, nothing else.

    >>> [is_punctuation(token) for token in (",", "Ġ(", "▁...", "##'", "“", "âĢľ", "it's", "[CLS]", "+", "▁")]
    [True, True, True, True, True, True, False, False, False, False]
    """
    text = _decoded(token).strip()
    for mark in BEFORE:
        text = text.removeprefix(mark) if len(text) > len(mark) else text
    for mark in AFTER:
        text = text.removesuffix(mark) if len(text) > len(mark) else text
    text = text.strip()
    return bool(text) and all(unicodedata.category(letter).startswith("P") for letter in text)


def _decoded(token: str) -> str:
    """The text of a token of a byte-level vocabulary; all others as they are."""
    data = None if token.isascii() else byte_level_bytes(token)
    if data is None:
        return token
    try:
        return data.decode()
    except UnicodeDecodeError:
        return token
