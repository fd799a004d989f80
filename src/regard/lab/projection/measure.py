"""Where a head's output goes with and without W_O, and what trained layers do without one of their heads."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.inspection.interventions import Ablate, effect, intervene
from regard.inspection.records import Estimate
from regard.lab.relations.model import Relater
from regard.lab.relations.task import Relating
from regard.lab.relations.texts import NOWHERE, Texts

WIDTH, HEADS, TOKENS = 32, 4, 10


def side_by_side(layer: nn.MultiHeadAttention) -> nn.MultiHeadAttention:
    """The same layer without W_O: its output is the heads' outputs, one after the other."""
    bare = copy.deepcopy(layer)
    bare.out_proj = torch_nn.Identity()  # type: ignore[assignment]
    return bare


def drawn(seed: int) -> tuple[nn.MultiHeadAttention, Tensor]:
    """A random layer in float64 and random tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.MultiHeadAttention(WIDTH, HEADS, projection_bias=False).double().eval()
        return layer, torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)


@torch.no_grad()
def footprint(layer: nn.MultiHeadAttention, x: Tensor) -> Tensor:
    """(head, block): which share of a head's effect on the output, in squares, falls into which block of numbers."""
    whole, rows = layer(x), []
    for head in range(layer.heads):
        with intervene(layer, Ablate(), heads=head):
            change = (whole - layer(x)).square().sum((0, 1))
        rows.append(change.unflatten(0, (layer.heads, -1)).sum(1) / change.sum())
    return torch.stack(rows)


@torch.no_grad()
def summed(layer: nn.MultiHeadAttention, x: Tensor) -> float:
    """The largest difference between the output and the sum of every head's output times its rows of W_O."""
    heads = side_by_side(layer)(x).split(layer.d_v, -1)
    blocks = layer.out_proj.weight.T.split(layer.d_v, 0)
    return float((layer(x) - sum(head @ block for head, block in zip(heads, blocks, strict=True))).abs().max())


@torch.no_grad()
def folded(model: Relater, texts: Texts) -> float:
    """The largest difference in the answers when W_O is multiplied into the linear layer that reads, and left out."""
    model = copy.deepcopy(model).double()
    last = model.reading[-1]
    assert isinstance(last, torch_nn.Linear)
    x = model.types(texts.types) + model.payloads(texts.payloads)
    if model.places is not None:
        x = x + model.places(torch.arange(texts.types.shape[1]).expand_as(texts.types))
    x = model.norm(x)
    both = last.weight @ model.attention.out_proj.weight
    answers = last(x) + side_by_side(model.attention)(x) @ both.T
    return float((answers - model(*texts.inputs).flatten(2)).abs().max())


def missed(task: Relating, model: torch_nn.Module, texts: Texts) -> list[dict[str, Estimate]]:
    """For each head, the share of right answers to each question that is lost when it is ablated."""
    answers = task.answers(texts)

    def lost(number: int, before: Tensor, after: Tensor) -> Tensor:
        wanted = answers[..., number]
        known = wanted != NOWHERE
        right = [
            ((each[..., number, :].argmax(-1) == wanted) & known).sum(1) / known.sum(1) for each in (before, after)
        ]
        return right[0] - right[1]

    metrics = {
        question: lambda before, after, number=number: lost(number, before, after)
        for number, question in enumerate(task.questions)
    }
    table = effect(model, [texts.inputs], Ablate(), metric=metrics)
    return [{question: _estimate(row[question]) for question in task.questions} for row in table]


def _estimate(cell: object) -> Estimate:
    assert isinstance(cell, Estimate)
    return cell


@dataclass(frozen=True)
class Shape:
    """A layer's sizes, and those of its W_O and output."""

    d_model: int
    heads: int
    d_v: int
    rows: int
    columns: int
    out: int


def shape(d_model: int, heads: int, d_v: int) -> Shape:
    """Of a layer that was made and run."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        layer = nn.MultiHeadAttention(d_model, heads, d_k=d_model // heads, d_v=d_v)
        out = layer(torch.zeros(1, 2, d_model)).shape[-1]
    columns, rows = layer.out_proj.weight.shape  # a Linear holds its matrix transposed
    return Shape(d_model, heads, d_v, rows, columns, out)
