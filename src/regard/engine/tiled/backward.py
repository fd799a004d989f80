"""First derivatives in linear memory: every tile is computed again, and autograd runs inside that one tile."""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from regard.engine.tiled.full_row import column_span, full_row_weights, row_block_logits
from regard.engine.tiled.tiles import Rows, Tensors, Tile, TiledCall
from regard.spec.forms import rows_times_keys

PEAKED = 0.25  # from this weight of a row's largest on, its gradients take the sum of w · dP


class Gradients:
    """Sums of the gradients of value and operands, in the accumulating precision."""

    def __init__(self, kernel: TiledCall, value: Tensor, operands: Tensors, needed: list[bool]) -> None:
        self.kernel = kernel
        self.value = torch.zeros_like(value)
        self.operands = [
            torch.zeros_like(tensor, dtype=kernel.logits.dtype) if need else None
            for tensor, need in zip(operands, needed, strict=True)
        ]

    def logits(self, tile: Tile, operands: Tensors) -> tuple[Tensor, Tensors]:
        """x of the tile as a graph, and the leaves it hangs on."""
        cut = self.kernel.logits.cut(operands, tile)
        with torch.enable_grad():
            leaves = tuple(
                leaf if operand.axis == "captured" else leaf.detach().requires_grad_(total is not None)
                for leaf, operand, total in zip(cut, self.kernel.logits.operands, self.operands, strict=True)
            )
            return self.kernel.logits.tile(tile, leaves)[0], leaves

    def add(self, tile: Tile, x: Tensor, leaves: Tensors, dx: Tensor) -> None:
        """Send dx through the graph of x and add what arrives."""
        needed = [at for at, total in enumerate(self.operands) if total is not None]
        if not needed or not x.requires_grad:
            return
        dx = dx.sum_to_size(x.shape)
        gradients = torch.autograd.grad(x, [leaves[at] for at in needed], dx, allow_unused=True)
        for at, grad in zip(needed, gradients, strict=True):
            total = self.operands[at]
            assert total is not None
            if grad is not None:
                self.kernel.logits.operands[at].cut(total, tile.pairs).add_(grad)


def softmax_gradients(
    kernel: TiledCall,
    value: Tensor,
    operands: Tensors,
    rows: Rows,
    grads: tuple[Tensor, Tensor, Tensor],
    sums: Gradients,
) -> None:
    """dx = w · (dP − Σ w · dP + d_lse − d_entropy · (ln w + entropy)), tile by tile.

    Σ w · dP is O·dO, which needs no pass over the keys. Where one key has much of the weight, dP − O·dO is the small
    difference of two numbers that were rounded apart; rows that have such a key sum w · dP itself.
    """
    entropic = bool((grads[2] != 0).any())
    for block, tiles in kernel.schedule.row_blocks:
        terms = _row_terms(rows, grads, block, entropic)
        peaked = rows.peak[..., block].unsqueeze(-1) >= PEAKED
        if tiles:
            _add_softmax_rows(kernel, tiles, value, operands, terms, peaked if bool(peaked.any()) else None, sums)


def _add_softmax_rows(
    kernel: TiledCall,
    tiles: list[Tile],
    value: Tensor,
    operands: Tensors,
    terms: "_RowTerms",
    peaked: Tensor | None,
    sums: Gradients,
) -> None:
    """The tiles of one row block; `peaked` rows sum w · dP first, for which more than one tile is computed twice."""
    again = partial(_RecomputedTile.of, kernel, value, operands, terms, sums)
    only = again(tiles[0]) if peaked is not None and len(tiles) == 1 else None
    if peaked is not None:
        weighted_sum = torch.zeros_like(terms.constant)
        for tile in tiles:
            weighted_sum += (again(tile) if only is None else only).weighted_sum()
        terms = replace(terms, constant=torch.where(peaked, terms.added - weighted_sum, terms.constant))
    for tile in tiles:
        part = again(tile) if only is None else only
        sums.value[..., tile.columns, :] += _values_gradient(part.dropped, terms.d_out)
        dx = part.d_w + terms.constant
        if terms.d_entropy is not None:
            dx = dx - terms.d_entropy * torch.where(part.w > 0, part.log_w, 0.0)
        sums.add(tile, part.x, part.leaves, dx * part.w)
        del part, dx  # or they would be held while the next tile is computed


@dataclass(frozen=True, eq=False)
class _RowTerms:
    """The terms of dx that belong to rows; `d_entropy` is None if the entropy has no gradient.

    `added` is the constant of a row without Σ w · dP.
    """

    d_out: Tensor
    lse: Tensor
    rest: Tensor
    added: Tensor
    constant: Tensor
    d_entropy: Tensor | None
    has_nan: bool


def _row_terms(rows: Rows, grads: tuple[Tensor, Tensor, Tensor], block: slice, entropic: bool) -> _RowTerms:
    out, state = rows.out[..., block, :], rows.state[..., block]
    sound = state.isfinite()
    d_out = torch.where(out.isfinite() & sound.unsqueeze(-1), grads[0][..., block, :], 0.0)
    d_lse, d_entropy = (torch.where(sound, grad[..., block], 0.0) for grad in grads[1:])
    entropy, out = torch.where(sound, rows.entropy[..., block], 0.0), torch.where(out.isfinite(), out, 0.0)
    return _RowTerms(
        d_out=d_out,
        lse=torch.where(sound, state, torch.inf).unsqueeze(-1),  # weights of rows without a key become 0
        rest=rows.rest[..., block].unsqueeze(-1),
        added=(d_lse - d_entropy * entropy).unsqueeze(-1),
        constant=(d_lse - (d_out * out).sum(-1) - d_entropy * entropy).unsqueeze(-1),
        d_entropy=d_entropy.unsqueeze(-1) if entropic else None,
        has_nan=bool(state.isnan().any()),
    )


@dataclass(frozen=True, eq=False)
class _RecomputedTile:
    """A tile computed again: its logits as a graph, the weights before and after dropout, and dP."""

    x: Tensor
    leaves: Tensors
    log_w: Tensor
    w: Tensor
    dropped: Tensor
    d_w: Tensor

    @classmethod
    def of(
        cls, kernel: TiledCall, value: Tensor, operands: Tensors, terms: _RowTerms, sums: Gradients, tile: Tile
    ) -> "_RecomputedTile":
        """Compute a tile."""
        x, leaves = sums.logits(tile, operands)
        log_w = (x.detach() - terms.lse - terms.rest).expand(*kernel.batch_heads, -1, -1)
        if terms.has_nan:  # the weights of rows with NaN become 0 too
            log_w = torch.where(terms.lse == torch.inf, -torch.inf, log_w)
        w = log_w.exp()
        d_w = rows_times_keys(terms.d_out, value[..., tile.columns, :])
        dropped = w
        if kernel.dropout is not None:
            factors = kernel.dropout.factors(tile.pairs, w.dtype)
            dropped, d_w = w * factors, d_w * factors
        return cls(x, leaves, log_w, w, dropped, d_w)

    def weighted_sum(self) -> Tensor:
        """Σ w · dP of each row; a hidden value may be too large for dP."""
        return torch.where(self.w > 0, self.w * self.d_w, 0.0).sum(-1, keepdim=True)


def full_row_gradients(
    kernel: TiledCall,
    value: Tensor,
    operands: Tensors,
    rows: Rows,
    grads: tuple[Tensor, Tensor, Tensor],
    sums: Gradients,
) -> None:
    """The same for normalizers that need full rows."""
    for block, tiles in kernel.schedule.row_blocks:
        if tiles:
            _add_full_rows(kernel, block, tiles, value, operands, rows, grads, sums)


def _add_full_rows(
    kernel: TiledCall,
    block: slice,
    tiles: list[Tile],
    value: Tensor,
    operands: Tensors,
    rows: Rows,
    grads: tuple[Tensor, Tensor, Tensor],
    sums: Gradients,
) -> None:
    columns = column_span(tiles)
    w = full_row_weights(kernel, row_block_logits(kernel, block, tiles, operands)[0])[0]
    w = torch.where(w.isnan(), 0.0, w)
    # no gradient flows through a result that is not finite, nor to a row without weights
    d_out = torch.where(rows.out[..., block, :].isfinite(), grads[0][..., block, :], 0.0)
    d_out = torch.where((w != 0).any(-1, keepdim=True), d_out, 0.0)
    d_entropy = torch.where(rows.entropy[..., block].isfinite(), grads[2][..., block], 0.0).unsqueeze(-1)
    d_w = rows_times_keys(d_out, value[..., columns, :])
    dropped = w
    if kernel.dropout is not None:
        factors = kernel.dropout.factors(kernel.schedule.plane.pairs(block, columns), w.dtype)
        dropped, d_w = w * factors, d_w * factors
    sums.value[..., columns, :] += _values_gradient(dropped, d_out)
    d_w = d_w - d_entropy * torch.where(w > 0, w.log() + 1, 0.0)
    dx = kernel.normalizer.backward(w, d_w)
    for tile in tiles:
        graph, leaves = sums.logits(tile, operands)
        sums.add(tile, graph, leaves, dx[..., tile.columns.start - columns.start : tile.columns.stop - columns.start])
        del graph, leaves


def _values_gradient(weights: Tensor, d_out: Tensor) -> Tensor:
    """weightsᵀ · d_out summed over the group, (batch, kv head, 1, key, d_v)."""
    return (weights.flatten(2, 3).mT @ d_out.flatten(2, 3)).unsqueeze(2)
