"""Online softmax: a block of queries meets its keys tile by tile and keeps a row maximum, a row sum and an output."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.nonfinite import nonfinite_contribution
from regard.engine.tiled.tiles import Rows, Tensors, Tile, TiledCall, empty_rows
from regard.spec.forms import weights_times_values


@dataclass(frozen=True, eq=False)
class SoftmaxState:
    """Sums so far, each over e^(x − top): of the powers, times (x − top), times |i − j|; and the output.

    `bad` rows saw NaN or +Inf; `stain` is what non-finite values add to the output.
    """

    top: Tensor
    total: Tensor
    out: Tensor
    moment: Tensor
    reach: Tensor
    best: Tensor
    at: Tensor
    bad: Tensor
    stain: Tensor | float


def softmax_rows(kernel: TiledCall, rows: slice, tiles: list[Tile], value: Tensor, operands: Tensors) -> Rows:
    """Output, lse and statistics of one strip; differentiable, so that higher orders can run through it."""
    blank = empty_rows(kernel, rows)
    if not tiles:
        return blank
    zero = torch.zeros_like(blank.state)
    state = SoftmaxState(blank.state, zero, blank.out, zero, zero, blank.max_logit, blank.peak_at, zero != 0, 0.0)
    for tile in tiles:
        state = _step(kernel, tile, state, value, operands)
    return _finish(kernel, state)


def _step(kernel: TiledCall, tile: Tile, state: SoftmaxState, value: Tensor, operands: Tensors) -> SoftmaxState:
    x, logits = kernel.logits.tile(tile, kernel.logits.cut(operands, tile))
    x = x.expand(*state.top.shape, x.shape[-1])
    highest = x.detach().amax(-1)
    at = state.at
    if "peak_at" in kernel.aux:
        higher = (highest > state.top) | (highest.isnan() & ~state.top.isnan())
        at = torch.where(higher, x.detach().argmax(-1) + tile.pairs.columns.start, at)
    bad = state.bad | ~(highest < torch.inf)
    if torch.is_grad_enabled():
        # the powers of a bad row would come back as 0 · NaN, even from rows that no loss looks at
        x, highest = torch.where(bad.unsqueeze(-1), -torch.inf, x), torch.where(bad, -torch.inf, highest)
    top = torch.maximum(state.top, highest)
    sound = torch.where(top == -torch.inf, 0.0, top)
    shifted = x - sound.unsqueeze(-1)
    powers = shifted.exp()
    shrink = (state.top - sound).exp()
    total = state.total * shrink + powers.sum(-1)
    moment, reach, best, stain = state.moment, state.reach, state.best, state.stain
    if "entropy" in kernel.aux:
        moved = torch.where(shrink == 0, 0.0, state.top - sound)
        step = powers * torch.where(powers == 0, 0.0, shifted)
        moment = shrink * (moment + moved * state.total) + step.sum(-1)
    if "distance" in kernel.aux:
        reach = reach * shrink + (powers.detach() * (tile.pairs.i - tile.pairs.j).abs()).sum(-1)
    if "max_logit" in kernel.aux:
        best = torch.maximum(best, logits.detach().expand_as(x).amax(-1))
    kept = powers
    if kernel.dropout is not None:
        kept = powers * kernel.dropout.factors(tile.pairs, powers.dtype)
    out = state.out * shrink.unsqueeze(-1) + weights_times_values(kept, value[..., tile.pairs.columns, :])
    if kernel.raw_value is not None:
        stain = stain + nonfinite_contribution(x != -torch.inf, kernel.raw_value[..., tile.pairs.columns, :])
    return SoftmaxState(top, total, out, moment, reach, best, at, bad, stain)


def _finish(kernel: TiledCall, state: SoftmaxState) -> Rows:
    some = state.total != 0  # NaN counts as something
    total = torch.where(some, state.total, 1.0)
    lse, rest = _two_sum(state.top, total.log())
    lse = torch.where(some, lse, -torch.inf)
    entropy = torch.where(some, total.log() - state.moment / total, 0.0)
    out = state.out / total.unsqueeze(-1)
    if isinstance(state.stain, Tensor):
        out = torch.where(state.stain == 0, out, state.stain)
    return Rows(
        out=torch.where(state.bad.unsqueeze(-1), torch.nan, out),
        state=torch.where(state.bad, torch.nan, lse),
        entropy=torch.where(state.bad, torch.nan, entropy),
        peak=torch.where(some, 1.0 / total, 0.0).detach(),
        peak_at=state.at,
        distance=torch.where(some, state.reach / total, 0.0).detach(),
        max_logit=state.best,
        rest=torch.where(some & ~state.bad, rest, 0.0).detach(),
    )


def _two_sum(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """left + right, and exactly what rounding took from it (Knuth)."""
    total = left + right
    other = total - left
    return total, (left - (total - other)) + (right - other)
