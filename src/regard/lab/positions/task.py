"""Recalling: every token is to tell which token stood a few places before it. Only who knows distances can."""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.inspection.capture import capture
from regard.lab.positions.schemes import named
from regard.lab.training import Task
from regard.nn import LanguageModel


@dataclass(frozen=True)
class Recalling(Task):
    """Random texts of one length for a causal model of one layer with one scheme of positions."""

    scheme: str
    length: int
    longest: int
    back: int
    vocabulary: int
    width: int
    heads: int
    batch: int

    @property
    def name(self) -> str:
        """With the scheme and the seed."""
        return f"positions {self.scheme} {self.seed}"

    def model(self) -> nn.Module:
        """One block. Tables of learned positions have rows for the longest text; training reaches the first only."""
        return LanguageModel(
            self.vocabulary,
            layers=1,
            d_model=self.width,
            heads=self.heads,
            d_ff=2 * self.width,
            position=named(self.scheme).make(self.heads, self.width // self.heads, self.longest),
            tied=False,
            engine="reference",  # for texts as short as these the quickest
        )

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of texts that never come again."""
        tokens = torch.randint(self.vocabulary, (self.batch, self.length), generator=generator)
        return cross_entropy(model(tokens)[:, self.back :].flatten(0, 1), tokens[:, : -self.back].flatten())


def right(model: nn.Module, tokens: Tensor, back: int, last: int) -> float:
    """The share of the last tokens of each text that name the right one."""
    with torch.no_grad():
        told = model(tokens)[:, back:].argmax(-1) == tokens[:, :-back]
    return float(told[:, -last:].double().mean())


def profile(model: nn.Module, tokens: Tensor, reach: int) -> Tensor:
    """Mean weight by distance, 0 to reach − 1, over heads, texts and the tokens that have so many before them."""
    with torch.no_grad(), warnings.catch_warnings():
        # relative scores have no native kernel; for texts as short as these that is nothing to be warned of
        warnings.filterwarnings("ignore", message="regard runs this on 'tiled'")
        found = capture(model, tokens)
        weights = torch.stack([found[0, head].dense() for head in range(found[0].shape[-3])], 1).double()
    place = torch.arange(reach - 1, tokens.shape[1])
    return torch.stack([weights[..., place, place - distance].mean() for distance in range(reach)])
