"""Attention, convolution and recurrence on one task: some tokens bear marks, the last token asks for one of them.

All three have the same input and output. Below the task: what a model answers, how far back it sees, and where it
looks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.inspection.capture import capture
from regard.lab.statistics import parameters
from regard.lab.training import Task

HEADS, D_K = 4, 8  # of attention
LAYERS, KERNEL = 4, 5  # of the convolution
REACH = LAYERS * (KERNEL - 1)  # how far back it sees
SYMBOLS = 8
MOST = 10_000  # parameters of a model


def attending(width: int) -> torch_nn.Module:
    """One block of attention, four small heads. It has no positions: tokens are found by what they are."""
    return nn.Block(width, HEADS, d_k=D_K, d_ff=width, mask="causal")


class Convolving(torch_nn.Module):
    """Layers of one filter each that is slid over the tokens: every token sees `REACH` tokens back, at once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.filters = torch_nn.ModuleList(torch_nn.Conv1d(width, width, KERNEL) for _ in range(LAYERS))
        self.norms = torch_nn.ModuleList(torch_nn.LayerNorm(width) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for filter_, norm in zip(self.filters, self.norms, strict=True):
            before = torch_nn.functional.pad(norm(x).transpose(1, 2), (KERNEL - 1, 0))
            x = x + torch_nn.functional.gelu(filter_(before)).transpose(1, 2)
        return x


class Recurring(torch_nn.Module):
    """A gated recurrent unit: one state that goes from token to token, each of which waits for the one before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.unit = torch_nn.GRU(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.unit(x)[0]
        return out


KINDS: dict[str, Callable[[int], torch_nn.Module]] = {
    "attention": attending,
    "convolution": Convolving,
    "recurrence": Recurring,
}


class Recaller(torch_nn.Module):
    """Symbols and marks, one of the three, and what it says at the last token: logits (batch, symbol)."""

    def __init__(self, kind: str, marked: int, width: int) -> None:
        super().__init__()
        self.marked = marked
        self.tokens = torch_nn.Embedding(SYMBOLS * (marked + 1), width)
        self.marks = torch_nn.Embedding(marked + 1, width)
        self.question = torch_nn.Parameter(torch.randn(width))
        self.body = KINDS[kind](width)
        self.norm = torch_nn.LayerNorm(width)
        self.head = torch_nn.Linear(width, SYMBOLS)

    def forward(self, symbols: Tensor, marks: Tensor) -> Tensor:
        """(batch, length) of symbols, and of the mark that each of them bears, to (batch, symbol)."""
        return self.answer(self.embedded(symbols, marks))

    def embedded(self, symbols: Tensor, marks: Tensor) -> Tensor:
        """(batch, length, width): a vector for the symbol as it is marked, one for the mark, one for a question."""
        asks = marks > self.marked
        borne = torch.where(asks, 0, marks)
        named = torch.where(asks, marks - self.marked, marks)
        x: Tensor = self.tokens(symbols + SYMBOLS * borne) + self.marks(named)
        return x + asks.unsqueeze(-1) * self.question

    def answer(self, x: Tensor) -> Tensor:
        """The answer to embedded tokens."""
        logits: Tensor = self.head(self.norm(self.body(x)[:, -1]))
        return logits


@cache
def fitted(kind: str, marked: int) -> int:
    """The largest width whose model has no more than `MOST` parameters."""
    width = 1
    with torch.random.fork_rng(devices=[]):
        while parameters(Recaller(kind, marked, width + 1)) <= MOST:
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
    batch: int

    @property
    def name(self) -> str:
        return f"why {self.kind} {self.marked} {self.seed}"

    def model(self) -> torch_nn.Module:
        return Recaller(self.kind, self.marked, fitted(self.kind, self.marked))

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        questions = drawn(self.batch, self.length, self.marked, generator)
        return cross_entropy(model(questions.symbols, questions.marks), questions.answer)


@torch.no_grad()
def right_answers(model: torch_nn.Module, questions: RecallQuestions) -> Tensor:
    """1 for each sequence that is answered right, else 0."""
    right: Tensor = (model(questions.symbols, questions.marks).argmax(-1) == questions.answer).double()
    return right


def reach(model: Recaller, questions: RecallQuestions) -> int:
    """How far back a token can stand that has any influence on the answer: where gradients are not 0."""
    x = model.embedded(questions.symbols, questions.marks).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model.answer(x).square().sum(), x)
    influence = gradient.abs().amax((0, 2)) > 0
    return questions.symbols.shape[1] - 1 - int(influence.nonzero()[0])


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
def focus(model: torch_nn.Module, questions: RecallQuestions) -> Tensor:
    """The weight of the last token on the one it asks for, in the head that has most; attention alone has such weights.

    The head is chosen on the first half of the sequences, the numbers are of the others.
    """
    weights = capture(model, questions.symbols, questions.marks)[0].dense()[:, :, -1]
    at = questions.symbols.shape[1] - 1 - questions.distance
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
