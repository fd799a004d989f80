"""GPT-2-type folders: learned positions, layer norm first, one fused projection with its axes the other way round."""

import re

from torch import Tensor

from regard.models.families.folder import Folder
from regard.nn import LanguageModel, Learned

KINDS = ("gpt2",)
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
}
PARTS = {
    "ln_1": "attention_norm",
    "ln_2": "feed_norm",
    "attn.c_proj": "attention.out_proj",
    "mlp.c_fc": "feed_forward.up",
    "mlp.c_proj": "feed_forward.down",
}
LAYER = re.compile(r"h\.(\d+)\.(.+)\.(weight|bias)")
OTHERS = {
    "wte.weight": "embedding.tokens.weight",
    "wpe.weight": "embedding.position.weight",
    "ln_f.weight": "blocks.norm.weight",
    "ln_f.bias": "blocks.norm.bias",
    "lm_head.weight": "head.weight",
}


def build(folder: Folder) -> LanguageModel:
    """The language model of a folder."""
    folder.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width, tied = folder.setting("n_embd"), folder.setting("tie_word_embeddings", True)

    def make() -> LanguageModel:
        return LanguageModel(
            folder.setting("vocab_size"),
            layers=folder.setting("n_layer"),
            d_model=width,
            heads=folder.setting("n_head"),
            d_ff=folder.setting("n_inner", 4 * width),
            position=Learned(folder.setting("n_positions", 1024), width),
            activation=folder.choice("activation_function", ACTIVATIONS, "gelu_new"),
            eps=folder.setting("layer_norm_epsilon", 1e-5),
            dropout=folder.setting("resid_pdrop", 0.1),
            tied=tied,
        )

    def renamed(name: str, tensor: Tensor) -> dict[str, Tensor]:
        name = name.removeprefix("transformer.")
        if name.endswith((".attn.bias", ".attn.masked_bias")) or (tied and name == "lm_head.weight"):
            return {}
        match = LAYER.fullmatch(name)
        if match is None:
            return {OTHERS.get(name, name): tensor}
        number, part, kind = match.groups()
        if tensor.ndim == 2:
            tensor = tensor.mT.contiguous()
        if part != "attn.c_attn":
            return {f"blocks.blocks.{number}.{PARTS.get(part, part)}.{kind}": tensor}
        names = (f"blocks.blocks.{number}.attention.{which}_proj.{kind}" for which in "qkv")
        return dict(zip(names, tensor.chunk(3), strict=True))

    model = folder.fill(make, renamed)
    assert isinstance(model, LanguageModel)
    return model
