"""A part of a matrix by its tokens: a range of them, or all but special ones and padding, with their exact weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import torch
from torch import Tensor

from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.matrix.indexing import LIMIT
from regard.inspection.matrix.source import Stored
from regard.inspection.tokens import TokenList, is_special, vocabulary_of

_PADDING = ("[PAD]", "<pad>", "<PAD>", "<|pad|>")


@dataclass(frozen=True)
class TokenSelection:
    """Which tokens a picture shows: a range, and whether special tokens are left out; `renormalize` scales what is left
    of each row to a sum of 1."""

    tokens: slice | None = None
    hide_special: bool = False
    renormalize: bool = False

    def __post_init__(self) -> None:
        given: object = self.tokens
        if given is not None and (not isinstance(given, slice) or given.step not in (None, 1)):
            raise TypeError(f"tokens must be a range of them, slice(3, 20), got {given!r}")
        if self.renormalize and not self.hide_special and self.tokens is None:
            raise ValueError("renormalize scales the weights that are left; choose tokens, or hide_special=True")

    @overload
    def of(self, matrix: AttentionMatrix) -> AttentionMatrix: ...

    @overload
    def of(self, matrix: MatrixDifference) -> MatrixDifference: ...

    def of(self, matrix: AttentionMatrix | MatrixDifference) -> AttentionMatrix | MatrixDifference:
        """The weights between the chosen tokens, with a remark that says which these are; `matrix` if all are."""
        if isinstance(matrix, MatrixDifference):
            if self == TokenSelection():
                return matrix
            return MatrixDifference(self.of(matrix.first), self.of(matrix.second))
        queries, keys = matrix.shape[-2:]
        rows, columns = self._kept(matrix.query_tokens, queries), self._kept(matrix.key_tokens, keys)
        if not rows or not columns:
            name = "queries" if not rows else "keys"
            raise ValueError(
                f"no token is left: there are {queries:,} queries and {keys:,} keys, and of {name} none stays"
            )
        if len(rows) == queries and len(columns) == keys:
            return matrix
        return self._part(matrix, rows, columns)

    def _kept(self, tokens: Sequence[str] | None, count: int) -> list[int]:
        places = range(count)[self.tokens] if self.tokens is not None else range(count)
        if tokens is None:
            return list(places)
        last = count
        while last > 1 and tokens[last - 1] in _PADDING:
            last -= 1
        return [place for place in places if place < last and not (self.hide_special and is_special(tokens[place]))]

    def _part(self, matrix: AttentionMatrix, rows: Sequence[int], columns: Sequence[int]) -> AttentionMatrix:
        count = matrix._maps.numel() * len(rows) * len(columns)
        if count > LIMIT and self == TokenSelection():  # padding alone is no reason to refuse a picture
            return matrix
        if count > LIMIT:
            raise ValueError(f"this part has {count:,} weights, more than {LIMIT:,}; choose fewer tokens, or one head")
        weights, visible = _gathered(matrix, rows, columns)
        left = 1.0 - float(weights.sum(-1).mean())
        if self.renormalize:
            sums = weights.sum(-1, keepdim=True)
            weights = torch.where(sums > 0, weights / sums, 0.0)
        tokens = [
            None if side is None else _chosen(side, places)
            for side, places in ((matrix.query_tokens, rows), (matrix.key_tokens, columns))
        ]
        shape = (*matrix._lead.shape, len(rows), len(columns))
        lead = torch.arange(len(weights), device="cpu").view(matrix._lead.shape)
        part = AttentionMatrix(Stored(weights.view(shape), visible), lead, *tokens)
        heads = [head for _, head in matrix.places[: part._whole.source.heads]]
        part.origin = replace(matrix.origin, heads=tuple(heads), remark=self._remark(matrix, rows, columns, left))
        return part

    def _remark(self, matrix: AttentionMatrix, rows: Sequence[int], columns: Sequence[int], left: float) -> str:
        said = [matrix.origin.remark] if matrix.origin.remark else []
        if self.tokens is not None:
            first, last, _ = self.tokens.indices(max(matrix.shape[-2:]))
            said.append(f"tokens {first} to {last - 1} of {max(matrix.shape[-2:]):,}")
        tokens = matrix.key_tokens or matrix.query_tokens or ()
        if self.hide_special:
            names = list(dict.fromkeys(token for token in tokens if is_special(token)))
            said.append(f"without {', '.join(names[:3])}{', …' * (len(names) > 3)}" if names else "no special tokens")
        elif self.tokens is None:
            said.append(f"without {len(tokens) - len(columns)} tokens of padding")
        if left > 0.0005:
            scaled = "rows are scaled to a sum of 1" if self.renormalize else "rows are not scaled"
            said.append(f"{100 * left:.{0 if left > 0.01 else 1}f}% of the weight is on keys left out, {scaled}")
        return "; ".join(said)


def _chosen(tokens: Sequence[str], places: Sequence[int]) -> Sequence[str]:
    return TokenList((tokens[place] for place in places), vocabulary_of(tokens))  # which the whole text tells


def _gathered(matrix: AttentionMatrix, rows: Sequence[int], columns: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Weights (map, row, column) of chosen queries and keys, and which pairs are visible, in a pass over all pairs."""
    down, right = (torch.tensor(places, dtype=torch.int64, device="cpu") for places in (rows, columns))
    maps = matrix._maps.reshape(-1)
    size = (len(maps), len(rows), len(columns))
    weights = torch.zeros(size, dtype=matrix.dtype, device="cpu")
    visible = torch.zeros(size, dtype=torch.bool, device="cpu")
    with torch.no_grad():
        for block in matrix._source.blocks():
            y, x = (
                ((places >= part.start) & (places < part.stop)).nonzero().flatten()
                for places, part in ((down, block.rows), (right, block.columns))
            )
            if not len(y) or not len(x):
                continue
            inside = (maps.view(-1, 1, 1), (down[y] - block.rows.start).view(1, -1, 1), right[x] - block.columns.start)
            at = (torch.arange(len(maps), device="cpu").view(-1, 1, 1), y.view(1, -1, 1), x)
            weights[at] = block.weights.cpu()[inside]
            seen = torch.ones_like(block.weights) if block.visible is None else block.visible.expand_as(block.weights)
            visible[at] = seen.cpu()[inside].bool()
    return weights, visible
