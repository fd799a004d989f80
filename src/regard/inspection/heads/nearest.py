"""Nearest: which other head of a model has the most similar pattern."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.heads.layer import Layer
from regard.inspection.heads.sums import centered as less_mean
from regard.inspection.heads.sums import cosines, products
from regard.inspection.heads.visible import visible
from regard.progress import report

EXACT = 512  # more queries than this are sampled:
SAMPLE, RUN = 512, 8  # so many of them, so many in a row
CELLS = 1 << 24  # weights that are held together


@dataclass(frozen=True, eq=False)
class Nearest:
    """Of each head of a layer: the number of a layer and of a head in it, −1 if there is no other, and how similar."""

    layer: Tensor
    head: Tensor
    similarity: Tensor


def nearest(layers: Sequence[Layer], centered: bool, per_batch: bool) -> dict[int, Nearest]:
    """By the number of the layer, (batch or 1, head) each. Only layers of one size are compared."""
    found: dict[int, Nearest] = {}
    groups: dict[tuple[int, ...], list[Layer]] = {}
    for layer in layers:
        plane = layer.source.request.plane
        groups.setdefault((plane.batch, plane.queries, plane.keys), []).append(layer)
    for group in groups.values():
        alike = _alike(group, centered)
        counts = torch.stack([layer.sight.counted.any(1).any(-1) for layer in group]).all(0)
        alike = torch.where(counts.view(-1, 1, 1), alike, torch.nan)
        alike = alike if per_batch else alike.nanmean(0, keepdim=True)
        found |= _split(group, alike)
    return found


def sampled(queries: int) -> Iterator[slice]:
    """The rows that stand for all: all of them if they are few, else short runs at even distances, ends included."""
    if queries <= EXACT:
        yield slice(0, queries)
        return
    count = SAMPLE // RUN
    for number in range(count):
        first = number * (queries - RUN) // (count - 1)
        yield slice(first, first + RUN)


def _alike(group: Sequence[Layer], centered: bool) -> Tensor:
    """The cosine over the sampled rows of any two heads of the layers, (batch, head, head)."""
    plane = group[0].source.request.plane
    heads = sum(layer.source.heads for layer in group)
    total = torch.zeros((plane.batch, heads, heads), dtype=torch.float64, device="cpu")
    noise = torch.zeros((plane.batch, heads), dtype=torch.float64, device="cpu")
    step = max(1, CELLS // max(1, plane.batch * heads * plane.keys))
    for run in sampled(plane.queries):
        for first in range(run.start, run.stop, step):
            rows = slice(first, min(run.stop, first + step))
            total += products(torch.cat([_pattern(layer, rows, centered) for layer in group], 1))
            if centered:
                noise += torch.cat([layer.noise(rows) for layer in group], 1)
            report("comparing heads", rows.stop, plane.queries, "rows")
    return cosines(total, noise)


def _pattern(layer: Layer, rows: slice, centered: bool) -> Tensor:
    """(batch, head, row, key); 0 in rows that do not count."""
    source = layer.source
    found: Tensor = source.tile(rows, slice(0, source.keys)).unflatten(0, (-1, source.heads))
    if centered:
        found = less_mean(found, visible(source.request, rows), layer.mean[..., rows])
    return found * layer.sight.counted[..., rows].to(found).unsqueeze(-1)


def _split(group: Sequence[Layer], alike: Tensor) -> dict[int, Nearest]:
    """(batch, head, head) of all layers to the best of each head."""
    numbers = torch.tensor(
        [layer.number for layer in group for _ in range(layer.source.heads)], device="cpu", dtype=torch.int64
    )
    heads = torch.tensor([head for layer in group for head in layer.heads], device="cpu", dtype=torch.int64)
    shown = torch.tensor(
        [head in layer.shown for layer in group for head in layer.heads], device="cpu", dtype=torch.bool
    )
    alike = torch.where(shown, alike, -2.0)
    alike.diagonal(dim1=-2, dim2=-1).fill_(-2.0)
    value, place = torch.where(alike.isnan(), -2.0, alike).max(-1)
    none = value < -1.5
    best = Nearest(
        torch.where(none, -1, numbers[place]),
        torch.where(none, -1, heads[place]),
        torch.where(none, torch.nan, value),
    )
    found, first = {}, 0
    for layer in group:
        own = slice(first, first + layer.source.heads)
        found[layer.number] = Nearest(best.layer[:, own], best.head[:, own], best.similarity[:, own])
        first = own.stop
    return found
