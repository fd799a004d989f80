"""Weights written as safetensors, one tensor in memory at a time."""

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from regard.progress import report

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

_ALIGNED = 8


@dataclass(frozen=True)
class Slot:
    """The place of one float32 tensor in the file."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return 4 * prod(self.shape)


def write(path: Path, slots: list[Slot], tensors: Iterable["NDArray[float32]"]) -> None:
    """Write a new file: the header that the slots describe, then the tensors in the same order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for slot in slots:
        start, end = end, end + slot.size
        header[slot.name] = {"dtype": "F32", "shape": list(slot.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    done = 0
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for slot, tensor in zip(slots, tensors, strict=True):
            report("converting", done, end, "bytes")
            if tensor.shape != slot.shape:
                raise ValueError(f"{slot.name} should have the shape {slot.shape}, got {tensor.shape}")
            file.write(tensor.astype("<f4", order="C", copy=False).data)
            done += slot.size
        report("converting", done, end, "bytes")
