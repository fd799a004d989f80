"""What a model answers, how far back it sees, where it looks, and how long it takes."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.inspection.capture import capture
from regard.lab.why.models import KINDS, Convolving, Recaller, Recurring
from regard.lab.why.task import Asked


@torch.no_grad()
def right(model: nn.Module, asked: Asked) -> Tensor:
    """Of each sequence, 1 if the answer is right and 0 if not."""
    found: Tensor = (model(asked.symbols, asked.marks).argmax(-1) == asked.answer).double()
    return found


def reach(model: Recaller, asked: Asked) -> int:
    """How far back a token can stand that has any influence on the answer: where gradients are not 0."""
    x = model.embedded(asked.symbols, asked.marks).detach().requires_grad_()
    (found,) = torch.autograd.grad(model.said(x).square().sum(), x)
    felt = found.abs().amax((0, 2)) > 0
    return asked.symbols.shape[1] - 1 - int(felt.nonzero()[0])


def chain(body: nn.Module, length: int, width: int) -> int:
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
def focus(model: nn.Module, asked: Asked) -> Tensor:
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


def seconds(lengths: Sequence[int], width: int, rounds: int) -> dict[str, list[float]]:
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
