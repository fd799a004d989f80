"""Llama-type models in GGUF: which settings and tensors they have, and what these are called in config.json."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


def config(fields: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """config.json from the settings of a GGUF file and the names and shapes of its tensors."""
    _understood(fields)
    width, heads = _number(fields, "embedding_length"), _number(fields, "attention.head_count")
    key_heads = _number(fields, "attention.head_count_kv", heads)
    head_width = _number(fields, "attention.key_length", width // heads)
    if heads % key_heads:
        raise ValueError(f"{heads} heads cannot share {key_heads} key and value heads")
    _agree(fields, "attention.value_length", head_width)
    _agree(fields, "rope.dimension_count", head_width)
    if "token_embd.weight" not in tensors:
        raise ValueError("the file has no tensor token_embd.weight")
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
        "rope_scaling": _scaling(fields),
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
    found = {"token_embd.weight": Weight("model.embed_tokens.weight", (config["vocab_size"], width))}
    for layer in range(config["num_hidden_layers"]):
        ours, theirs = f"model.layers.{layer}", f"blk.{layer}"
        found[f"{theirs}.attn_norm.weight"] = Weight(f"{ours}.input_layernorm.weight", (width,))
        found[f"{theirs}.ffn_norm.weight"] = Weight(f"{ours}.post_attention_layernorm.weight", (width,))
        for part, names, bias in (
            ("self_attn", _ATTENTION, config["attention_bias"]),
            ("mlp", _FORWARD, config["mlp_bias"]),
        ):
            for old, new in names.items():
                name, heads = f"{ours}.{part}.{new}", rotary.get(old, 0)
                found[f"{theirs}.{old}.weight"] = Weight(f"{name}.weight", (rows[old], columns[old]), heads)
                if bias:
                    found[f"{theirs}.{old}.bias"] = Weight(f"{name}.bias", (rows[old],), heads)
    found["output_norm.weight"] = Weight("model.norm.weight", (width,))
    if not config["tie_word_embeddings"]:
        found["output.weight"] = Weight("lm_head.weight", (config["vocab_size"], width))
    return found


def _understood(fields: Mapping[str, Any]) -> None:
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


def _agree(fields: Mapping[str, Any], key: str, wanted: int) -> None:
    if _number(fields, key, wanted) != wanted:
        raise ValueError(f"{_PREFIX}{key} must be {wanted}, the width of a head, got {fields[_PREFIX + key]}")


def _decimal(fields: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """The shortest decimal that is this float32: 1e-05, not 9.999999747378752e-06."""
    value = fields.get(_PREFIX + key, default)
    if value is None:
        raise ValueError(f"the file does not say {_PREFIX}{key}")
    single = struct.pack("<f", value)
    return next(short for digits in range(1, 18) if struct.pack("<f", short := float(f"{value:.{digits}g}")) == single)


def _scaling(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = fields.get(f"{_PREFIX}rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise ValueError(f"rotary positions stretched by {kind!r} cannot be converted, only 'linear'")
    return {"rope_type": "linear", "factor": _decimal(fields, "rope.scaling.factor")}
