"""From a GGUF file of the Llama kind to a folder with config.json, model.safetensors and a tokenizer.

Quantized weights become exactly the float32 numbers they stand for.
"""

import json
import os
import secrets
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.models import gguf_tokenizer
from regard.models.optional import need
from regard.progress import PlainCallback, report, reporting_to_user

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor
    from numpy import float32
    from numpy.typing import NDArray

_ALIGNED = 8  # bytes, of the tensors in a safetensors file
_PREFIX = "llama."

# Every setting that is understood. Another one could change what the model computes, so it is refused.
_SETTINGS = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
}

_ATTENTION = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj"}
_FORWARD = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}


@dataclass(frozen=True)
class Weight:
    """A tensor of the model: its name and shape, and the heads whose rotary rows llama.cpp has reordered."""

    name: str
    shape: tuple[int, ...]
    heads: int = 0


def write_safetensors(path: Path, weights: Sequence[Weight], tensors: Iterable["NDArray[float32]"]) -> None:
    """Write a new file: the header that the weights describe, then the float32 tensors in the same order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for weight in weights:
        start, end = end, end + 4 * prod(weight.shape)
        header[weight.name] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    done = 0
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for weight, tensor in zip(weights, tensors, strict=True):
            report("converting", done, end, "bytes")
            if tensor.shape != weight.shape:
                raise ValueError(f"{weight.name} should have the shape {weight.shape}, got {tensor.shape}")
            done += file.write(tensor.astype("<f4", order="C", copy=False).data)
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
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
    except OSError:
        raise
    except Exception as error:  # what a broken file leads to is not documented
        raise ValueError(f"{file.name} is not a whole GGUF file: {error}") from error
    fields = {name: field.contents() for name, field in reader.fields.items()}
    settings = config(fields, {tensor.name: _shape(tensor) for tensor in reader.tensors})
    matched = _matched(reader, weights(settings))
    files = gguf_tokenizer.files(fields, rows=settings["vocab_size"], longest=settings["max_position_embeddings"])
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", [weight for weight, _ in matched], _tensors(matched))
    tokens = {name: value for name, value in settings.items() if name.endswith("_token_id")}
    for name, values in (("config.json", settings), ("generation_config.json", tokens)):
        files[name] = json.dumps(values, indent=2) + "\n"
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _shape(tensor: "ReaderTensor") -> tuple[int, ...]:
    """GGUF names the fastest axis first."""
    return tuple(int(size) for size in reversed(tensor.shape))


def _matched(reader: "GGUFReader", expected: dict[str, Weight]) -> list[tuple[Weight, "ReaderTensor"]]:
    """Each weight with the tensor that holds it; none may be missing, left over, or of another shape."""
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if missing := [name for name in expected if name not in tensors]:
        raise ValueError(f"the file has no tensor {missing[0]}{_more(missing)}")
    if extra := [name for name in tensors if name not in expected]:
        raise ValueError(f"the file has a tensor that regard does not know, {extra[0]}{_more(extra)}")
    for name, weight in expected.items():
        if (shape := _shape(tensors[name])) != weight.shape:
            raise ValueError(f"{name} should have the shape {weight.shape}, got {shape}")
    return [(weight, tensors[name]) for name, weight in expected.items()]


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _tensors(matched: list[tuple[Weight, "ReaderTensor"]]) -> Iterator["NDArray[float32]"]:
    from gguf import dequantize

    for weight, tensor in matched:
        try:
            numbers = dequantize(tensor.data, tensor.tensor_type).reshape(weight.shape)
        except NotImplementedError as error:
            raise ValueError(f"{tensor.name} is of a kind that the package gguf cannot read: {error}") from error
        if weight.heads:
            # llama.cpp rotates neighbors (0 1) (2 3) …, the Hugging Face layout the halves (0 d/2) (1 d/2+1) …, so the
            # rows of each head were interleaved when the GGUF file was made.
            pairs = numbers.reshape(weight.heads, -1, 2, *weight.shape[1:])
            numbers = pairs.swapaxes(1, 2).reshape(weight.shape)
        yield numbers


def config(fields: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """config.json from the settings of a GGUF file and the names and shapes of its tensors."""
    _check_settings(fields)
    width, heads = _number(fields, "embedding_length"), _number(fields, "attention.head_count")
    key_heads = _number(fields, "attention.head_count_kv", heads)
    head_width = _number(fields, "attention.key_length", width // heads)
    if heads % key_heads:
        raise ValueError(f"{heads} heads cannot share {key_heads} key and value heads")
    for key in ("attention.value_length", "rope.dimension_count"):
        if (value := _number(fields, key, head_width)) != head_width:
            raise ValueError(f"{_PREFIX}{key} must be {head_width}, the width of a head, got {value}")
    if "token_embd.weight" not in tensors:
        raise ValueError("the file has no tensor token_embd.weight")
    scaling, kind = None, fields.get(f"{_PREFIX}rope.scaling.type", "none")
    if kind != "none":
        if kind != "linear":
            raise ValueError(f"rotary positions stretched by {kind!r} cannot be converted, only 'linear'")
        scaling = {"rope_type": "linear", "factor": _decimal(fields, "rope.scaling.factor")}
    made = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "dtype": "float32",
        "head_dim": head_width,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": _number(fields, "feed_forward_length"),
        "max_position_embeddings": _number(fields, "context_length"),
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": _number(fields, "block_count"),
        "num_key_value_heads": key_heads,
        "rms_norm_eps": _decimal(fields, "attention.layer_norm_rms_epsilon"),
        "rope_scaling": scaling,
        "rope_theta": _decimal(fields, "rope.freq_base", 10000.0),
        "tie_word_embeddings": "output.weight" not in tensors,
        "vocab_size": tensors["token_embd.weight"][0],
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if (token := fields.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            made[f"{name}_token_id"] = int(token)
    return dict(sorted(made.items()))


def weights(config: Mapping[str, Any]) -> dict[str, Weight]:
    """Every tensor that a model of this configuration has, by its name in GGUF."""
    width, hidden, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key = config["num_attention_heads"], config["num_key_value_heads"]
    rows = {"attn_q": query * head, "attn_k": key * head, "attn_v": key * head, "attn_output": width}
    rows |= {"ffn_gate": hidden, "ffn_up": hidden, "ffn_down": width}
    columns = dict.fromkeys(rows, width) | {"attn_output": query * head, "ffn_down": hidden}
    rotary = {"attn_q": query, "attn_k": key}
    by_name = {"token_embd.weight": Weight("model.embed_tokens.weight", (config["vocab_size"], width))}
    for layer in range(config["num_hidden_layers"]):
        ours, theirs = f"model.layers.{layer}", f"blk.{layer}"
        by_name[f"{theirs}.attn_norm.weight"] = Weight(f"{ours}.input_layernorm.weight", (width,))
        by_name[f"{theirs}.ffn_norm.weight"] = Weight(f"{ours}.post_attention_layernorm.weight", (width,))
        for part, names, bias in (
            ("self_attn", _ATTENTION, config["attention_bias"]),
            ("mlp", _FORWARD, config["mlp_bias"]),
        ):
            for old, new in names.items():
                name, heads = f"{ours}.{part}.{new}", rotary.get(old, 0)
                by_name[f"{theirs}.{old}.weight"] = Weight(f"{name}.weight", (rows[old], columns[old]), heads)
                if bias:
                    by_name[f"{theirs}.{old}.bias"] = Weight(f"{name}.bias", (rows[old],), heads)
    by_name["output_norm.weight"] = Weight("model.norm.weight", (width,))
    if not config["tie_word_embeddings"]:
        by_name["output.weight"] = Weight("lm_head.weight", (config["vocab_size"], width))
    return by_name


def _check_settings(fields: Mapping[str, Any]) -> None:
    kind = fields.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"only GGUF files of the architecture 'llama' can be converted, got {kind!r}")
    settings = {key.removeprefix(_PREFIX) for key in fields if key.startswith(_PREFIX)}
    if unknown := sorted(settings - _SETTINGS):
        raise ValueError(f"the file has settings that regard does not know: {', '.join(unknown)}")
    if fields.get(f"{_PREFIX}expert_count"):
        raise ValueError("models with several experts cannot be converted")
    if fields.get("split.count", 1) > 1:
        raise ValueError("the model is split over several GGUF files; merge them into one first")


def _number(fields: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = fields.get(_PREFIX + key, default)
    if value is None:
        raise ValueError(f"the file does not say {_PREFIX}{key}")
    if isinstance(value, list):
        raise ValueError(f"{_PREFIX}{key} must be one number for all layers, got {value}")
    if int(value) < 1:
        raise ValueError(f"{_PREFIX}{key} must be at least 1, got {value}")
    return int(value)


def _decimal(fields: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """The shortest decimal that is this float32: 1e-05, not 9.999999747378752e-06."""
    value = fields.get(_PREFIX + key, default)
    if value is None:
        raise ValueError(f"the file does not say {_PREFIX}{key}")
    single = struct.pack("<f", value)
    return next(short for digits in range(1, 18) if struct.pack("<f", short := float(f"{value:.{digits}g}")) == single)
