"""Tensors in a file: safetensors, written from start to end, and mapped instead of read."""

import json
import mmap
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.inspection.matrix.progress import Progress

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNED = 64  # bytes; no number has more, and vectors like to begin here
PIECE = 1 << 24  # bytes handed to the file at once
LONGEST = 100_000_000  # bytes of a header that safetensors reads


class Contents(NamedTuple):
    """The text that a file keeps about itself, and its tensors, of which nothing has been read."""

    texts: dict[str, str]
    tensors: dict[str, Tensor]


class Gathered:
    """Tensors to be written, each under one name however often it comes."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def add(self, name: str, tensor: Tensor) -> str:
        """The name that the tensor has in the file; it is held until then, so that its place in memory is its own."""
        if tensor.dtype not in NAMES:
            raise TypeError(f"{name} is {tensor.dtype}, which a file of tensors has no name for; convert it first")
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
        if tensor.numel() and place in self._names:
            return self._names[place]
        while name in self.tensors:
            name += "_"
        self.tensors[name] = tensor.detach()
        self._names[place] = name
        return name


def write(path: Path, texts: dict[str, str], tensors: dict[str, Tensor]) -> None:
    """A new file of these. Wide numbers come first, so that all stand where they can be used without a copy."""
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header: dict[str, Any] = {"__metadata__": texts}
    end = 0
    for name in order:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNED)
    if len(text) > LONGEST:
        raise ValueError(f"the tokens and names take {len(text):,} bytes, more than the {LONGEST:,} of a header")
    with path.open("wb") as file, Progress() as progress:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            put(file, tensors[name])
            progress(header[name]["data_offsets"][1], end)


def put(file: BinaryIO, tensor: Tensor) -> None:
    """The bytes of a tensor, one piece after the other."""
    for part in _pieces(tensor.detach()):
        flat = part.cpu().contiguous().reshape(-1).view(torch.uint8)
        for first in range(0, len(flat), PIECE):
            file.write(flat[first : first + PIECE].numpy().data)


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Parts of a tensor that has to be copied first."""
    copies = not tensor.is_contiguous() or tensor.device.type != "cpu"
    if copies and tensor.ndim > 1 and tensor.numel() * tensor.element_size() > PIECE:
        for part in tensor:
            yield from _pieces(part)
    else:
        yield tensor


def mapped(path: Path) -> Contents:
    """What is in a file of safetensors. It is checked to be whole, and read where and when a tensor is used."""
    try:
        with safe_open(str(path), "numpy") as file:
            texts = file.metadata() or {}
            names = list(file.keys())
    except SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file, or a damaged one ({error})") from error
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tensors = {}
    for name in names:
        entry = header[name]
        if entry["dtype"] in DTYPES:  # others are nobody's of ours
            start = 8 + size + entry["data_offsets"][0]
            tensors[name] = view(data, start, DTYPES[entry["dtype"]], tuple(entry["shape"]))
    return Contents(texts, tensors)


def view(data: mmap.mmap, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A tensor on mapped bytes; a copy where it stands between the places of its numbers."""
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it cannot be written to: nobody does
        if start % dtype.itemsize:
            copy = torch.frombuffer(data, dtype=torch.uint8, count=count * dtype.itemsize, offset=start).clone()
            return copy.view(dtype).view(shape)
        return torch.frombuffer(data, dtype=dtype, count=count, offset=start).view(shape)
