"""Shapes of attention layers in known models: literature, with parameters and operations by formula and by count."""

from dataclasses import dataclass

import torch

from regard.engine.plan import plan
from regard.lab import counted
from regard.nn import MultiHeadAttention

LENGTH = 512  # tokens: the longest text of BERT


@dataclass(frozen=True)
class Shape:
    """The sizes of one attention layer of a known model."""

    model: str
    d_model: int
    heads: int
    kv_heads: int
    d_k: int
    biases: bool

    @property
    def parameters(self) -> int:
        """W_Q, W_K, W_V and W_O, and their biases."""
        queries, keys = self.heads * self.d_k, self.kv_heads * self.d_k
        biases = queries + 2 * keys + self.d_model if self.biases else 0
        return self.d_model * (2 * queries + 2 * keys) + biases

    @property
    def projecting(self) -> int:
        """Operations of the four projections of a text: linear in its length."""
        return 2 * LENGTH * self.d_model * self.d_k * (2 * self.heads + 2 * self.kv_heads)

    @property
    def pairing(self) -> int:
        """Operations of scores and of weighted values: quadratic in the length."""
        return 4 * LENGTH**2 * self.heads * self.d_k

    def layer(self) -> MultiHeadAttention:
        """The layer, as shapes without numbers."""
        with torch.device("meta"):
            return MultiHeadAttention(
                self.d_model,
                self.heads,
                kv_heads=self.kv_heads,
                d_k=self.d_k,
                projection_bias=self.biases,
            )

    def counted(self) -> tuple[int, int, int]:
        """Parameters and operations of that layer, counted: projections by torch's counter, pairs by `plan`."""
        layer, x = self.layer(), torch.empty(1, LENGTH, self.d_model, device="meta")
        joined = torch.empty(1, LENGTH, self.heads * self.d_k, device="meta")
        projecting = sum(
            counted.operations(lambda part=part, given=given: part(given))  # type: ignore[misc]
            for part, given in ((layer.q_proj, x), (layer.k_proj, x), (layer.v_proj, x), (layer.out_proj, joined))
        )
        # heads that share a key, and as many times as there are keys
        query, key = torch.zeros(1, self.heads // self.kv_heads, LENGTH, self.d_k), torch.zeros(1, 1, LENGTH, self.d_k)
        pairing = self.kv_heads * plan(query, key, key, engine="tiled").flops
        return sum(parameter.numel() for parameter in layer.parameters()), projecting, pairing


BERT = Shape("BERT-base", 768, 12, 12, 64, True)
MODELS = (
    Shape("Transformer base", 512, 8, 8, 64, False),
    BERT,
    Shape("BERT-large", 1024, 16, 16, 64, True),
    Shape("GPT-2 small", 768, 12, 12, 64, True),
    Shape("GPT-2 XL", 1600, 25, 25, 64, True),
    Shape("GPT-3 175B", 12288, 96, 96, 128, True),
    Shape("T5-base", 768, 12, 12, 64, False),
    Shape("T5 v1.1 small", 512, 6, 6, 64, False),
    Shape("T5-3B", 1024, 32, 32, 128, False),
    Shape("T5-11B", 1024, 128, 128, 128, False),
    Shape("Llama 3.2 1B", 2048, 32, 8, 64, False),
    Shape("Llama 3 8B", 4096, 32, 8, 128, False),
    Shape("Llama 2 70B", 8192, 64, 8, 128, False),
    Shape("Gemma 2B", 2048, 8, 1, 256, False),
    Shape("Gemma 7B", 3072, 16, 16, 256, False),
    Shape("SmolLM2-135M", 576, 9, 3, 64, False),
)
