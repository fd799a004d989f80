"""Indexing: a matrix that is subscripted like an array, and computes the entries that a subscript selects."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from regard import checks
from regard.inspection.matrix.reductions import ReductionCall
from regard.inspection.matrix.source import Computed, Source, Stored, taken
from regard.inspection.tokens import listed
from regard.spec.normalizers import Softmax
from regard.spec.plane import CannotSliceError, Selection


def _entry(part: Any) -> Any:
    """The subscript of one axis: a slice, an int, or a tensor of ints or bools."""
    if isinstance(part, slice):
        return part
    if isinstance(part, bool | np.bool_):
        raise IndexError(f"indices must be integers, slices or lists of integers, got {part!r}")
    if isinstance(part, list | tuple | range | np.ndarray | Tensor):
        indices = part if isinstance(part, Tensor) else _tensor(np.asarray(part))
        if indices.numel() == 0:
            indices = indices.long()
        if indices.dtype == torch.bool or not (indices.is_floating_point() or indices.is_complex()):
            indices = indices.cpu() if indices.dtype == torch.bool else indices.cpu().long()
            return indices if indices.ndim else int(indices)
    try:
        index = part.__index__()
    except AttributeError:
        raise IndexError(f"indices must be integers, slices or lists of integers, got {type(part).__name__}") from None
    if not -checks.LARGEST - 1 <= index <= checks.LARGEST:
        raise IndexError(f"index {checks.written(index)} is out of range: no axis has that many entries")
    return index


def _tensor(indices: np.ndarray[Any, Any]) -> Tensor:
    if indices.dtype.kind in "uO":  # NumPy's types for integers above 2**63 - 1
        for index in indices.reshape(-1).tolist():
            if isinstance(index, bool) or not isinstance(index, int):
                kind = type(index).__name__
                raise IndexError(f"indices must be integers, slices or lists of integers, got a list with {kind}")
            _entry(index)
        indices = indices.astype(np.int64)
    return torch.as_tensor(indices, device="cpu")


def contiguous(entry: Any, count: int) -> slice | None:
    """The range of an int or of a slice of step 1; None for all other entries, and if it is empty."""
    if isinstance(entry, int):
        entry = entry + count if entry < 0 else entry
        return slice(entry, entry + 1) if 0 <= entry < count else None
    if not isinstance(entry, slice):
        return None
    start, stop, step = entry.indices(count)
    return slice(start, stop) if step == 1 and start < stop else None


def touched(entry: Any, count: int, axis: str) -> tuple[Tensor, Any]:
    """The indices along an axis that an entry selects, ascending, and the entry for an array of just these."""
    if isinstance(entry, Tensor) and entry.dtype == torch.bool and entry.shape != (count,):
        raise IndexError(f"a bool index of {axis} must have shape ({count},), got {tuple(entry.shape)}")
    numbers = torch.arange(count, device="cpu")
    try:
        backward = isinstance(entry, slice) and (entry.step or 1) < 0  # torch has no negative steps
        chosen = numbers[list(range(count)[entry])] if backward else numbers[entry]
    except IndexError:
        raise IndexError(f"index {entry} is out of range for {count} {axis}") from None
    if isinstance(entry, slice):  # a slice stays one, so that the axes of the result keep their order
        ascending = chosen if len(chosen) < 2 or chosen[1] > chosen[0] else chosen.flip(0)
        return ascending, slice(None) if ascending is chosen else ("flip",)
    if isinstance(entry, int):
        return chosen.view(1), 0
    unique, back = chosen.reshape(-1).unique(return_inverse=True)
    return unique, back.view(chosen.shape)


def applied(block: Tensor, lead: tuple[Any, ...], rows: Any, columns: Any) -> Tensor:
    """The subscript on a block that holds just what it selects."""
    entries: list[Any] = []
    for axis, entry in enumerate(lead):
        if isinstance(entry, slice) and (entry.step or 1) < 0:  # torch has no negative steps
            size = block.shape[axis]
            start, stop, step = entry.indices(size)
            block, entry = block.flip(axis), slice(size - 1 - start, size - 1 - stop, -step)
        entries.append(entry)
    for axis, entry in ((-2, rows), (-1, columns)):
        if entry == ("flip",) if isinstance(entry, tuple) else False:
            block = block.flip(axis)
            entry = slice(None)
        entries.append(entry)
    return block[tuple(entries)]


def runs(numbers: Tensor, most: int, gap: int) -> list[slice]:
    """Ascending numbers as ranges that hold them all, at most `most` long; ranges less than `gap` apart are joined."""
    ranges: list[slice] = []
    for number in numbers.tolist():
        if ranges and number - ranges[-1].stop < gap and number + 1 - ranges[-1].start <= most:
            ranges[-1] = slice(ranges[-1].start, number + 1)
        else:
            ranges.append(slice(number, number + 1))
    return ranges


MOST = 1 << 40  # numbers that no result has room for
LIMIT = 1 << 26  # most numbers that are returned at once by default
HEIGHT, WIDTH = 256, 4096  # most rows and columns of one tile that indexing computes
GAP = 16  # rows this close are computed together
Tokens = Sequence[str] | None


@dataclass
class CachedSource:
    """A source with the results of its reductions, shared by all handles of it."""

    source: Source
    results: dict[ReductionCall, Any] = field(default_factory=dict)
    parts: dict[tuple[int, ...], "CachedSource | None"] = field(default_factory=dict)

    def part(self, maps: Tensor) -> "CachedSource | None":
        """The source of one head or of all heads of one batch row, made once; None for other maps, and if the spec
        cannot be sliced to them."""
        key = tuple(maps.reshape(-1).tolist())
        if key not in self.parts:
            part = None
            if key and isinstance(self.source, Computed) and len(key) < self.source.maps:
                row, head = divmod(key[0], self.source.heads)
                all_heads = key == tuple(range(row * self.source.heads, (row + 1) * self.source.heads))
                if all_heads or len(key) == 1:
                    request = self.source.request
                    selection = Selection.of(request.plane, slice(row, row + 1), None if all_heads else head)
                    # later calls may need gradients
                    with suppress(CannotSliceError), torch.inference_mode(False), torch.enable_grad():
                        own = Computed(request.sliced(selection), self.source, maps.reshape(-1))
                        part = CachedSource(own)
            self.parts[key] = part
        return self.parts[key]


@dataclass(frozen=True)
class Origin:
    """Where weights come from: a layer of a model, by its index in the capture; what kind of layer, if the model has
    several; the numbers that the heads have in the model, if they differ from their indices; what a view should add;
    and the number of the layer in the model."""

    model: str = ""
    layer: int | None = None
    kind: str = ""
    heads: tuple[int, ...] = ()
    remark: str = ""
    number: int | None = None


class Buildable:
    """What `np.asarray`, `torch.as_tensor` and other libraries ask of a handle: all its numbers, if they are not too
    many."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where they are computed."""
        raise NotImplementedError

    def dense(self, limit: int | None = LIMIT) -> Tensor:
        """All numbers as a tensor. Refused above `limit` numbers; None is any number."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("the weights are computed when they are asked for; leave out copy=False")
        weights = self.dense().detach().cpu()
        array: np.ndarray[Any, Any] = (weights.float() if weights.dtype == torch.bfloat16 else weights).numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """All weights as a DLPack capsule, for `torch.as_tensor(A)` and other libraries."""
        return self.dense().detach().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        device: tuple[Any, int] = torch.empty(0, dtype=self.dtype, device=self.device).__dlpack_device__()
        return device


class WeightArray(Buildable):
    """Weights by index, computed when they are indexed."""

    def __init__(
        self,
        source: Source,
        lead: Tensor,
        query_tokens: Tokens = None,
        key_tokens: Tokens = None,
        *,
        query_start: Any = None,
        whole: CachedSource | None = None,
    ) -> None:
        self._query_start = query_start
        # the full matrix and this handle's maps in it; the source that computes this handle, with its maps in that
        self._whole, self._lead = CachedSource(source) if whole is None else whole, lead
        part = self._whole.part(lead)
        self._own = self._whole if part is None else part
        self._maps = lead if part is None else torch.arange(lead.numel(), device="cpu").view(lead.shape)
        self._source = self._own.source
        self.origin = Origin()
        self.query_tokens = None if query_tokens is None else _tokens("query_tokens", query_tokens, source.queries)
        self.key_tokens = None if key_tokens is None else _tokens("key_tokens", key_tokens, source.keys)

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
        """The type of the weights: at least float32 if they are computed."""
        return self._source.dtype

    @property
    def device(self) -> torch.device:
        """Where weights are computed."""
        return self._source.device

    @property
    def places(self) -> list[tuple[int, int]]:
        """The batch row of each map of this handle, and the number of its head in the model."""
        heads = self._whole.source.heads
        numbers = self.origin.heads or range(heads)
        return [(place // heads, numbers[place % heads]) for place in self._lead.reshape(-1).tolist()]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        size = " × ".join(f"{size:,}" for size in self.shape)
        if isinstance(self._source, Stored):
            return f"AttentionMatrix({size} {str(self.dtype).removeprefix('torch.')}, stored)"
        assert isinstance(self._source, Computed)
        request = self._source.request
        spec = [repr(request.score), repr(request.mask)]
        spec += [repr(part) for part in (request.bias,) if part is not None]
        if not isinstance(request.normalizer, Softmax) or request.normalizer.sink is not None:
            spec.append(repr(request.normalizer))
        full = torch.Size(self.shape).numel() * torch.finfo(self.dtype).bits // 8
        stored = request.query.nbytes + request.key.nbytes
        return f"AttentionMatrix({size}, {', '.join(spec)}; {_bytes(stored)} for {_bytes(full)})"

    def __iter__(self) -> Iterator[Any]:
        return (self[n] for n in range(len(self)))

    def __getitem__(self, given: Any) -> Any:
        """A smaller handle if only leading axes are subscripted, else the weights."""
        parts, rank = list(given) if isinstance(given, tuple) else [given], self._lead.ndim + 2
        places = [n for n, part in enumerate(parts) if part is Ellipsis]
        if len(places) > 1:
            raise IndexError("an index can have one '...' only")
        if any(part is None for part in parts):
            raise IndexError("an attention matrix takes no new axes: index the numbers that it gives instead")
        missing = rank - (len(parts) - len(places))
        if missing < 0:
            raise IndexError(f"too many indices: the matrix has {rank} axes, got {len(parts)}")
        at = places[0] if places else len(parts)
        parts[at : at + len(places)] = [slice(None)] * missing
        *lead, rows, columns = (_entry(part) for part in parts)
        everything = all(isinstance(entry, slice) and entry == slice(None) for entry in (rows, columns))
        if not everything and not all(isinstance(entry, int | slice) for entry in lead):
            return self._numbers(tuple(lead), rows, columns, LIMIT)
        index = tuple(entry.numpy() if isinstance(entry, Tensor) else entry for entry in lead)
        part = self._part(torch.as_tensor(self._lead.numpy()[index].copy(), device="cpu"))
        return part if everything else part._numbers((slice(None),) * part._lead.ndim, rows, columns, LIMIT)

    def dense(self, limit: int | None = LIMIT) -> Tensor:
        """All weights as a tensor. Refused above `limit` numbers; None is any number."""
        rest = slice(None)
        return self._numbers((rest,) * self._lead.ndim, rest, rest, limit)

    def _part(self, lead: Tensor) -> Self:
        start = self._query_start
        part = type(self)(
            self._whole.source, lead, self.query_tokens, self.key_tokens, query_start=start, whole=self._whole
        )
        part.origin = self.origin
        return part

    def _numbers(self, lead: tuple[Any, ...], rows: Any, columns: Any, limit: int | None) -> Tensor:
        maps = self._maps
        down_run, right_run = contiguous(rows, self._source.queries), contiguous(columns, self._source.keys)
        all_maps = all(isinstance(entry, slice) and entry == slice(None) for entry in lead)
        if all_maps and down_run and right_run:
            cells = (down_run.stop - down_run.start) * (right_run.stop - right_run.start)
        if all_maps and down_run and right_run and cells <= HEIGHT * WIDTH:
            self._refuse(maps.numel() * cells, limit)
            tile = taken(self._source.tile(down_run, right_run), maps)
            tile = tile[..., 0] if isinstance(columns, int) else tile
            return tile.select(maps.ndim, 0) if isinstance(rows, int) else tile
        (down, row_entry), (right, column_entry) = (
            touched(rows, self._source.queries, "rows"),
            touched(columns, self._source.keys, "columns"),
        )
        self._refuse(maps.numel() * len(down) * len(right), limit)
        return applied(self._block(maps, down, right), lead, row_entry, column_entry)

    @staticmethod
    def _refuse(count: int, limit: int | None) -> None:
        if limit is not None and count > limit:
            raise ValueError(
                f"this would build {count:,} weights, more than {limit:,}; look at A.pool(rows, cols), ask for fewer "
                "rows and columns, or say A.dense(limit=None)"
            )

    def _block(self, maps: Tensor, down: Tensor, right: Tensor) -> Tensor:
        weights = torch.zeros((maps.numel(), len(down), len(right)), dtype=self.dtype, device=self.device)
        flat = maps.reshape(-1)
        for rows in runs(down, HEIGHT, GAP):
            inside = (down >= rows.start) & (down < rows.stop)
            for columns in runs(right, WIDTH, WIDTH):
                within = (right >= columns.start) & (right < columns.stop)
                tile = self._source.tile(rows, columns)[flat]
                some = tile[:, down[inside] - rows.start][..., right[within] - columns.start]
                first, left = int(inside.nonzero()[0]), int(within.nonzero()[0])
                weights[:, first : first + some.shape[1], left : left + some.shape[2]] = some
        return weights.view(*maps.shape, *weights.shape[1:])


def _tokens(name: str, tokens: Sequence[str], count: int) -> tuple[str, ...]:
    if isinstance(tokens, str):
        raise TypeError(f"{name} must be a sequence of {count} strings, got one string; split it first")
    if len(tokens) != count:
        raise ValueError(f"{name} must be {count} strings, one for each, got {len(tokens)}")
    return listed(tokens)


def _bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.0f} TiB"
