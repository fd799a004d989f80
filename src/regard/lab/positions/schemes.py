"""Position schemes: how each enters a model, a layer with it, and the recall that is trained."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.inspection.capture import capture
from regard.lab.training import Task
from regard.spec.positions import sinusoidal
from regard.spec.scores import Relative

TOKENS, WIDTH, HEADS, MOVED = 24, 64, 4, 100
BACK = 2
TIMES = (1, 2, 4, 8)  # lengths, in trained lengths
SHAW = 16  # offsets that have a vector of their own, to either side; farther ones share the last


class TransformerXL(torch_nn.Module):
    """(q + u) · k + (q + v) · W r₍ᵢ₋ⱼ₎ over √d, where r is sinusoidal and not learned; |i − j| is at most `reach`."""

    def __init__(self, heads: int, d_k: int, reach: int) -> None:
        super().__init__()
        self.project = torch_nn.Linear(heads * d_k, heads * d_k, bias=False)
        self.u, self.v = (torch_nn.Parameter(torch.zeros(heads, d_k)) for _ in range(2))
        self.heads = heads
        self.register_buffer("offsets", sinusoidal(2 * reach + 1, heads * d_k, start=-reach), persistent=False)

    def forward(self) -> Relative:
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
    Scheme("sinusoidal", "embeddings", "Transformer (2017), Marian", lambda heads, d_k, _: nn.Sinusoidal(heads * d_k)),
    Scheme(
        "learned",
        "embeddings",
        "BERT, GPT-2, GPT-3, MiniLM",
        lambda heads, d_k, longest: nn.Learned(longest, heads * d_k),
    ),
    Scheme("T5", "logits", "T5, mT5", lambda heads, d_k, longest: nn.T5(heads, bidirectional=False)),
    Scheme("Shaw", "logits", "Shaw et al. (2018), Music Transformer", lambda heads, d_k, _: nn.Relative(d_k, SHAW)),
    Scheme("Transformer-XL", "logits", "Transformer-XL, XLNet", TransformerXL),
    Scheme("rotary", "queries, keys", "LLaMA, GPT-NeoX, GPT-J, PaLM, SmolLM2", lambda heads, d_k, _: nn.Rotary(d_k)),
    Scheme("ALiBi", "logits", "BLOOM, MPT", lambda heads, d_k, longest: nn.ALiBi(heads)),
)


def named(name: str) -> Scheme:
    """The scheme of that name."""
    return next(scheme for scheme in SCHEMES if scheme.name == name)


@dataclass(frozen=True)
class PositionRecall(Task):
    """Random texts of one length for a causal model of one layer with one scheme of positions."""

    scheme: str
    length: int
    longest: int
    batch: int
    back: int = BACK
    vocabulary: int = 16
    width: int = 32
    heads: int = HEADS

    @property
    def name(self) -> str:
        return f"positions {self.scheme} {self.seed}"

    def model(self) -> torch_nn.Module:
        """One block. Tables of learned positions have rows for the longest text; training reaches the first only."""
        return nn.LanguageModel(
            self.vocabulary,
            layers=1,
            d_model=self.width,
            heads=self.heads,
            d_ff=2 * self.width,
            position=named(self.scheme).make(self.heads, self.width // self.heads, self.longest),
            tied=False,
            engine="reference",  # the fastest for texts this short
        )

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        tokens = torch.randint(self.vocabulary, (self.batch, self.length), generator=generator)
        return cross_entropy(model(tokens)[:, self.back :].flatten(0, 1), tokens[:, : -self.back].flatten())


def right(model: torch_nn.Module, tokens: Tensor, back: int, last: int) -> float:
    """The share of the last tokens of each text that name the right one."""
    with torch.no_grad():
        right = model(tokens)[:, back:].argmax(-1) == tokens[:, :-back]
    return float(right[:, -last:].double().mean())


def profile(model: torch_nn.Module, tokens: Tensor, reach: int) -> Tensor:
    """Mean weight by distance, 0 to reach − 1, over heads, texts and the tokens that have so many before them."""
    with torch.no_grad(), warnings.catch_warnings():
        # relative scores have no native kernel, which does not matter for texts this short
        warnings.filterwarnings("ignore", message="regard runs this on 'tiled'")
        captured = capture(model, tokens)
        weights = torch.stack([captured[0, head].dense() for head in range(captured[0].shape[-3])], 1).double()
    place = torch.arange(reach - 1, tokens.shape[1])
    return torch.stack([weights[..., place, place - distance].mean() for distance in range(reach)])
