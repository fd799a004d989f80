"""BERT-type folders: BERT and RoBERTa, encoders with learned positions and the norm last."""

import re

import torch
from torch import Tensor, nn

from regard.models.families.folder import Folder
from regard.nn import Encoder, Learned
from regard.nn.parts import AnyMask

KINDS = ("bert", "roberta", "xlm-roberta", "camembert")
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
PARTS = {
    "attention.self.query": "attention.q_proj",
    "attention.self.key": "attention.k_proj",
    "attention.self.value": "attention.v_proj",
    "attention.output.dense": "attention.out_proj",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feed_forward.up",
    "output.dense": "feed_forward.down",
    "output.LayerNorm": "feed_norm",
}
LAYER = re.compile(r"encoder\.layer\.(\d+)\.(.+)\.(weight|bias)")
OTHERS = {
    "embeddings.word_embeddings.weight": "tokens.weight",
    "embeddings.token_type_embeddings.weight": "types.weight",
    "embeddings.LayerNorm.weight": "norm.weight",
    "embeddings.LayerNorm.bias": "norm.bias",
}
PLACES = "embeddings.position_embeddings.weight"
UNUSED = re.compile(r"embeddings\.position_ids|pooler\..*|cls\..*|lm_head\..*|classifier\..*|qa_outputs\..*")


class Bert(nn.Module):
    """Tokens to one vector each, (batch, length) to (batch, length, d_model)."""

    def __init__(self, vocabulary: int, kinds: int, length: int, eps: float, dropout: float, encoder: Encoder) -> None:
        super().__init__()
        d_model = encoder.d_model
        self.tokens, self.types = nn.Embedding(vocabulary, d_model), nn.Embedding(kinds, d_model)
        self.places = Learned(length, d_model)
        self.norm, self.dropout = nn.LayerNorm(d_model, eps), nn.Dropout(dropout)
        self.encoder = encoder

    def forward(self, tokens: Tensor, *, types: Tensor | None = None, mask: AnyMask = None) -> Tensor:
        """`types` says which of two texts a token belongs to; `mask` hides padding (`masks.Lengths`)."""
        kinds = self.types.weight[0] if types is None else self.types(types)
        x = self.places(self.tokens(tokens) + kinds)
        out: Tensor = self.encoder(self.dropout(self.norm(x)), mask=mask)
        return out


def build(folder: Folder) -> Bert:
    """The encoder of a folder; heads for other tasks are left out."""
    folder.only(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    # RoBERTa counts positions from the one behind its padding's
    skipped = 0 if folder.kind == "bert" else int(folder.setting("pad_token_id", 1)) + 1
    eps, dropout = folder.setting("layer_norm_eps", 1e-12), folder.setting("hidden_dropout_prob", 0.1)

    def make() -> Bert:
        encoder = Encoder(
            folder.setting("num_hidden_layers"),
            folder.setting("hidden_size"),
            folder.setting("num_attention_heads"),
            d_ff=folder.setting("intermediate_size"),
            activation=folder.choice("hidden_act", ACTIVATIONS, "gelu"),
            order="post",
            eps=eps,
            dropout=dropout,
            attention_dropout=folder.setting("attention_probs_dropout_prob", 0.1),
        )
        length = folder.setting("max_position_embeddings") - skipped
        return Bert(folder.setting("vocab_size"), folder.setting("type_vocab_size"), length, eps, dropout, encoder)

    def renamed(name: str, tensor: Tensor) -> dict[str, Tensor]:
        name = name.removeprefix("bert.").removeprefix("roberta.")
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if UNUSED.fullmatch(name):
            return {}
        if name == PLACES:
            return {"places.weight": tensor[skipped:]}
        if match := LAYER.fullmatch(name):
            number, part, kind = match.groups()
            return {f"encoder.blocks.{number}.{PARTS.get(part, part)}.{kind}": tensor}
        return {OTHERS.get(name, name): tensor}

    model = folder.fill(make, renamed)
    assert isinstance(model, Bert)
    return model


def _mean(vectors: Tensor, lengths: Tensor) -> Tensor:
    kept = torch.arange(vectors.shape[1], device=vectors.device) < lengths.to(vectors.device).unsqueeze(1)
    total = torch.where(kept.unsqueeze(-1), vectors, 0.0).sum(1)
    return nn.functional.normalize(total / lengths.to(vectors).unsqueeze(1), dim=-1)


def _first(vectors: Tensor, lengths: Tensor) -> Tensor:
    return nn.functional.normalize(vectors[:, 0], dim=-1)


#: name: one vector of length 1 for each text, of its tokens' vectors (text, token, d_model) and its number of tokens
POOLINGS = {"mean": _mean, "first": _first}
