"""Online softmax: a block of queries meets its keys tile by tile and keeps a row maximum, a row sum and an output."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.nonfinite import nonfinite_contribution
from regard.engine.tiled.tiles import Rows, Tensors, Tile, TiledCall, empty_rows
from regard.spec.forms import weights_times_values


@dataclass(frozen=True, eq=False)
class SoftmaxState:
    """Sums so far, each over e^(x − row_max): of the powers, times (x − row_max), times |i − j|; and the output.

    `bad` rows saw NaN or +Inf; `nonfinite_out` is what non-finite values add to the output.
    """

    row_max: Tensor
    row_sum: Tensor
    out: Tensor
    moment: Tensor
    reach: Tensor
    best: Tensor
    at: Tensor
    bad: Tensor
    nonfinite_out: Tensor | float


def softmax_rows(kernel: TiledCall, rows: slice, tiles: list[Tile], value: Tensor, operands: Tensors) -> Rows:
    """Output, lse and statistics of one row block; differentiable, so that higher orders can run through it."""
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
    x = x.expand(*state.row_max.shape, x.shape[-1])
    highest = x.detach().amax(-1)
    at = state.at
    if "peak_at" in kernel.aux:
        higher = (highest > state.row_max) | (highest.isnan() & ~state.row_max.isnan())
        at = torch.where(higher, x.detach().argmax(-1) + tile.pairs.columns.start, at)
    bad = state.bad | ~(highest < torch.inf)
    if torch.is_grad_enabled():
        # the powers of a bad row would come back as 0 · NaN, even from rows that no loss looks at
        x, highest = torch.where(bad.unsqueeze(-1), -torch.inf, x), torch.where(bad, -torch.inf, highest)
    row_max = torch.maximum(state.row_max, highest)
    shift = torch.where(row_max == -torch.inf, 0.0, row_max)
    shifted = x - shift.unsqueeze(-1)
    powers = shifted.exp()
    rescale = (state.row_max - shift).exp()
    row_sum = state.row_sum * rescale + powers.sum(-1)
    moment, reach, best, nonfinite_out = state.moment, state.reach, state.best, state.nonfinite_out
    if "entropy" in kernel.aux:
        moved = torch.where(rescale == 0, 0.0, state.row_max - shift)
        step = powers * torch.where(powers == 0, 0.0, shifted)
        moment = rescale * (moment + moved * state.row_sum) + step.sum(-1)
    if "distance" in kernel.aux:
        reach = reach * rescale + (powers.detach() * (tile.pairs.i - tile.pairs.j).abs()).sum(-1)
    if "max_logit" in kernel.aux:
        best = torch.maximum(best, logits.detach().expand_as(x).amax(-1))
    dropped = powers
    if kernel.dropout is not None:
        dropped = powers * kernel.dropout.factors(tile.pairs, powers.dtype)
    out = state.out * rescale.unsqueeze(-1) + weights_times_values(dropped, value[..., tile.pairs.columns, :])
    if kernel.raw_value is not None:
        nonfinite_out = nonfinite_out + nonfinite_contribution(
            x != -torch.inf, kernel.raw_value[..., tile.pairs.columns, :]
        )
    return SoftmaxState(row_max, row_sum, out, moment, reach, best, at, bad, nonfinite_out)


def _finish(kernel: TiledCall, state: SoftmaxState) -> Rows:
    some = state.row_sum != 0  # NaN counts as something
    total = torch.where(some, state.row_sum, 1.0)
    logs = total.log()
    lse = state.row_max + logs
    shift = lse - state.row_max
    rest = (state.row_max - (lse - shift)) + (logs - shift)  # exactly what rounding took from the lse (Knuth's TwoSum)
    lse = torch.where(some, lse, -torch.inf)
    entropy = torch.where(some, total.log() - state.moment / total, 0.0)
    out = state.out / total.unsqueeze(-1)
    if isinstance(state.nonfinite_out, Tensor):
        out = torch.where(state.nonfinite_out == 0, out, state.nonfinite_out)
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
