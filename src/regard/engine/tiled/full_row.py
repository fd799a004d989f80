"""Normalizers that need full rows: row blocks of a fixed height hold all their keys, so memory stays linear."""

import torch
from torch import Tensor

from regard.engine.nonfinite import finite_rows, nonfinite_contribution
from regard.engine.tiled.tiles import Rows, Tensors, Tile, TiledCall, empty_rows
from regard.spec.forms import weights_times_values


def column_span(tiles: list[Tile]) -> slice:
    """The columns from the first tile to the last."""
    return slice(tiles[0].pairs.columns.start, tiles[-1].pairs.columns.stop)


def row_block_logits(kernel: TiledCall, rows: slice, tiles: list[Tile], operands: Tensors) -> tuple[Tensor, Tensor]:
    """x and the logits before τ of a row block, over the columns of `column_span`, −inf between the tiles."""
    height = rows.stop - rows.start
    parts: list[list[Tensor]] = [[], []]
    at = tiles[0].pairs.columns.start
    for tile in tiles:
        gap, columns = tile.pairs.columns.start - at, tile.pairs.columns
        pair = kernel.logits.tile(tile, kernel.logits.cut(operands, tile))
        for found, tensor in zip(parts, pair, strict=True):
            if gap:
                found.append(tensor.new_full((*kernel.batch_heads, height, gap), -torch.inf))
            found.append(tensor.expand(*kernel.batch_heads, height, columns.stop - columns.start))
        at = columns.stop
    return torch.cat(parts[0], -1), torch.cat(parts[1], -1)


def full_row_weights(kernel: TiledCall, x: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and row state; a row that saw NaN or +Inf has weight NaN on all it sees."""
    sound = finite_rows(x)
    weights, state = kernel.normalizer.rows(torch.where(sound, x, -torch.inf))
    return torch.where(sound | (x == -torch.inf), weights, torch.nan), state


def full_rows(kernel: TiledCall, rows: slice, tiles: list[Tile], value: Tensor, operands: Tensors) -> Rows:
    """Output, row state and statistics of one row block; differentiable."""
    blank = empty_rows(kernel, rows)
    if not tiles:
        return blank
    x, logits = row_block_logits(kernel, rows, tiles, operands)
    shown, state = full_row_weights(kernel, x)
    # the product gets zeros for NaN, which would come back as 0 · NaN from rows that no loss looks at
    weights, bad = torch.where(shown.isnan(), 0.0, shown), shown.isnan().any(-1)
    columns = column_span(tiles)
    pairs = kernel.schedule.plane.pairs(rows, columns)
    visible = x != -torch.inf
    dropped = weights
    if kernel.dropout is not None:
        dropped = weights * kernel.dropout.factors(pairs, weights.dtype)
    out = weights_times_values(dropped, value[..., columns, :])
    if kernel.raw_value is not None:
        nonfinite_out = nonfinite_contribution(visible, kernel.raw_value[..., columns, :])
        out = torch.where(nonfinite_out == 0, out, nonfinite_out)
    logs = torch.where(weights != 0, weights, 1.0).log()
    fixed = shown.detach()
    found = torch.where(visible.any(-1), x.detach().argmax(-1) + columns.start, -1)
    shifted = torch.where(state < 0, state, state + columns.start) if not state.is_floating_point() else state
    return Rows(
        out=torch.where(bad.unsqueeze(-1), torch.nan, out),
        state=shifted,
        entropy=torch.where(bad, torch.nan, -(weights * logs).sum(-1)),
        peak=fixed.amax(-1),
        peak_at=found,
        distance=(fixed * (pairs.i - pairs.j).abs()).sum(-1),
        max_logit=logits.detach().amax(-1),
        rest=blank.rest,
    )
