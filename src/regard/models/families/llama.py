"""Llama-type folders: GLM, Llama, Mistral, Phi 3, Qwen 2 and 3, SmolLM, StableLM and what calls itself one of these."""

import re
import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.models.families.folder import Folder
from regard.nn import LanguageModel, RMSNorm, Rotary
from regard.spec.masks import Causal, Mask, Window
from regard.spec.positions import Linear, Llama3, Stretch, YaRN

KINDS = ("glm", "llama", "mistral", "phi3", "qwen2", "qwen3", "stablelm")
PARTIAL = {"glm": 0.5, "phi3": 1.0, "stablelm": 0.25}  # kinds that can turn a part of each head, and their default
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
FUSED = {  # projections of GLM and Phi 3, and what they hold
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
OTHERS = {
    "model.embed_tokens.weight": "embedding.tokens.weight",
    "model.norm.weight": "blocks.norm.weight",
    "model.norm.bias": "blocks.norm.bias",
    "lm_head.weight": "head.weight",
}


def build(folder: Folder) -> LanguageModel:
    """The language model of a folder."""
    folder.only(pretraining_tp=1, use_parallel_residual=False, qk_layernorm=False)
    heads, width = folder.setting("num_attention_heads"), folder.setting("hidden_size")
    d_k = folder.setting("head_dim", width // heads)
    kv_heads = folder.setting("num_key_value_heads", heads)
    rms = folder.kind != "stablelm"
    eps = folder.setting("rms_norm_eps", 1e-6) if rms else folder.setting("layer_norm_eps", 1e-5)
    tied = folder.setting("tie_word_embeddings", False)
    biased = folder.setting("attention_bias", False)

    def make() -> LanguageModel:
        own_norm: Any = partial(RMSNorm, d_k, eps) if folder.kind == "qwen3" else None
        return LanguageModel(
            folder.setting("vocab_size"),
            layers=folder.setting("num_hidden_layers"),
            d_model=width,
            heads=heads,
            kv_heads=kv_heads,
            d_k=d_k,
            d_ff=folder.setting("intermediate_size"),
            position=rotation(folder, d_k),
            activation=folder.choice("hidden_act", ACTIVATIONS, "silu"),
            norm="rms" if rms else "layer",
            eps=eps,
            tied=tied,
            mask=_mask(folder),
            projection_bias=biased or folder.kind == "qwen2" or folder.setting("use_qkv_bias", False),
            out_bias=biased and folder.kind not in ("glm", "qwen2"),
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
            whole = FUSED.get(part, (part,))
            sizes = [heads * d_k, kv_heads * d_k, kv_heads * d_k] if len(whole) == 3 else len(tensor) // len(whole)
            held = zip(whole, tensor.split(sizes), strict=True)
            return {f"blocks.blocks.{number}.{PARTS.get(part, part)}.{kind}": tensor for part, tensor in held}
        return {OTHERS.get(name, name): tensor}

    model = folder.fill(make, renamed)
    assert isinstance(model, LanguageModel)
    return model


def rotation(folder: Folder, width: int) -> Rotary:
    """The rotary positions that a config describes, in the words of any version of transformers."""
    rope: dict[str, Any] = folder.setting("rope_parameters", None) or folder.setting("rope_scaling", None) or {}
    base = rope.get("rope_theta", folder.setting("rope_theta", 10000.0))
    pairing: Any = "interleaved" if folder.kind == "glm" else "half"
    turned = int(width * _share(folder, rope))
    if not 2 <= turned <= width or turned % 2:
        raise ValueError(
            f"{folder.kind} with a partial_rotary_factor that turns {turned} of the {width} numbers of a head is not "
            f"built here; an even number from 2 to {width} can turn"
        )
    return Rotary(turned, base=float(base), pairing=pairing, stretch=_stretch(folder, rope), angles=torch.float32)


def _share(folder: Folder, rope: dict[str, Any]) -> float:
    """How much of each head turns, as in transformers."""
    share = rope.get("partial_rotary_factor")
    if share is None:  # where transformers 4 wrote it
        share = folder.setting("partial_rotary_factor", PARTIAL.get(folder.kind, 1.0))
    if folder.kind in PARTIAL or share == 1.0:
        return float(share)
    warnings.warn(
        f"{folder.path}: partial_rotary_factor={share:g} is ignored, because transformers turns all of a head in "
        f"models of type {folder.kind}, whatever it says",
        stacklevel=2,
    )
    return 1.0


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
    if window is None or not folder.setting("use_sliding_window", folder.kind in ("mistral", "phi3")):
        return Causal()
    full = 0 if folder.kind in ("mistral", "phi3") else folder.setting("max_window_layers", 28)
    kinds = folder.setting("layer_types", None) or [
        "full_attention" if layer < full else "sliding_attention" for layer in range(layers)
    ]
    if len(set(kinds)) > 1:
        raise ValueError(f"{folder.kind} whose layers differ in their masks is not built here: {', '.join(set(kinds))}")
    return Causal() if "full_attention" in kinds else Window(int(window) - 1, 0)
