"""The schemes: where each enters, who uses it (literature), and a module of it for a small causal model."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.spec.positions import sinusoidal
from regard.spec.scores import Relative

SHAW = 16  # offsets that have a vector of their own, to either side; farther ones share the last


class TransformerXL(torch_nn.Module):
    """(q + u) · k + (q + v) · W r₍ᵢ₋ⱼ₎ over √d, where r is sinusoidal: any distance has a vector, and none is learned.

    `reach` is the longest distance that will be asked for.
    """

    def __init__(self, heads: int, d_k: int, reach: int) -> None:
        super().__init__()
        self.project = torch_nn.Linear(heads * d_k, heads * d_k, bias=False)
        self.u, self.v = (torch_nn.Parameter(torch.zeros(heads, d_k)) for _ in range(2))
        self.heads = heads
        self.register_buffer("offsets", sinusoidal(2 * reach + 1, heads * d_k, start=-reach), persistent=False)

    def forward(self) -> Relative:
        """The score."""
        offsets: Tensor = self.get_buffer("offsets")
        keys = self.project(offsets).unflatten(-1, (self.heads, -1)).transpose(0, 1)
        return Relative(keys, self.u, self.v, scale=None)


@dataclass(frozen=True)
class Scheme:
    """`make(heads, d_k, longest)` gives a module for a model that will see texts up to that length; None for none."""

    name: str
    enters: str
    used: str
    make: Callable[[int, int, int], torch_nn.Module | None]


SCHEMES = (
    Scheme("none", "nowhere", "", lambda heads, d_k, longest: None),
    Scheme(
        "sinusoidal",
        "embeddings",
        "Transformer (2017), Marian",
        lambda heads, d_k, longest: nn.Sinusoidal(heads * d_k),
    ),
    Scheme(
        "learned",
        "embeddings",
        "BERT, GPT-2, GPT-3, MiniLM",
        lambda heads, d_k, longest: nn.Learned(longest, heads * d_k),
    ),
    Scheme("T5", "logits", "T5, mT5", lambda heads, d_k, longest: nn.T5(heads, bidirectional=False)),
    Scheme(
        "Shaw", "logits", "Shaw et al. (2018), Music Transformer", lambda heads, d_k, longest: nn.Relative(d_k, SHAW)
    ),
    Scheme("Transformer-XL", "logits", "Transformer-XL, XLNet", TransformerXL),
    Scheme(
        "rotary",
        "queries, keys",
        "LLaMA, GPT-NeoX, GPT-J, PaLM, SmolLM2",
        lambda heads, d_k, longest: nn.Rotary(d_k),
    ),
    Scheme("ALiBi", "logits", "BLOOM, MPT", lambda heads, d_k, longest: nn.ALiBi(heads)),
)


def named(name: str) -> Scheme:
    """The scheme of that name."""
    return next(scheme for scheme in SCHEMES if scheme.name == name)
