"""From a GGUF file of the Llama kind to a folder with config.json, model.safetensors and a tokenizer.

Quantized weights become exactly the float32 numbers they stand for.
"""

import json
import os
import secrets
import shutil
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.models import gguf_config, gguf_tokenizer
from regard.models.optional import need
from regard.progress import PlainCallback, report, reporting_to_user

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor
    from numpy import float32
    from numpy.typing import NDArray


_ALIGNED = 8


@dataclass(frozen=True)
class TensorEntry:
    """The place of one float32 tensor in the file."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return 4 * prod(self.shape)


def write_safetensors(path: Path, entries: list[TensorEntry], tensors: Iterable["NDArray[float32]"]) -> None:
    """Write a new file: the header that the entries describe, then the tensors in the same order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for entry in entries:
        start, end = end, end + entry.size
        header[entry.name] = {"dtype": "F32", "shape": list(entry.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    done = 0
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry, tensor in zip(entries, tensors, strict=True):
            report("converting", done, end, "bytes")
            if tensor.shape != entry.shape:
                raise ValueError(f"{entry.name} should have the shape {entry.shape}, got {tensor.shape}")
            file.write(tensor.astype("<f4", order="C", copy=False).data)
            done += entry.size
        report("converting", done, end, "bytes")


def convert(
    file: str | os.PathLike[str], folder: str | os.PathLike[str], progress: PlainCallback | None = None
) -> Path:
    """Make a new folder from a GGUF file. It appears under its name when it is complete."""
    folder = Path(folder).absolute()
    if folder.exists():
        raise FileExistsError(f"{folder} is there already; name a folder that is not")
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.part")
    try:
        with reporting_to_user(progress, "bytes"):
            write(Path(file), beside)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def write(file: Path, folder: Path) -> None:
    """Write the files into a folder that may hold others."""
    need("gguf", "tokenizers")
    reader = _opened(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = gguf_config.config(fields, {tensor.name: _shape(tensor) for tensor in reader.tensors})
    wanted = _matched(reader, gguf_config.weights(config))
    files = gguf_tokenizer.files(fields, rows=config["vocab_size"], longest=config["max_position_embeddings"])
    folder.mkdir(parents=True, exist_ok=True)
    entries = [TensorEntry(weight.name, weight.shape) for weight, _ in wanted]
    write_safetensors(folder / "model.safetensors", entries, _tensors(wanted))
    tokens = {name: value for name, value in config.items() if name.endswith("_token_id")}
    files |= {"config.json": _json(config), "generation_config.json": _json(tokens)}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _opened(file: Path) -> "GGUFReader":
    from gguf import GGUFReader

    try:
        return GGUFReader(file)
    except OSError:
        raise
    except Exception as error:  # what a broken file leads to is not documented
        raise ValueError(f"{file.name} is not a whole GGUF file: {error}") from error


def _shape(tensor: "ReaderTensor") -> tuple[int, ...]:
    """GGUF names the fastest axis first."""
    return tuple(int(size) for size in reversed(tensor.shape))


def _matched(
    reader: "GGUFReader", wanted: dict[str, gguf_config.Weight]
) -> list[tuple[gguf_config.Weight, "ReaderTensor"]]:
    """Each weight with the tensor that holds it; none may be missing, left over, or of another shape."""
    found = {tensor.name: tensor for tensor in reader.tensors}
    if missing := [name for name in wanted if name not in found]:
        raise ValueError(f"the file has no tensor {missing[0]}{_more(missing)}")
    if extra := [name for name in found if name not in wanted]:
        raise ValueError(f"the file has a tensor that regard does not know, {extra[0]}{_more(extra)}")
    for name, weight in wanted.items():
        if (shape := _shape(found[name])) != weight.shape:
            raise ValueError(f"{name} should have the shape {weight.shape}, got {shape}")
    return [(weight, found[name]) for name, weight in wanted.items()]


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _tensors(wanted: list[tuple[gguf_config.Weight, "ReaderTensor"]]) -> Iterator["NDArray[float32]"]:
    from gguf import dequantize

    for weight, tensor in wanted:
        try:
            numbers = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ValueError(f"{tensor.name} is of a kind that the package gguf cannot read: {error}") from error
        yield _rotary_order(numbers.reshape(weight.shape), weight.heads) if weight.heads else numbers


def _rotary_order(rows: "NDArray[float32]", heads: int) -> "NDArray[float32]":
    """Rows of queries or keys in the order of config.json.

    llama.cpp rotates neighbors (0 1) (2 3) …, the Hugging Face layout the halves (0 d/2) (1 d/2+1) …, so the rows of
    each head were interleaved when the GGUF file was made.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
