"""TokenLabels: the tokens of queries and keys, of one sequence or two, for all batch rows or for each its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from regard.inspection.capture.layer import CapturedLayer, RefusedLayer
from regard.inspection.matrix import AttentionMatrix

Row = Sequence[str]
Tokens = Row | Sequence[Row] | Mapping[str, Row | Sequence[Row]]
Rows = tuple[tuple[str, ...], ...]  # one for each batch row, or one for all
SIDES = ("encoder", "decoder")


@dataclass(frozen=True)
class TokenLabels:
    """Tokens of the sequences "encoder" and "decoder", or of "", every layer that has as many."""

    rows: Mapping[str, Rows]

    @classmethod
    def of(cls, tokens: Any) -> "TokenLabels":
        """The argument `tokens`, checked."""
        if tokens is None:
            return cls({})
        if not isinstance(tokens, Mapping):
            return cls({"": _rows("tokens", tokens)})
        unknown = [side for side in tokens if side not in SIDES]
        if unknown or not tokens:
            raise ValueError(
                f"tokens of two sequences have the names 'encoder' and 'decoder', got {list(tokens)}; give one list if "
                "there is one sequence"
            )
        return cls({side: _rows(f"tokens[{side!r}]", listed) for side, listed in tokens.items()})

    def check(self, captured: Iterable[CapturedLayer | RefusedLayer]) -> None:
        """Refuse tokens that fit no layer."""
        layers = [layer for layer in captured if isinstance(layer, CapturedLayer)]
        for side, rows in self.rows.items():
            sizes = {size for layer in layers for own, size in _sides(layer) if side in ("", own)}
            name = f"tokens[{side!r}]" if side else "tokens"
            counts = ", ".join(f"{size:,}" for size in sorted(sizes))
            if len(rows[0]) not in sizes:
                has = f"has {len(rows[0]):,} entries"
                raise ValueError(f"{name} {has}, the layers have {counts or 'no'} queries or keys")
            batches = {layer.query.shape[0] for layer in layers}
            if len(rows) not in {1, *batches}:
                listed = ", ".join(map(str, sorted(batches)))
                raise ValueError(
                    f"{name} has {len(rows)} lists, the batch has {listed} rows; give one list, or so many"
                )

    def labeled(self, layer: CapturedLayer) -> AttentionMatrix:
        """The matrix of a layer with its tokens."""
        matrix = layer.matrix
        if not self.rows and layer.grid is None:
            matrix.query_tokens = matrix.key_tokens = None
            return matrix
        query, key = (self._rows(own, size) for own, size in _sides(layer))
        if layer.grid is not None and query is None and key is None:
            key = (layer.grid.labels,)
            query = key if layer.queries == layer.keys else None
        if any(rows is not None and len(rows) > 1 for rows in (query, key)):
            labeled = LabeledMatrix(matrix._source, matrix._lead, query_start=matrix._query_start, whole=matrix._whole)
            labeled.rows = (query, key)
            return labeled.named()
        matrix.query_tokens, matrix.key_tokens = (None if rows is None else rows[0] for rows in (query, key))
        return matrix

    def _rows(self, own: str, size: int) -> Rows | None:
        """The tokens of a sequence, if there are `size`."""
        rows = self.rows.get(own, self.rows.get(""))
        return rows if rows is not None and len(rows[0]) == size else None


class LabeledMatrix(AttentionMatrix):
    """A matrix whose batch rows have tokens of their own; handles of a single row have them."""

    rows: tuple[Rows | None, Rows | None] = (None, None)

    def named(self) -> Self:
        """With the tokens of its batch row, if it is a single one."""
        numbers = (self._lead.reshape(-1) // self._whole.source.heads).unique().tolist()
        for side, rows in zip(("query_tokens", "key_tokens"), self.rows, strict=True):
            one = None if rows is None else rows[0] if len(rows) == 1 else None
            if rows is not None and len(rows) > 1 and len(numbers) == 1:
                one = rows[numbers[0]]
            setattr(self, side, one)
        return self

    def _part(self, lead: Tensor) -> Self:
        part = super()._part(lead)
        part.rows = self.rows
        return part.named()


def _sides(layer: CapturedLayer) -> tuple[tuple[str, int], tuple[str, int]]:
    """The sequences of queries and of keys, with their lengths."""
    query = "decoder" if layer.kind == "cross" else layer.kind
    key = "encoder" if layer.kind == "cross" else layer.kind
    return (query, layer.queries), (key, layer.keys)


def _rows(name: str, tokens: Any) -> Rows:
    if isinstance(tokens, str):
        raise TypeError(f"{name} must be a sequence of strings, got one string; split it first")
    if isinstance(tokens, Tensor) or not isinstance(tokens, Sequence):
        raise TypeError(
            f"{name} must be a sequence of strings, got {type(tokens).__name__}; if the model takes an argument of "
            "this name, write: with capture(model) as c: model(tokens=...)"
        )
    nested = bool(tokens) and all(isinstance(row, list | tuple) for row in tokens)
    rows = tuple(tuple(map(str, row)) for row in tokens) if nested else (tuple(map(str, tokens)),)
    if len({len(row) for row in rows}) > 1:
        sizes = ", ".join(str(len(row)) for row in rows)
        raise ValueError(f"{name} must have lists of one length, padding included, got {sizes}")
    return rows
