"""Attention, convolution and recurrence on one task: some tokens bear marks, the last token asks for one of them.

All three have the same input and output. Below the task: what a model answers, how far back it sees, where it looks,
and how long it takes.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.checks import whole
from regard.inspection.capture import capture
from regard.lab.statistics import parameters
from regard.lab.training import Task

HEADS, D_K = 4, 8  # of attention
LAYERS, KERNEL = 4, 5  # of the convolution
REACH = LAYERS * (KERNEL - 1)  # how far back it sees
SYMBOLS = 8


class Attending(torch_nn.Module):
    """One block of attention, four small heads. It has no positions: tokens are found by what they are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Block(width, HEADS, d_k=D_K, d_ff=width, mask="causal")

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks at all before it, at once."""
        out: Tensor = self.block(x)
        return out


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
        out: Tensor = self.unit(x)[0]
        return out


KINDS: dict[str, type[torch_nn.Module]] = {"attention": Attending, "convolution": Convolving, "recurrence": Recurring}


class Recaller(torch_nn.Module):
    """Symbols and marks, one of the three, and what it says at the last token: logits (batch, symbol)."""

    def __init__(self, kind: str, symbols: int, marked: int, width: int) -> None:
        super().__init__()
        self.marked = marked
        self.tokens = torch_nn.Embedding(symbols * (marked + 1), width)
        self.marks = torch_nn.Embedding(marked + 1, width)
        self.question = torch_nn.Parameter(torch.randn(width))
        self.body = KINDS[kind](width)
        self.norm = torch_nn.LayerNorm(width)
        self.head = torch_nn.Linear(width, symbols)

    def forward(self, symbols: Tensor, marks: Tensor) -> Tensor:
        """(batch, length) of symbols, and of the mark that each of them bears, to (batch, symbol)."""
        return self.said(self.embedded(symbols, marks))

    def embedded(self, symbols: Tensor, marks: Tensor) -> Tensor:
        """(batch, length, width): a vector for the symbol as it is marked, one for the mark, one for a question."""
        asks = marks > self.marked
        borne = torch.where(asks, 0, marks)
        named = torch.where(asks, marks - self.marked, marks)
        x: Tensor = self.tokens(symbols + self.head.out_features * borne) + self.marks(named)
        return x + asks.unsqueeze(-1) * self.question

    def said(self, x: Tensor) -> Tensor:
        """The answer to embedded tokens."""
        logits: Tensor = self.head(self.norm(self.body(x)[:, -1]))
        return logits


@cache
def fitted(kind: str, symbols: int, marked: int, most: int) -> int:
    """The largest width whose model has no more parameters than this."""
    width = 1
    with torch.random.fork_rng(devices=[]):
        while parameters(Recaller(kind, symbols, marked, width + 1)) <= whole("most", most, 1):
            width += 1
    return width


@dataclass(frozen=True)
class RecallQuestions:
    """Symbols and marks (batch, length), and of each row the answer and how far back it stands.

    Mark 0 is none, 1 to k are those of the tokens to keep, k + 1 to 2k ask for one of these.
    """

    symbols: Tensor
    marks: Tensor
    answer: Tensor
    distance: Tensor


def drawn(batch: int, length: int, marked: int, generator: torch.Generator) -> RecallQuestions:
    """Random sequences. Near and far are asked for alike: every doubling of the distance comes as often."""
    symbols = torch.randint(SYMBOLS, (batch, length), generator=generator)
    far = (torch.rand(batch, generator=generator) * math.log(length)).exp().long()
    distance = far.clamp(1, length - 1)
    at = length - 1 - distance
    order = torch.rand(batch, length - 1, generator=generator).scatter(1, at[:, None], -1.0)
    places = order.argsort(1)[:, :marked]  # the first is the one that is asked for
    named = torch.rand(batch, marked, generator=generator).argsort(1) + 1
    marks = torch.zeros_like(symbols).scatter(1, places, named)
    marks[:, -1] = marked + named[:, 0]
    return RecallQuestions(symbols, marks, symbols.gather(1, at[:, None])[:, 0], distance)


@dataclass(frozen=True)
class MarkRecall(Task):
    """One kind of model, as wide as its parameters allow."""

    kind: str
    length: int
    marked: int
    most: int
    batch: int

    @property
    def name(self) -> str:
        """The kind, how many tokens are marked, and the seed."""
        return f"why {self.kind} {self.marked} {self.seed}"

    def model(self) -> torch_nn.Module:
        """The model."""
        return Recaller(self.kind, SYMBOLS, self.marked, fitted(self.kind, SYMBOLS, self.marked, self.most))

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy of the answers."""
        asked = drawn(self.batch, self.length, self.marked, generator)
        return cross_entropy(model(asked.symbols, asked.marks), asked.answer)


@torch.no_grad()
def right_answers(model: torch_nn.Module, asked: RecallQuestions) -> Tensor:
    """1 for each sequence that is answered right, else 0."""
    right: Tensor = (model(asked.symbols, asked.marks).argmax(-1) == asked.answer).double()
    return right


def reach(model: Recaller, asked: RecallQuestions) -> int:
    """How far back a token can stand that has any influence on the answer: where gradients are not 0."""
    x = model.embedded(asked.symbols, asked.marks).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model.said(x).square().sum(), x)
    felt = gradient.abs().amax((0, 2)) > 0
    return asked.symbols.shape[1] - 1 - int(felt.nonzero()[0])


def chain(body: torch_nn.Module, length: int, width: int) -> int:
    """The longest chain of operations in which each waits for the one before, from the tokens to the last output."""
    x = torch.zeros(1, length, width, requires_grad=True)
    body(x)  # what is prepared once for a length does not count
    end = body(x)[:, -1].sum().grad_fn
    depth: dict[Any, int] = {}
    stack = [end]
    while stack:
        node = stack[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        missing = [each for each in before if each not in depth]
        if missing:
            stack += missing
            continue
        depth[stack.pop()] = 1 + max((depth[each] for each in before), default=0)
    return depth[end]


@torch.no_grad()
def focus(model: torch_nn.Module, asked: RecallQuestions) -> Tensor:
    """The weight of the last token on the one it asks for, in the head that has most; attention alone has such weights.

    The head is chosen on the first half of the sequences, the numbers are of the others.
    """
    weights = capture(model, asked.symbols, asked.marks)[0].dense()[:, :, -1]
    at = asked.symbols.shape[1] - 1 - asked.distance
    there = weights.gather(2, at.view(-1, 1, 1).expand(-1, weights.shape[1], 1))[..., 0].double()
    half = len(there) // 2
    return there[half:, int(there[:half].mean(0).argmax())]


@torch.no_grad()
def slid(body: Convolving, x: Tensor, by: int) -> float:
    """How much a convolution's answer to a sequence that comes later differs from its later answer."""
    late = torch.nn.functional.pad(x, (0, 0, by, 0))
    return float((body(late)[:, by + x.shape[1] // 2 :] - body(x)[:, x.shape[1] // 2 :]).abs().max())


@torch.no_grad()
def stepped(body: Recurring, x: Tensor) -> float:
    """How much a recurrent net differs from one step that is repeated, each time on the state that the last left."""
    state, outs = None, []
    for token in x.unbind(1):
        out, state = body.unit(token.unsqueeze(1), state)
        outs.append(out)
    return float((torch.cat(outs, 1) - body(x)).abs().max())


def pass_seconds(lengths: Sequence[int], width: int, rounds: int) -> dict[str, list[float]]:
    """The best time of one pass over a sequence of each length, the three in turns."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        bodies = {kind: body(width).eval() for kind, body in KINDS.items()}
        inputs = [torch.randn(1, length, width) for length in lengths]
    best = {kind: [float("inf")] * len(lengths) for kind in bodies}
    with torch.no_grad():
        for _ in range(rounds):
            for place, x in enumerate(inputs):
                for kind, body in bodies.items():
                    begun = time.perf_counter()
                    body(x)
                    best[kind][place] = min(best[kind][place], time.perf_counter() - begun)
    return best
