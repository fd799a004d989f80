"""Kept: a layer as a capture has it in the end: queries, keys, the spec of their weights, and what it is."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.engine.request import Spec
from regard.inspection.matrix import AttentionMatrix, matrix
from regard.spec.normalizers import Softmax

ROWS, RUN = 16, 4  # of a layer that the self-check adds up, and how many of them stand together


class Grid(NamedTuple):
    """Keys that are patches of an image: `special` tokens first, then `rows` × `columns` patches, row by row."""

    rows: int
    columns: int
    special: int

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each key: [CLS] and the numbers of further special tokens, then "row,column"."""
        special = [f"[{number}]" if number else "[CLS]" for number in range(self.special)]
        return (*special, *(f"{row},{column}" for row in range(self.rows) for column in range(self.columns)))


@dataclass(frozen=True)
class Refused:
    """A call that cannot be computed again, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Kept:
    """query: (batch, head, query, width), key: (batch, kv head, key, width), as they meet in the score.

    `heads` are the numbers that the heads have in the model, which has `total`; `shown` are their places among those
    stored, where these are more. `rounded` is how far a weight was seen to move when queries and keys were rounded to
    be stored; None if they were not. `checked` is the self-check, if it was made before.
    """

    name: str
    mechanism: str
    query: Tensor
    key: Tensor
    spec: Spec
    heads: tuple[int, ...]
    total: int
    shown: tuple[int, ...] | None = None
    kind: str = "encoder"
    grid: Grid | None = None
    rounded: float | None = None
    checked: float | None = None

    @property
    def queries(self) -> int:
        """How many."""
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        """How many."""
        return self.key.shape[-2]

    @cached_property
    def whole(self) -> AttentionMatrix:
        """The weights of all heads that are stored."""
        return matrix(self.query, self.key, **self.spec)

    @cached_property
    def matrix(self) -> AttentionMatrix:
        """The weights, (batch, head, query, key)."""
        part: AttentionMatrix = self.whole if self.shown is None else self.whole[..., list(self.shown), :, :]
        return part

    @cached_property
    def off(self) -> float:
        """The self-check: how far the weights of some rows are from adding up to 1 (with a sink, to 1 less its share;
        to 0 in a row that sees nothing)."""
        if self.checked is not None:
            return self.checked
        rows = sampled(self.queries)
        sums = self.matrix[(..., rows, slice(None))].sum(-1)
        normalizer: Any = self.spec.get("normalizer")
        wanted = torch.ones_like(sums)
        if isinstance(normalizer, Softmax) and normalizer.sink is not None:
            sink = torch.as_tensor(normalizer.sink, dtype=sums.dtype, device=sums.device).reshape(-1, 1)
            sink = sink if self.shown is None or len(sink) == 1 else sink[list(self.shown)]
            wanted = 1.0 - (sink - self.matrix.lse()[..., rows]).exp()
        wrong = torch.where(sums == 0.0, 0.0, (sums - wanted).abs())
        return float(wrong.max()) if wrong.numel() else 0.0


def sampled(queries: int) -> list[int]:
    """Rows spread over all of them, in short runs, which cost little more than single ones."""
    if queries <= ROWS:
        return list(range(queries))
    starts = [place * (queries - RUN) // (ROWS // RUN - 1) for place in range(ROWS // RUN)]
    return sorted({start + row for start in starts for row in range(RUN)})
