"""Weights in files of other programs: arrays of npy, npz, csv, safetensors and PyTorch files, mapped where possible."""

import math
import pickle
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.matrix.indexing import Tokens
from regard.inspection.tensor_file import mapped
from regard.inspection.weights_csv import read_csv

SUFFIXES = (".npy", ".npz", ".csv", ".safetensors", ".pt", ".pth")
TOKEN_NAMES = {"query": ("query_tokens", "tokens"), "key": ("key_tokens", "tokens")}
MOST_AXES = 5  # layer, batch row, head, query, key
NPY_MAGIC = b"\x93NUMPY"
LISTED = 12  # arrays that an error names
CHECKED = 1 << 24  # weights that are looked at when a file is opened
ROUNDING = 0.01  # by which a row of half-precision weights may miss 1
NOISE = 1e-6  # below zero, what rounding leaves


class WeightsFile(NamedTuple):
    """The weights of a file, and what a reader should know about them, in sentences."""

    matrix: AttentionMatrix
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class FileArray:
    """An array of a file: what its header says, and a function that reads or maps it."""

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Any]

    @property
    def could_be_weights(self) -> bool:
        """Whether it has rows and columns of floating-point numbers."""
        return len(self.shape) >= 2 and self.dtype.startswith(("float", "bfloat"))

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}"


def read_weights(path: Path, array: str | None = None) -> WeightsFile:
    """The weights of a file, (…, query, key), by the name of the array if there are several.

    Files of NumPy and safetensors are mapped: the weights are read where they are used. Nothing in a file is executed.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file of weights ({', '.join(SUFFIXES)})")
    readers = {".npy": _npy, ".npz": _npz, ".csv": _csv, ".safetensors": _safetensors, ".pt": _torch, ".pth": _torch}
    if (reader := readers.get(path.suffix.lower())) is None:
        raise ValueError(f"{path} has no suffix of a file of weights: {', '.join(SUFFIXES)}")
    try:
        arrays = reader(path)
        name = _chosen(path, arrays, array)
        weights = _tensor(arrays[name].read())
    except PermissionError as error:
        raise PermissionError(f"{path} cannot be read: {error.strerror}") from error
    except MemoryError as error:
        raise ValueError(f"{path} does not fit in memory; save it as npy, which is mapped instead of read") from error
    label = str(path) if len(arrays) == 1 else f"{name!r} of {path}"
    if not 2 <= weights.ndim <= MOST_AXES or not weights.numel():
        raise ValueError(
            f"{label} has the shape {tuple(weights.shape)}; weights are (query, key), (head, query, key) or "
            "(layer, head, query, key), none of them 0"
        )
    notes = _notes(label, weights)
    tokens = (_tokens(arrays, axis, size) for axis, size in zip(("query", "key"), weights.shape[-2:], strict=True))
    return WeightsFile(AttentionMatrix.from_weights(weights, *tokens), notes)


def _chosen(path: Path, arrays: Mapping[str, FileArray], array: str | None) -> str:
    """The name of the array to show."""
    if not arrays:
        raise ValueError(f"{path} holds no array")
    listed = ", ".join(f"{name!r} {each}" for name, each in list(arrays.items())[:LISTED])
    listed += f" and {len(arrays) - LISTED} more" if len(arrays) > LISTED else ""
    if array is not None and array not in arrays:
        raise ValueError(f"{path} has no array {array!r}; it holds {listed}")
    names = [array] if array is not None else [name for name, each in arrays.items() if each.could_be_weights]
    if len(names) > 1:
        raise ValueError(
            f"{path} holds {len(names)} arrays that could be weights: {listed}; choose one, with --array NAME or "
            "regard.load(path, array=NAME)"
        )
    if not names or not arrays[names[0]].could_be_weights:
        raise ValueError(
            f"{path} holds no weights that can be shown: {listed}; weights are floating-point numbers with at least "
            "two axes, (query, key)"
        )
    return names[0]


def _tensor(given: Any) -> Tensor:
    """A tensor on the numbers of an array, without a copy if their bytes are in this machine's order."""
    if isinstance(given, Tensor):
        return given.detach()
    if isinstance(given, list | tuple):
        return torch.stack([_tensor(each) for each in given])
    native = given if given.dtype.isnative else given.astype(given.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that a mapped file cannot be written to
        return torch.from_numpy(native)


def _notes(label: str, weights: Tensor) -> tuple[str, ...]:
    """What is unusual about the weights, by all rows or, of a large array, by some that are evenly spread."""
    flat, (queries, keys) = weights.reshape(-1, *weights.shape[-2:]), weights.shape[-2:]
    total = len(flat) * queries
    every = max(1, math.ceil(total * keys / CHECKED))
    rows = range(0, total, every)
    scope = "" if every == 1 else f" (in {len(rows):,} of {total:,} rows, which were checked)"
    broken, smallest, sums = 0, 0.0, []
    step = max(1, (1 << 22) // keys)
    for first in range(0, len(rows), step):
        places = torch.tensor(rows[first : first + step], device="cpu", dtype=torch.int64)
        part = flat[places // queries, places % queries].double()
        finite = torch.isfinite(part)
        broken += int((~finite).sum())
        part = torch.where(finite, part, 0.0)
        smallest = min(smallest, float(part.min()))
        sums.append(part.sum(-1))
    if smallest < -NOISE:
        raise ValueError(
            f"{label} holds negative numbers, the smallest is {smallest:.4g}{scope}; these are scores, not weights: "
            "save their softmax over the keys"
        )
    notes = []
    if broken:
        cells = "one number is" if broken == 1 else f"{broken:,} numbers are"
        notes.append(f"{label}: {cells} NaN or infinite{scope}; such pairs are shown as hidden")
    found = torch.cat(sums)
    odd = found[(found != 0) & ((found - 1).abs() > ROUNDING)]
    if len(odd):
        low, high = f"{float(odd.min()):.4g}", f"{float(odd.max()):.4g}"
        span = f"to {low}" if low == high else f"to between {low} and {high}"
        count = "one row does" if len(odd) == 1 else f"{len(odd):,} of {len(found):,} rows do"
        notes.append(f"{label}: {count} not sum to 1 but {span}{scope}; the weights are shown as they are")
    return tuple(notes)


def _tokens(arrays: Mapping[str, FileArray], axis: str, size: int) -> Tokens:
    """Strings that are stored beside the weights, one for each query or key."""
    for name in TOKEN_NAMES[axis]:
        if name in arrays and arrays[name].shape == (size,) and arrays[name].dtype.startswith("str"):
            return [str(token) for token in arrays[name].read()]
    return None


def _npy(path: Path) -> dict[str, FileArray]:
    with path.open("rb") as file:
        if not file.read(8).startswith(NPY_MAGIC):
            raise ValueError(f"{path} is not an npy file, or a damaged one (it does not begin as one)")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise _damaged(path, "an npy file", error) from error
    return {path.stem: FileArray(array.shape, _kind(array.dtype), lambda: array)}


def _npz(path: Path) -> dict[str, FileArray]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                member.filename.removesuffix(".npy"): _npz_member(path, archive, member)
                for member in archive.infolist()
                if member.filename.endswith(".npy")
            }
    except (ValueError, OSError, EOFError, SyntaxError, zipfile.BadZipFile, RuntimeError) as error:
        raise _damaged(path, "an npz archive", error) from error


def _npz_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> FileArray:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(file)
        head = file.tell()

    def read() -> Any:
        try:
            if member.compress_type == zipfile.ZIP_STORED and not dtype.hasobject and 0 not in shape:
                start = _data_start(path, member) + head
                return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
            with zipfile.ZipFile(path) as opened, opened.open(member) as content:
                return np.lib.format.read_array(content, allow_pickle=False)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise _damaged(path, "an npz archive", error) from error

    return FileArray(shape, _kind(dtype), read)


def _data_start(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of an archive's member begin: behind its local header and the name and the extra field there."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
    return member.header_offset + 30 + int(name) + int(extra)


def _safetensors(path: Path) -> dict[str, FileArray]:
    tensors = mapped(path).tensors
    return {name: _of_tensor(tensor) for name, tensor in tensors.items()}


def _torch(path: Path) -> dict[str, FileArray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of storages that torch itself has retired
        try:
            content = _loaded(path)
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"{path} holds more than tensors, and is not opened because that would run code; "
                "save the weights alone: torch.save(weights, path)"
            ) from error
        except (RuntimeError, ValueError, EOFError, OSError, LookupError, TypeError, AttributeError) as error:
            raise _damaged(path, "a file of torch.save", error) from error
    if isinstance(content, Tensor):
        return {path.stem: _of_tensor(content)}
    return dict(_flattened("", content, path.stem))


def _loaded(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as error:
        if "mmap can only be used" not in str(error):
            raise
        return torch.load(path, map_location="cpu", weights_only=True)  # a file in torch's old format


def _flattened(prefix: str, content: Any, whole: str) -> Iterator[tuple[str, FileArray]]:
    """Tensors by the names of what holds them; a list of tensors of one shape is one array, with an axis for it."""
    if isinstance(content, Tensor):
        yield prefix, _of_tensor(content)
    elif isinstance(content, list | tuple) and content and all(isinstance(each, Tensor) for each in content):
        if len({(each.shape, each.dtype) for each in content}) == 1:
            shape = (len(content), *content[0].shape)
            yield prefix or whole, FileArray(shape, _name(content[0]), lambda: list(content))
        else:
            for number, each in enumerate(content):
                yield f"{prefix}.{number}".lstrip("."), _of_tensor(each)
    elif isinstance(content, list | tuple) and content and all(isinstance(each, str) for each in content):
        yield prefix, FileArray((len(content),), "str", lambda: content)
    elif isinstance(content, Mapping):
        for name, each in content.items():
            yield from _flattened(f"{prefix}.{name}".lstrip("."), each, whole)


def _of_tensor(tensor: Tensor) -> FileArray:
    if tensor.layout != torch.strided:
        return FileArray(tuple(tensor.shape), f"{tensor.layout}".removeprefix("torch."), lambda: tensor)
    return FileArray(tuple(tensor.shape), _name(tensor), lambda: tensor)


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _kind(dtype: np.dtype[Any]) -> str:
    """The name of a type; those that torch has no floating-point type for do not begin with float."""
    if dtype.kind == "f" and dtype.itemsize > 8:
        return f"extended precision {dtype.name}"
    return "str" if dtype.kind == "U" else dtype.name


def _damaged(path: Path, what: str, error: Exception) -> ValueError:
    if isinstance(error, PermissionError):
        raise error
    text = " ".join(str(error).split())
    if "allow_pickle" in text or "Python objects" in text:
        return ValueError(f"{path} holds Python objects, which are not opened because that would run code")
    return ValueError(f"{path} is not {what}, or a damaged one ({text or type(error).__name__})")


def _csv(path: Path) -> dict[str, FileArray]:
    table = read_csv(path)
    arrays = {path.stem: FileArray(table.numbers.shape, "float64", lambda: table.numbers)}
    if table.query_tokens:
        arrays["query_tokens"] = FileArray((len(table.query_tokens),), "str", lambda: table.query_tokens)
    if table.key_tokens:
        arrays["key_tokens"] = FileArray((len(table.key_tokens),), "str", lambda: table.key_tokens)
    return arrays
