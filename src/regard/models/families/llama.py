"""Llama-type folders: Llama, Mistral, Qwen 2 and Qwen 3, SmolLM and whatever else calls itself one of these."""

import re
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.models.families.folder import Folder
from regard.nn import LanguageModel, RMSNorm, Rotary
from regard.spec.masks import Causal, Mask, Window
from regard.spec.positions import Linear, Llama3, Stretch, YaRN

KINDS = ("llama", "mistral", "qwen2", "qwen3")
ACTIVATIONS = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu"}
PARTS = {
    "self_attn.q_proj": "attention.q_proj",
    "self_attn.k_proj": "attention.k_proj",
    "self_attn.v_proj": "attention.v_proj",
    "self_attn.o_proj": "attention.out_proj",
    "self_attn.q_norm": "attention.q_norm",
    "self_attn.k_norm": "attention.k_norm",
    "mlp.gate_proj": "feed_forward.gate",
    "mlp.up_proj": "feed_forward.up",
    "mlp.down_proj": "feed_forward.down",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "feed_norm",
}
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
OTHERS = {
    "model.embed_tokens.weight": "embedding.tokens.weight",
    "model.norm.weight": "blocks.norm.weight",
    "lm_head.weight": "head.weight",
}


def build(folder: Folder) -> LanguageModel:
    """The language model of a folder."""
    folder.only(pretraining_tp=1, partial_rotary_factor=1.0)
    heads, width = folder.setting("num_attention_heads"), folder.setting("hidden_size")
    d_k = folder.setting("head_dim", width // heads)
    eps = folder.setting("rms_norm_eps", 1e-6)
    tied = folder.setting("tie_word_embeddings", False)
    biased = folder.kind == "qwen2" or folder.setting("attention_bias", False)

    def make() -> LanguageModel:
        own_norm: Any = partial(RMSNorm, d_k, eps) if folder.kind == "qwen3" else None
        return LanguageModel(
            folder.setting("vocab_size"),
            layers=folder.setting("num_hidden_layers"),
            d_model=width,
            heads=heads,
            kv_heads=folder.setting("num_key_value_heads", heads),
            d_k=d_k,
            d_ff=folder.setting("intermediate_size"),
            position=rotation(folder, d_k),
            activation=folder.choice("hidden_act", ACTIVATIONS, "silu"),
            norm="rms",
            eps=eps,
            tied=tied,
            mask=_mask(folder),
            projection_bias=biased,
            out_bias=biased and folder.kind != "qwen2",
            feed_bias=folder.setting("mlp_bias", False),
            q_norm=own_norm,
            k_norm=own_norm,
        )

    def renamed(name: str, tensor: Tensor) -> dict[str, Tensor]:
        if name.endswith("rotary_emb.inv_freq") or (tied and name == "lm_head.weight"):
            return {}
        if not name.startswith(("model.", "lm_head.")):  # the model was saved without its head
            name = f"model.{name}"
        if match := LAYER.fullmatch(name):
            number, part, kind = match.groups()
            return {f"blocks.blocks.{number}.{PARTS.get(part, part)}.{kind}": tensor}
        return {OTHERS.get(name, name): tensor}

    model = folder.fill(make, renamed)
    assert isinstance(model, LanguageModel)
    return model


def rotation(folder: Folder, width: int) -> Rotary:
    """The rotary positions that a config describes, in the words of any version of transformers."""
    rope: dict[str, Any] = folder.setting("rope_parameters", None) or folder.setting("rope_scaling", None) or {}
    base = rope.get("rope_theta", folder.setting("rope_theta", 10000.0))
    return Rotary(width, base=float(base), stretch=_stretch(folder, rope), angles=torch.float32)


def _stretch(folder: Folder, rope: dict[str, Any]) -> Stretch | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    original = rope.get("original_max_position_embeddings", folder.setting("max_position_embeddings", 2048))
    match kind:
        case "default":
            return None
        case "linear":
            return Linear(float(rope["factor"]))
        case "llama3":
            low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
            return Llama3(float(rope["factor"]), low, high, int(original))
        case "yarn":
            if rope.get("mscale") or rope.get("mscale_all_dim"):
                raise ValueError(f"{folder.kind} with yarn's mscale or mscale_all_dim is not built here")
            return YaRN(
                float(rope["factor"]),
                int(original),
                float(rope.get("beta_fast") or 32),
                float(rope.get("beta_slow") or 1),
                rope.get("attention_factor"),
                bool(rope.get("truncate", True)),
            )
    raise ValueError(
        f"{folder.kind} with rope_type={kind!r} is not built here; known are default, linear, llama3 and yarn"
    )


def _mask(folder: Folder) -> Mask:
    """Causal, with a window where every layer has one."""
    window, layers = folder.setting("sliding_window", None), folder.setting("num_hidden_layers")
    if window is None or not folder.setting("use_sliding_window", folder.kind == "mistral"):
        return Causal()
    full = 0 if folder.kind == "mistral" else folder.setting("max_window_layers", 28)
    kinds = folder.setting("layer_types", None) or [
        "full_attention" if layer < full else "sliding_attention" for layer in range(layers)
    ]
    if len(set(kinds)) > 1:
        raise ValueError(f"{folder.kind} whose layers differ in their masks is not built here: {', '.join(set(kinds))}")
    return Causal() if "full_attention" in kinds else Window(int(window) - 1, 0)
