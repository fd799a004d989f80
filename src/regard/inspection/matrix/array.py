"""Array: what makes a handle an array: its shape, smaller handles, and numbers by rows and columns."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from regard import checks
from regard.inspection.matrix.index import applied, contiguous, runs, subscript, taken, touched
from regard.inspection.matrix.parts import Part
from regard.inspection.matrix.source import Computed, Source, Stored
from regard.spec.normalizers import Softmax

LIMIT = 1 << 26  # numbers that are given at once without being told to
HEIGHT, WIDTH = 256, 4096  # most rows and columns of one tile that indexing computes
GAP = 16  # rows this close are computed together
Tokens = Sequence[str] | None


class Array:
    """Weights by index; none is computed before it is asked for."""

    def __init__(
        self,
        source: Source,
        lead: Tensor,
        query_tokens: Tokens = None,
        key_tokens: Tokens = None,
        *,
        query_start: Any = None,
        whole: Part | None = None,
    ) -> None:
        self._query_start = query_start
        # the whole matrix and this handle's lanes in it; and what is computed for this handle, with its lanes in that
        self._whole, self._lead = Part(source) if whole is None else whole, lead
        part = self._whole.of(lead)
        self._near = self._whole if part is None else part
        self._lanes = lead if part is None else torch.arange(lead.numel(), device="cpu").view(lead.shape)
        self._source = self._near.source
        self.query_tokens = _tokens("query_tokens", query_tokens, source.queries)
        self.key_tokens = _tokens("key_tokens", key_tokens, source.keys)

    @property
    def shape(self) -> tuple[int, ...]:
        """(…, query, key)."""
        return (*self._lead.shape, self._source.queries, self._source.keys)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._lead.ndim + 2

    @property
    def dtype(self) -> torch.dtype:
        """What weights come in: at least float32 if they are computed."""
        return self._source.dtype

    @property
    def device(self) -> torch.device:
        """Where weights are computed."""
        return self._source.device

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        size = " × ".join(f"{size:,}" for size in self.shape)
        if isinstance(self._source, Stored):
            return f"AttentionMatrix({size} {checks.dtype(self._source.weights)}, stored)"
        assert isinstance(self._source, Computed)
        asked = self._source.request
        spec = [repr(asked.score), repr(asked.mask)]
        spec += [repr(part) for part in (asked.bias,) if part is not None]
        if not isinstance(asked.normalizer, Softmax) or asked.normalizer.sink is not None:
            spec.append(repr(asked.normalizer))
        whole = torch.Size(self.shape).numel() * torch.finfo(self.dtype).bits // 8
        kept = asked.query.nbytes + asked.key.nbytes
        return f"AttentionMatrix({size}, {', '.join(spec)}; {_bytes(kept)} for {_bytes(whole)})"

    def __iter__(self) -> Iterator[Any]:
        return (self[n] for n in range(len(self)))

    def __getitem__(self, given: Any) -> Any:
        """A smaller handle if only leading axes are chosen, else the weights."""
        asked = subscript(given, self.ndim)
        if asked.leading_only:
            return self._part(_picked(self._lead, asked.lead))
        if all(isinstance(entry, int | slice) for entry in asked.lead):
            part = self._part(_picked(self._lead, asked.lead))
            return part._numbers((slice(None),) * part._lead.ndim, asked.rows, asked.columns, LIMIT)
        return self._numbers(asked.lead, asked.rows, asked.columns, LIMIT)

    def dense(self, limit: int | None = LIMIT) -> Tensor:
        """All weights as a tensor. Refused above `limit` numbers; None is any number."""
        rest = slice(None)
        return self._numbers((rest,) * self._lead.ndim, rest, rest, limit)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = self.dense().detach().cpu().numpy()
        return found if dtype is None else found.astype(dtype)

    def _part(self, lead: Tensor) -> Self:
        start = self._query_start
        return type(self)(
            self._whole.source, lead, self.query_tokens, self.key_tokens, query_start=start, whole=self._whole
        )

    def _numbers(self, lead: tuple[Any, ...], rows: Any, columns: Any, limit: int | None) -> Tensor:
        lanes = self._lanes
        down_run, right_run = contiguous(rows, self._source.queries), contiguous(columns, self._source.keys)
        plain = all(entry == slice(None) if isinstance(entry, slice) else False for entry in lead)
        few = down_run and right_run and _cells(down_run, right_run) <= HEIGHT * WIDTH
        if plain and down_run and right_run and few:
            self._refuse(lanes.numel() * _cells(down_run, right_run), limit)
            tile = taken(self._source.tile(down_run, right_run), lanes)
            tile = tile[..., 0] if isinstance(columns, int) else tile
            return tile.select(lanes.ndim, 0) if isinstance(rows, int) else tile
        (down, row_entry), (right, column_entry) = (
            touched(rows, self._source.queries, "rows"),
            touched(columns, self._source.keys, "columns"),
        )
        self._refuse(lanes.numel() * len(down) * len(right), limit)
        return applied(self._block(lanes, down, right), lead, row_entry, column_entry)

    @staticmethod
    def _refuse(count: int, limit: int | None) -> None:
        if limit is not None and count > limit:
            raise ValueError(
                f"this would build {count:,} weights, more than {limit:,}; look at A.pool(rows, cols), ask for fewer "
                "rows and columns, or say A.dense(limit=None)"
            )

    def _block(self, lanes: Tensor, down: Tensor, right: Tensor) -> Tensor:
        found = torch.zeros((lanes.numel(), len(down), len(right)), dtype=self.dtype, device=self.device)
        flat = lanes.reshape(-1)
        for rows in runs(down, HEIGHT, GAP):
            inside = (down >= rows.start) & (down < rows.stop)
            for columns in runs(right, WIDTH, WIDTH):
                within = (right >= columns.start) & (right < columns.stop)
                tile = self._source.tile(rows, columns)[flat]
                some = tile[:, down[inside] - rows.start][..., right[within] - columns.start]
                first, left = int(inside.nonzero()[0]), int(within.nonzero()[0])
                found[:, first : first + some.shape[1], left : left + some.shape[2]] = some
        return found.view(*lanes.shape, *found.shape[1:])


def _cells(rows: slice, columns: slice) -> int:
    count: int = (rows.stop - rows.start) * (columns.stop - columns.start)
    return count


def _picked(lead: Tensor, entries: tuple[Any, ...]) -> Tensor:
    found: Tensor = torch.as_tensor(lead.numpy()[tuple(_numpy(entry) for entry in entries)].copy(), device="cpu")
    return found


def _numpy(entry: Any) -> Any:
    return entry.numpy() if isinstance(entry, Tensor) else entry


def _tokens(name: str, tokens: Tokens, count: int) -> tuple[str, ...] | None:
    if tokens is None:
        return None
    if isinstance(tokens, str):
        raise TypeError(f"{name} must be a sequence of {count} strings, got one string; split it first")
    if len(tokens) != count:
        raise ValueError(f"{name} must be {count} strings, one for each, got {len(tokens)}")
    return tuple(map(str, tokens))


def _bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.0f} TiB"
