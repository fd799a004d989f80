"""Spill: queries and keys that memory is too small for go to a temporary file, and are mapped."""

import mmap
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from regard.inspection.capture.growing import Growing
from regard.inspection.saved.tensors import ALIGNED, put, view

SHARE = 8  # one part in so many of the machine's memory is kept before anything is spilled


class Spill:
    """A file without a name beside `folder`'s others (the one for temporary files if None), which is gone with the
    process, however that ends."""

    def __init__(self, budget: int | None = None, folder: Path | None = None) -> None:
        self._budget = _share() if budget is None else budget
        self._folder = folder
        self._file: BinaryIO | None = None
        self.spilled = 0  # bytes

    def watch(self, growing: Iterable[Growing]) -> None:
        """Move what is in memory to the file if it is more than the budget."""
        growing = list(growing)
        if sum(each.resident for each in growing) > self._budget:
            waiting = [(each, tensor) for each in growing if (tensor := each.pending()) is not None]
            for (each, _), tensor in zip(waiting, self.move([tensor for _, tensor in waiting]), strict=True):
                each.moved(tensor)

    def move(self, tensors: list[Tensor]) -> list[Tensor]:
        """The same tensors on mapped memory."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="regard-", dir=self._folder)  # noqa: SIM115
        grain = mmap.ALLOCATIONGRANULARITY
        first = -(-self._file.seek(0, os.SEEK_END) // grain) * grain
        places, end = [], first
        try:
            for tensor in tensors:
                end = -(-end // ALIGNED) * ALIGNED
                self._file.seek(end)
                put(self._file, tensor)
                places.append(end - first)
                end = self._file.tell()
            self._file.flush()
        except OSError as error:
            folder = tempfile.gettempdir() if self._folder is None else self._folder
            raise OSError(
                f"{folder} has no room for what the capture spills ({error}); set TMPDIR to a folder that has, give "
                "spill='run.safetensors' in one, or keep fewer layers or heads"
            ) from error
        self.spilled += end - first
        if end == first:
            return tensors
        data = mmap.mmap(self._file.fileno(), end - first, access=mmap.ACCESS_READ, offset=first)
        shapes = zip(tensors, places, strict=True)
        return [view(data, place, tensor.dtype, tuple(tensor.shape)) for tensor, place in shapes]

    def close(self) -> None:
        """Nothing more will be written; what is mapped stays."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _share() -> int:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        memory = 16 << 30
    return memory // SHARE
