"""Tensors that are appended to, and spilled to a temporary file when memory is short."""

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from regard.inspection.tensor_file import ALIGNED, put, view


@dataclass(eq=False)
class AppendedTensor:
    """A tensor (…, length, width) in chunks; older ones may be spilled. Chunks in memory are joined by size, so that
    each is copied O(log n) times."""

    _resident: list[Tensor]
    _spilled: list[Tensor] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(chunk.shape[-2] for chunk in (*self._spilled, *self._resident))

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes before length and width."""
        return tuple((*self._spilled, *self._resident)[0].shape[:-2])

    @property
    def resident(self) -> int:
        """Bytes in main memory; tensors on other devices are not spilled."""
        return sum(chunk.numel() * chunk.element_size() for chunk in self._resident if chunk.device.type == "cpu")

    def append(self, tensor: Tensor) -> None:
        """Append a chunk."""
        if not tensor.shape[-2]:
            return
        while self._resident and self._resident[-1].shape[-2] <= tensor.shape[-2]:
            tensor = torch.cat([self._resident.pop(), tensor], -2)
        self._resident.append(tensor)

    def ends_with(self, tensor: Tensor) -> bool:
        """Whether its last entries are these, bit by bit."""
        stop = tensor.shape[-2]
        for chunk in reversed((*self._spilled, *self._resident)):
            count = min(stop, chunk.shape[-2])
            if not torch.equal(chunk[..., chunk.shape[-2] - count :, :], tensor[..., stop - count : stop, :]):
                return False
            stop -= count
        return stop == 0

    def pending(self) -> Tensor | None:
        """The chunks in memory, as one tensor."""
        if not self.resident:
            return None
        self._resident = [torch.cat(self._resident, -2)] if len(self._resident) > 1 else self._resident
        return self._resident[0]

    def spilled(self, tensor: Tensor) -> None:
        """Replace the pending chunks by their mapped copy."""
        self._spilled.append(tensor)
        self._resident = []

    def joined(self) -> Tensor:
        """All chunks as one tensor."""
        chunks = [*self._spilled, *self._resident]
        return torch.cat(chunks, -2) if len(chunks) > 1 else chunks[0]

    def order(self, tensor: Tensor) -> Tensor | None:
        """The indices of our batch rows that equal the rows of a tensor, bit by bit; None if one equals none."""
        ours = self.joined()
        if ours.ndim < 4 or ours.shape != tensor.shape:
            return None
        order = []
        alike = (ours[:, None, ..., -1, :] == tensor[None, ..., -1, :]).flatten(2).all(-1)  # by their last entries
        for row in range(len(tensor)):
            same = [each for each in alike[:, row].nonzero().flatten().tolist() if torch.equal(ours[each], tensor[row])]
            if not same:
                return None
            order.append(row if row in same else same[0])
        return torch.tensor(order, device=ours.device, dtype=torch.int64)

    def reorder(self, order: Tensor) -> None:
        """Take other batch rows."""
        self._spilled, self._resident = [], [self.joined()[order]]


SHARE = 8  # the budget is the machine's memory divided by this


class SpillFile:
    """A temporary file without a name in `folder` (by default that for temporary files). The system removes it with the
    process."""

    def __init__(self, budget: int | None = None, folder: Path | None = None) -> None:
        if budget is None:
            try:
                budget = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // SHARE
            except (AttributeError, OSError, ValueError):
                budget = (16 << 30) // SHARE
        self._budget, self._folder = budget, folder
        self.file: BinaryIO | None = None

    def spill_above_budget(self, tensors: Sequence[AppendedTensor]) -> None:
        """Move what is in memory to the file if it is more than the budget."""
        if sum(each.resident for each in tensors) > self._budget:
            pending = [(each, tensor) for each in tensors if (tensor := each.pending()) is not None]
            for (each, _), tensor in zip(pending, self.move([tensor for _, tensor in pending]), strict=True):
                each.spilled(tensor)

    def move(self, tensors: list[Tensor]) -> list[Tensor]:
        """The same tensors on mapped memory."""
        if self.file is None:
            self.file = tempfile.TemporaryFile(prefix="regard-", dir=self._folder)  # noqa: SIM115
        grain = mmap.ALLOCATIONGRANULARITY
        first = -(-self.file.seek(0, os.SEEK_END) // grain) * grain
        places, end = [], first
        try:
            for tensor in tensors:
                end = -(-end // ALIGNED) * ALIGNED
                self.file.seek(end)
                put(self.file, tensor)
                places.append(end - first)
                end = self.file.tell()
            self.file.flush()
        except OSError as error:
            folder = tempfile.gettempdir() if self._folder is None else self._folder
            raise OSError(
                f"{folder} has no room for what the capture spills ({error}); set TMPDIR to a folder that has, give "
                "spill='run.safetensors' in one, or keep fewer layers or heads"
            ) from error
        if end == first:
            return tensors
        data = mmap.mmap(self.file.fileno(), end - first, access=mmap.ACCESS_READ, offset=first)
        shapes = zip(tensors, places, strict=True)
        return [view(data, place, tensor.dtype, tuple(tensor.shape)) for tensor, place in shapes]

    def close(self, tensors: Sequence[AppendedTensor]) -> None:
        """Write tensors that were spilled in parts again as one, and close the file; what is mapped stays."""
        for tensor in tensors:
            if tensor._spilled and len(tensor._spilled) + len(tensor._resident) > 1:
                tensor._spilled, tensor._resident = self.move([tensor.joined()]), []
        assert self.file is not None
        self.file.close()
        self.file = None
