"""Words: the tokens at the keys of a layer, as numbers that can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.inspection.heads.punctuation import is_punctuation

Text = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True, eq=False)
class Words:
    """Of some number of keys, (1 or batch, key) each: numbers that are equal where tokens are, and which tokens are
    punctuation. None where that is not known."""

    ids: Tensor | None = None
    punctuation: Tensor | None = None


def words_of(ids: Any, tokens: Text | None) -> Words:
    """`ids` are integers, (key,) or (batch, key); `tokens` strings, one row or one for each batch row."""
    numbers = None if ids is None else _numbers(ids)
    if tokens is None:
        return Words(numbers)
    rows = _rows(tokens)
    if numbers is not None and numbers.shape[-1] != len(rows[0]):
        raise ValueError(f"ids and tokens must be of one length, got {numbers.shape[-1]} ids and {len(rows[0])} tokens")
    known: dict[str, int] = {}
    found = torch.tensor(
        [[known.setdefault(token, len(known)) for token in row] for row in rows], device="cpu", dtype=torch.int64
    )
    signs = torch.tensor([is_punctuation(token) for token in known], dtype=torch.bool, device="cpu")
    return Words(found if numbers is None else numbers, signs[found])


def _numbers(ids: Any) -> Tensor:
    found = ids if isinstance(ids, Tensor) else torch.as_tensor(np.asarray(ids), device="cpu")
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool or found.ndim not in (1, 2):
        kind = str(found.dtype).removeprefix("torch.")
        raise TypeError(
            f"ids must be integers, (key,) or (batch, key), got {kind} of shape {tuple(found.shape)}; "
            "strings are passed as tokens="
        )
    found = found.detach().cpu().long()
    found = found if found.ndim == 2 else found.unsqueeze(0)
    numbers: Tensor = found.unique(return_inverse=True)[1]
    return numbers.view(found.shape)


def _rows(tokens: Text) -> list[list[str]]:
    if isinstance(tokens, str):
        raise TypeError("tokens must be a sequence of strings, got one string; split it first")
    one = len(tokens) == 0 or isinstance(tokens[0], str)
    rows = [list(tokens)] if one else [list(row) for row in tokens]
    if len({len(row) for row in rows}) > 1 or any(not isinstance(token, str) for row in rows for token in row):
        raise TypeError("tokens must be strings, one row of them or a batch of rows of one length; pad the short ones")
    return rows  # type: ignore[return-value]
