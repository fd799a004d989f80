"""Tensors in a file: safetensors with checksums, mapped instead of read."""

import json
import mmap
import os
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.progress import display, report

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
ALIGNED = 64  # bytes; a multiple of every element's size, and a cache line
PIECE = 1 << 24  # bytes handed to the file at once
LONGEST = 100_000_000  # bytes of a header that safetensors reads
CHECKSUMS = "checksums"  # the text with the CRC-32 of each tensor, and under "" of the header
UNKNOWN = "00000000"


class FileRange(NamedTuple):
    """Where the bytes of a tensor are in a file, and their checksum."""

    start: int
    size: int
    checksum: str


class Contents(NamedTuple):
    """The text that a file keeps about itself, and its tensors, of which nothing has been read.

    `places` are of the tensors that have a checksum.
    """

    path: Path
    texts: dict[str, str]
    tensors: dict[str, Tensor]
    data: mmap.mmap
    places: dict[str, FileRange]

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Read these tensors, all if None, and raise if one is not what was written."""
        for name in self.places if names is None else names:
            place = self.places.get(name)
            if place is not None and _checksum(self.data, place.start, place.size) != place.checksum:
                raise ValueError(f"{self.path} is damaged (the checksum of {name!r} is wrong); save it again")


class Noted(dict[str, Tensor]):
    """Tensors by name, and which of them were taken."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__(tensors)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.names.add(name)
        return super().__getitem__(name)


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
    header: dict[str, Any] = {}
    end = 0
    for name in order:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    sums = dict.fromkeys(order, UNKNOWN)
    head = _head(texts, header, sums)
    if len(head) > LONGEST:
        raise ValueError(f"the tokens and names take {len(head):,} bytes, more than the {LONGEST:,} of a header")
    with path.open("wb") as file, display():
        file.write(head)
        for name in order:
            sums[name] = put(file, tensors[name])
            report("writing", header[name]["data_offsets"][1], end, "bytes")
        file.seek(0)
        file.write(_head(texts, header, sums))


def _head(texts: dict[str, str], header: dict[str, Any], sums: dict[str, str]) -> bytes:
    """The length of the header and the header; its size does not depend on the checksums."""
    checksums = json.dumps({"": _described(texts, header, sums), **sums}, separators=(",", ":"))
    text = json.dumps({"__metadata__": {**texts, CHECKSUMS: checksums}, **header}, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNED)
    return struct.pack("<Q", len(text)) + text


def _described(texts: dict[str, str], header: dict[str, Any], sums: dict[str, str]) -> str:
    """The checksum of all that a header says."""
    return f"{zlib.crc32(json.dumps([texts, header, sums], sort_keys=True).encode()):08x}"


def put(file: BinaryIO, tensor: Tensor) -> str:
    """Write the bytes of a tensor, one piece after the other; their checksum."""
    checksum = 0
    for part in _pieces(tensor.detach()):
        flat = part.cpu().contiguous().reshape(-1).view(torch.uint8)
        for first in range(0, len(flat), PIECE):
            piece = flat[first : first + PIECE].numpy().data
            checksum = zlib.crc32(piece, checksum)
            file.write(piece)
    return f"{checksum:08x}"


def _checksum(data: mmap.mmap, start: int, size: int) -> str:
    checksum = 0
    with memoryview(data) as whole:
        for first in range(start, start + size, PIECE):
            checksum = zlib.crc32(whole[first : min(first + PIECE, start + size)], checksum)
    return f"{checksum:08x}"


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Parts of a tensor that has to be copied first."""
    copies = not tensor.is_contiguous() or tensor.device.type != "cpu"
    if copies and tensor.ndim > 1 and tensor.numel() * tensor.element_size() > PIECE:
        for part in tensor:
            yield from _pieces(part)
    else:
        yield tensor


def mapped(path: Path) -> Contents:
    """What is in a file of safetensors. Its header is checked; tensors are read where and when they are used, and
    checked by `verify`. A file without checksums, such as one of somebody else, is taken as it is."""
    file, texts, names = _opened(path)
    with file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header.pop("__metadata__", None)
    sums = _sums(path, texts, header)
    tensors, places = {}, {}
    for name in names:
        entry = header[name]
        first, last = entry["data_offsets"]
        if name in sums:
            places[name] = FileRange(8 + size + first, last - first, sums[name])
        if entry["dtype"] in DTYPES:  # tensors of other types are left out
            tensors[name] = view(data, 8 + size + first, DTYPES[entry["dtype"]], tuple(entry["shape"]))
    return Contents(path, texts, tensors, data, places)


def _opened(path: Path) -> tuple[BinaryIO, dict[str, str], list[str]]:
    """The open file, and what safetensors says of the same one: another process may replace it between the two."""
    while True:
        with ExitStack() as stack:
            file = stack.enter_context(path.open("rb"))
            try:
                with safe_open(str(path), "numpy") as checked:
                    texts, names = checked.metadata() or {}, list(checked.keys())
            except SafetensorError as error:
                raise ValueError(f"{path} is no safetensors file, or a damaged one ({error})") from error
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                stack.pop_all()  # the caller closes it
                return file, texts, names


def _sums(path: Path, texts: dict[str, str], header: dict[str, Any]) -> dict[str, str]:
    """The checksums of a file's tensors, once its header is found to be what was written."""
    if CHECKSUMS not in texts:
        return {}
    rest = {name: text for name, text in texts.items() if name != CHECKSUMS}
    try:
        sums: dict[str, str] = dict(json.loads(texts[CHECKSUMS]))
        right = sums.pop("") == _described(rest, header, sums) and set(sums) == set(header)
    except (ValueError, TypeError, KeyError, RecursionError):
        right = False
    if not right:
        raise ValueError(f"{path} is damaged (the checksum of its header is wrong); save it again")
    return sums


def view(data: mmap.mmap, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A tensor on mapped bytes; a copy where it stands between the places of its numbers."""
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(shape, dtype=dtype, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it cannot be written to
        if start % dtype.itemsize:
            copy = torch.frombuffer(data, dtype=torch.uint8, count=count * dtype.itemsize, offset=start).clone()
            return copy.view(dtype).view(shape)
        return torch.frombuffer(data, dtype=dtype, count=count, offset=start).view(shape)
