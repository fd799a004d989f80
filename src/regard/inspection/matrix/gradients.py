"""Differentiable reductions: lse and entropy by the engines, mass from two lse."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.arrays import Array
from regard.engine.arguments import Shapes, mask_of, tensors_of
from regard.engine.attend import run
from regard.engine.request import Request
from regard.engine.second_pass import row_states
from regard.engine.tiled.engine import logits_of, lower_tiled
from regard.engine.tiled.full_row import column_span, full_row_weights, row_block_logits
from regard.inspection.matrix.source import Computed, Stored
from regard.spec.masks import Mask
from regard.spec.normalizers import Softmax
from regard.spec.plane import Plane
from regard.spec.scores import Additive, ConcatMLP, Cosine, Dot, General, ScaledDot

PLAIN = (Dot, ScaledDot, General, Cosine, Additive, ConcatMLP)  # scores that hold no function


def needed(request: Request) -> bool:
    """Whether something that the weights depend on requires a gradient."""
    parts = (request.score, request.normalizer, request.bias)
    tensors = [request.query, request.key, *(tensor for part in parts for _, tensor in tensors_of("", part))]
    if isinstance(request.temperature, Tensor):
        tensors.append(request.temperature)
    if not torch.is_grad_enabled():
        return False
    if any(tensor.requires_grad for tensor in tensors):
        return True
    # a function of the user's may hold tensors that only lowering finds
    if isinstance(request.score, PLAIN):
        return False
    return any(operand.tensor.requires_grad for operand in logits_of(request).operands)


def row_statistic(request: Request, name: str) -> Tensor:
    """lse or entropy with its graph, (map, query)."""
    statistic: Tensor = getattr(run(replace(request, aux=(name,))).aux, name)
    return statistic.flatten(0, 2)


def mass(source: Computed, mask: Mask) -> Tensor:
    """The share of the weight on a mask, (map, query): e^(lse over the mask − lse)."""
    request = source.request
    mask.check(request.plane)
    inside = replace(request, mask=request.mask & mask)
    if not source.softmax:
        return _by_row_blocks(request, mask)
    inside = replace(inside, normalizer=Softmax())
    part = row_states(inside)
    some, every = (rows.state.double() + rows.rest.double() for rows in (part, source.known()))
    empty = part.state == -torch.inf
    share = torch.where(empty, 0.0, (torch.where(empty, 0.0, some) - torch.where(empty, 0.0, every)).exp())
    mass = share.to(source.dtype).flatten(0, 1)
    if not needed(request):
        return mass
    logs = []
    for each in (inside, request):
        lse = row_statistic(each, "lse")
        lse = torch.where(empty.flatten(0, 1), 0.0, lse)
        logs.append(lse - lse.detach())
    return mass * (logs[0] - logs[1]).exp()


def _by_row_blocks(request: Request, mask: Mask) -> Tensor:
    """For full-row normalizers; backward computes each block of rows again."""
    kernel, _, operands = lower_tiled(request)
    plane = request.plane
    parts = [torch.zeros((plane.batch * plane.heads, 0), dtype=request.dtype, device=request.query.device)]
    for rows, tiles in kernel.schedule.row_blocks:

        def block(*given: Tensor, rows: slice = rows, tiles: list = tiles) -> Tensor:  # type: ignore[type-arg]
            weights = full_row_weights(kernel, row_block_logits(kernel, rows, tiles, given)[0])[0]
            seen = mask.visible(plane.pairs(rows, column_span(tiles)))
            return torch.where(seen, weights, 0.0).sum(-1).flatten(0, 2)

        if not tiles:
            parts.append(parts[0].new_zeros((parts[0].shape[0], rows.stop - rows.start)))
        elif torch.is_grad_enabled() and any(operand.requires_grad for operand in operands):
            parts.append(checkpoint(block, *operands, use_reentrant=False))
        else:
            parts.append(block(*operands))
    return torch.cat(parts, 1)


def stored_mass(source: Stored, mask: Mask | Tensor | Array | str) -> Tensor:
    """The same of given weights; all axes before the heads are one batch axis."""
    start = torch.tensor([max(source.keys - source.queries, 0)], device="cpu", dtype=torch.int64)
    batch = source.maps // max(1, source.heads)
    shapes = Shapes((batch,), source.heads, 1, source.queries, source.keys, 0, 4)
    plane = Plane(batch, source.heads, 1, source.queries, source.keys, start, 0, source.device)
    visible = mask_of(mask, shapes)
    visible.check(plane)
    parts = []
    for block in source.blocks():
        seen = visible.visible(plane.pairs(block.rows, block.columns)).expand(
            batch, source.heads, 1, *block.weights.shape[1:]
        )
        parts.append(torch.where(seen.reshape(block.weights.shape), block.weights, 0.0).sum(-1))
    return torch.cat(parts, 1) if parts else source.weights.sum(-1)
