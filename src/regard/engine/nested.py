"""Jagged nested tensors: sequences of different length as one call, padded inside and packed again."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard import checks
from regard.engine.arguments import Shapes, bias_of, mask_of
from regard.engine.request import Aux, depends_on_positions
from regard.spec.masks import Documents
from regard.spec.masks.extent import starts_of

NAMES = ("query", "key", "value")


def is_jagged(tensor: object) -> bool:
    """Whether it is a nested tensor of layout torch.jagged; those of layout torch.strided are not taken."""
    return isinstance(tensor, Tensor) and tensor.is_nested and tensor.layout == torch.jagged


@dataclass(frozen=True, eq=False)
class Sequences:
    """The sequences of a jagged tensor. `offsets` (batch + 1,) and `holes` (batch,) or None are what it was made with.

    `packed` are their places in the tensor's buffer, `padded` those in (batch · longest) rows, all rows one after
    another.
    """

    offsets: Tensor
    holes: Tensor | None
    lengths: Tensor
    packed: Tensor
    padded: Tensor
    longest: int

    @classmethod
    def of(cls, tensor: Tensor) -> "Sequences":
        """Those of a jagged tensor."""
        jagged: Any = tensor
        offsets, holes = jagged.offsets(), jagged.lengths()
        lengths = offsets.diff() if holes is None else holes
        longest = int(lengths.max()) if lengths.numel() else 0
        column = torch.arange(longest, device=offsets.device)
        row, column = (column < lengths.unsqueeze(1)).nonzero(as_tuple=True)
        return cls(offsets, holes, lengths, offsets[row] + column, row * longest + column, longest)

    def pad(self, tensor: Tensor) -> Tensor:
        """(batch, head, rows, width) as a dense tensor with zeros behind the end of each sequence."""
        buffer = tensor.values().transpose(0, 1)  # (rows, head, width)
        rows = buffer.new_zeros((len(self.lengths) * self.longest, *buffer.shape[1:]))
        rows = rows.index_copy(0, self.padded, buffer.index_select(0, self.packed))
        padded: Tensor = rows.unflatten(0, (len(self.lengths), self.longest)).transpose(1, 2)
        return padded

    def pack(self, tensor: Tensor, like: Tensor) -> Tensor:
        """(batch, head, longest, …) as a nested tensor with the same offsets as `like`."""
        rows = tensor.transpose(1, 2).flatten(0, 1).index_select(0, self.padded)
        if self.holes is not None:
            buffer = rows.new_zeros((like.values().shape[1], *rows.shape[1:]))
            rows = buffer.index_copy(0, self.packed, rows)
        jagged = torch.nested.nested_tensor_from_jagged(rows, offsets=self.offsets, lengths=self.holes)
        packed: Tensor = jagged.transpose(1, 2)
        return packed


@dataclass(frozen=True, eq=False)
class Padded:
    """A call with nested inputs as one with dense inputs, and its results as nested tensors again."""

    given: tuple[Tensor, Tensor, Tensor]
    rows: tuple[Sequences | None, ...]  # of the queries and of the keys; None where they are dense
    inputs: tuple[Tensor, Tensor, Tensor]
    mask: Any
    query_start: int | Tensor | None

    @classmethod
    def of(cls, given: tuple[Tensor, Tensor, Tensor], spec: dict[str, Any], aux: Any) -> "Padded":
        """Check the three inputs and pad them. Padding is hidden, and positions count from each sequence's start."""
        _check(given)
        rows = tuple(Sequences.of(part) if part.is_nested else None for part in given[:2])
        q, k, v = (part if at is None else at.pad(part) for part, at in zip(given, (*rows, rows[1]), strict=True))
        shapes = Shapes.of(q, k, v)
        queries, keys = (_lengths(at, part, shapes.batch) for at, part in zip(rows, (q, k), strict=True))
        visible = mask_of(spec["mask"], shapes)
        start = spec["query_start"]
        if start is None:
            added = None if spec["bias"] is None else bias_of(spec["bias"], shapes)
            positional = depends_on_positions(spec["score"], visible, added, shapes.queries, aux)
            for pair in set(zip(queries.tolist(), keys.tolist(), strict=True)):
                starts_of(None, *pair, 1, visible, positional)
            start = keys - queries
        if any(at is not None and bool((at.lengths < at.longest).any()) for at in rows):
            # ids of two kinds of padding: a key that is no key, and a query that sees none
            padding = [
                torch.arange(size, device="cpu") >= lengths.unsqueeze(1)
                for size, lengths in ((shapes.keys, keys), (shapes.queries, queries))
            ]
            visible = visible & Documents(padding[0].long(), 2 * padding[1].long())
        return cls(given, rows, (q, k, v), visible, start)

    def results(self, found: Tensor | tuple[Tensor, Aux]) -> Tensor | tuple[Tensor, Aux]:
        """Output and statistics with the offsets of the queries; `received` with those of the keys."""
        if isinstance(found, Tensor):
            return self._packed(found, 0)
        statistics = {
            name: self._packed(tensor, 1 if name == "received" else 0)
            for name, tensor in vars(found[1]).items()
            if tensor is not None
        }
        return self._packed(found[0], 0), Aux(**statistics)

    def _packed(self, tensor: Tensor, of: int) -> Tensor:
        rows = self.rows[of]
        return tensor if rows is None else rows.pack(tensor, self.given[of])


def _lengths(rows: Sequences | None, tensor: Tensor, batch: int) -> Tensor:
    if rows is not None:
        return rows.lengths.cpu()
    return torch.full((batch,), tensor.shape[-2], device="cpu", dtype=torch.int64)


def _check(given: tuple[Tensor, Tensor, Tensor]) -> None:
    nested = [name for name, tensor in zip(NAMES, given, strict=True) if is_jagged(tensor)]
    for name, tensor in zip(NAMES, given, strict=True):
        if name not in nested:
            checks.is_tensor(name, tensor)
    for name, tensor in zip(NAMES, given, strict=True):
        if name not in nested:
            if tensor.ndim != 4 or tensor.shape[0] not in (1, _batch(given)):
                raise ValueError(
                    f"{name} must be (batch, head, length, width) beside nested {' and '.join(nested)} with "
                    f"{_batch(given)} sequences, got shape {checks.shape(tensor)}; batch is 1 or equal"
                )
            continue
        ragged = next(axis for axis, size in enumerate(tensor.shape) if type(size) is not int)  # a symbol
        if tensor.ndim != 4 or ragged != 2:
            hint = "call .transpose(1, 2)" if tensor.ndim == 4 and ragged == 1 else "give it an axis for heads"
            raise ValueError(
                f"{name} must be a nested tensor (batch, head, length, width) whose lengths differ, "
                f"got shape {checks.shape(tensor)}; {hint}"
            )
    _, key, value = given
    if key.is_nested != value.is_nested:
        raise ValueError(f"key and value must both be nested or both dense, only {nested[-1]} is nested")
    if key.is_nested and not torch.equal(Sequences.of(key).lengths, Sequences.of(value).lengths):
        raise ValueError(
            f"key and value must have the same length in every sequence, got {Sequences.of(key).lengths.tolist()} and "
            f"{Sequences.of(value).lengths.tolist()}"
        )
    batches = {name: tensor.shape[0] for name, tensor in zip(NAMES, given, strict=True) if tensor.is_nested}
    if len(set(batches.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in batches.items())
        raise ValueError(f"nested inputs must have the same number of sequences, got {listed}")


def _batch(given: tuple[Tensor, Tensor, Tensor]) -> int:
    return next(int(tensor.shape[0]) for tensor in given if tensor.is_nested)
