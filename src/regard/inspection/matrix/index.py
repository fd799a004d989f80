"""Indexing as arrays are indexed: what a subscript touches, and the same subscript on what was computed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Subscript:
    """One entry per axis: slices, ints, or tensors of ints or bools. `lead` are those before rows and columns."""

    lead: tuple[Any, ...]
    rows: Any
    columns: Any

    @property
    def leading_only(self) -> bool:
        """Whether no row and no column was chosen."""
        return all(isinstance(entry, slice) and entry == slice(None) for entry in (self.rows, self.columns))


def subscript(given: Any, rank: int) -> Subscript:
    """A subscript of `rank` axes, the last two of them rows and columns."""
    parts = list(given) if isinstance(given, tuple) else [given]
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
    entries = tuple(_entry(part) for part in parts)
    return Subscript(entries[:-2], entries[-2], entries[-1])


def _entry(part: Any) -> Any:
    if isinstance(part, slice):
        return part
    if isinstance(part, bool | np.bool_):
        raise IndexError(f"indices must be integers, slices or lists of integers, got {part!r}")
    if isinstance(part, list | tuple | range | np.ndarray | Tensor):
        found = torch.as_tensor(np.asarray(part) if not isinstance(part, Tensor) else part, device="cpu")
        if found.numel() == 0:
            found = found.long()
        if found.dtype == torch.bool or not (found.is_floating_point() or found.is_complex()):
            found = found.cpu() if found.dtype == torch.bool else found.cpu().long()
            return found if found.ndim else int(found)
    try:
        return part.__index__()
    except AttributeError:
        raise IndexError(f"indices must be integers, slices or lists of integers, got {type(part).__name__}") from None


def taken(tensor: Tensor, lanes: Tensor) -> Tensor:
    """(lane, …) to the axes of `lanes`; a copy, so that nobody writes into what is kept."""
    return tensor[lanes.reshape(-1).to(tensor.device)].view(*lanes.shape, *tensor.shape[1:])


def contiguous(entry: Any, count: int) -> slice | None:
    """The range that an int or a slice of step 1 touches; None for all else, and for nothing."""
    if isinstance(entry, int):
        entry = entry + count if entry < 0 else entry
        return slice(entry, entry + 1) if 0 <= entry < count else None
    if not isinstance(entry, slice):
        return None
    start, stop, step = entry.indices(count)
    return slice(start, stop) if step == 1 and start < stop else None


def touched(entry: Any, count: int, axis: str) -> tuple[Tensor, Any]:
    """The numbers along an axis that an entry needs, ascending, and the entry for an array of just these."""
    if isinstance(entry, Tensor) and entry.dtype == torch.bool and entry.shape != (count,):
        raise IndexError(f"a bool index of {axis} must have shape ({count},), got {tuple(entry.shape)}")
    numbers = torch.arange(count, device="cpu")
    try:
        chosen = numbers[_forward(entry, count)] if isinstance(entry, slice) else numbers[entry]
    except IndexError:
        raise IndexError(f"index {entry} is out of range for {count} {axis}") from None
    if isinstance(entry, slice):  # a slice stays one, so that the axes of the result stay in order
        ascending = chosen if len(chosen) < 2 or chosen[1] > chosen[0] else chosen.flip(0)
        return ascending, slice(None) if ascending is chosen else ("flip",)
    if isinstance(entry, int):
        return chosen.view(1), 0
    unique, back = chosen.reshape(-1).unique(return_inverse=True)
    return unique, back.view(chosen.shape)


def _forward(entry: slice, count: int) -> Any:
    """torch has no negative steps: the numbers themselves instead."""
    return torch.arange(count, device="cpu").tolist()[entry] if (entry.step or 1) < 0 else entry


def applied(block: Tensor, lead: tuple[Any, ...], rows: Any, columns: Any) -> Tensor:
    """The subscript on a block that holds just what it touches."""
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
    """Ascending numbers as ranges that hold them all, at most `most` long; ranges less than `gap` apart are one."""
    found: list[slice] = []
    for number in numbers.tolist():
        if found and number - found[-1].stop < gap and number + 1 - found[-1].start <= most:
            found[-1] = slice(found[-1].start, number + 1)
        else:
            found.append(slice(number, number + 1))
    return found
