"""From a GGUF file of the Llama kind to a folder with config.json, model.safetensors and a tokenizer.

Quantized weights become exactly the float32 numbers they stand for.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.models import llama, tokenizer, weights
from regard.models.optional import need
from regard.progress import PlainCallback, reporting_to_user

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor
    from numpy import float32
    from numpy.typing import NDArray


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
    config = llama.config(fields, {tensor.name: _shape(tensor) for tensor in reader.tensors})
    wanted = _matched(reader, llama.weights(config))
    files = tokenizer.files(fields, rows=config["vocab_size"], longest=config["max_position_embeddings"])
    folder.mkdir(parents=True, exist_ok=True)
    slots = [weights.Slot(weight.name, weight.shape) for weight, _ in wanted]
    weights.write(folder / "model.safetensors", slots, _tensors(wanted))
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


def _matched(reader: "GGUFReader", wanted: dict[str, llama.Weight]) -> list[tuple[llama.Weight, "ReaderTensor"]]:
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


def _tensors(wanted: list[tuple[llama.Weight, "ReaderTensor"]]) -> Iterator["NDArray[float32]"]:
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
