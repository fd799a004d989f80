"""Attention, convolution and recurrence between the same two ends: tokens in, the answer at the last of them out."""

from functools import cache

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.checks import whole

HEADS, D_K = 4, 8  # of attention
LAYERS, KERNEL = 4, 5  # of the convolution
REACH = LAYERS * (KERNEL - 1)  # how far back it sees


class Attending(torch_nn.Module):
    """One block of attention, four small heads. It has no positions: tokens are found by what they are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Block(width, HEADS, d_k=D_K, d_ff=width, mask="causal")

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks at all before it, at once."""
        found: Tensor = self.block(x)
        return found


class Convolving(torch_nn.Module):
    """Layers of one filter each that is slid over the tokens, seeing its own and those just before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.filters = torch_nn.ModuleList(torch_nn.Conv1d(width, width, KERNEL) for _ in range(LAYERS))
        self.norms = torch_nn.ModuleList(torch_nn.LayerNorm(width) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks `REACH` tokens back, at once."""
        for filter_, norm in zip(self.filters, self.norms, strict=True):
            before = torch_nn.functional.pad(norm(x).transpose(1, 2), (KERNEL - 1, 0))
            x = x + torch_nn.functional.gelu(filter_(before)).transpose(1, 2)
        return x


class Recurring(torch_nn.Module):
    """A gated recurrent unit: one state that goes from token to token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.unit = torch_nn.GRU(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Every token waits for the one before it."""
        found: Tensor = self.unit(x)[0]
        return found


KINDS: dict[str, type[torch_nn.Module]] = {"attention": Attending, "convolution": Convolving, "recurrence": Recurring}


class Recaller(torch_nn.Module):
    """Symbols and marks, one of the three, and what it says at the last token: logits (batch, symbol)."""

    def __init__(self, kind: str, symbols: int, kept: int, width: int) -> None:
        super().__init__()
        self.kept = kept
        self.tokens = torch_nn.Embedding(symbols * (kept + 1), width)
        self.marks = torch_nn.Embedding(kept + 1, width)
        self.question = torch_nn.Parameter(torch.randn(width))
        self.body = KINDS[kind](width)
        self.norm = torch_nn.LayerNorm(width)
        self.head = torch_nn.Linear(width, symbols)

    def forward(self, symbols: Tensor, marks: Tensor) -> Tensor:
        """(batch, length) of symbols, and of the mark that each of them bears, to (batch, symbol)."""
        return self.said(self.embedded(symbols, marks))

    def embedded(self, symbols: Tensor, marks: Tensor) -> Tensor:
        """(batch, length, width): a vector for the symbol as it is marked, one for the mark, one for a question."""
        asks = marks > self.kept
        borne = torch.where(asks, 0, marks)
        named = torch.where(asks, marks - self.kept, marks)
        x: Tensor = self.tokens(symbols + self.head.out_features * borne) + self.marks(named)
        return x + asks.unsqueeze(-1) * self.question

    def said(self, x: Tensor) -> Tensor:
        """The answer to embedded tokens."""
        found: Tensor = self.head(self.norm(self.body(x)[:, -1]))
        return found


def parameters(model: torch_nn.Module) -> int:
    """How many numbers it learns."""
    return sum(each.numel() for each in model.parameters())


@cache
def fitted(kind: str, symbols: int, kept: int, most: int) -> int:
    """The largest width whose model has no more parameters than this."""
    width = 1
    with torch.random.fork_rng(devices=[]):
        while parameters(Recaller(kind, symbols, kept, width + 1)) <= whole("most", most, 1):
            width += 1
    return width
