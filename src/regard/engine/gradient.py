"""First derivatives in linear memory: every tile is computed again, and autograd runs inside that one tile."""

import torch
from torch import Tensor

from regard.engine.logits import Tensors
from regard.engine.schedule import Tile
from regard.engine.strip import Kernel, Rows
from regard.engine.whole import span, strip_logits, weights_of
from regard.spec.forms import rows_times_keys


class Gradients:
    """Sums of the gradients of value and operands, in the accumulating precision."""

    def __init__(self, kernel: Kernel, value: Tensor, operands: Tensors, needed: list[bool]) -> None:
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
            return self.kernel.logits.tile(tile, leaves, raw=False)[0], leaves

    def add(self, tile: Tile, x: Tensor, leaves: Tensors, dx: Tensor) -> None:
        """Send dx through the graph of x and add what arrives."""
        wanted = [at for at, total in enumerate(self.operands) if total is not None]
        if not wanted or not x.requires_grad:
            return
        dx = dx.sum_to_size(x.shape)
        found = torch.autograd.grad(x, [leaves[at] for at in wanted], dx, allow_unused=True)
        for at, grad in zip(wanted, found, strict=True):
            if grad is not None:
                self.kernel.logits.operands[at].cut(self._total(at), tile.pairs).add_(grad)

    def _total(self, at: int) -> Tensor:
        total = self.operands[at]
        assert total is not None
        return total


def softmax_gradients(
    kernel: Kernel, value: Tensor, operands: Tensors, rows: Rows, grads: tuple[Tensor, Tensor, Tensor], sums: Gradients
) -> None:
    """dx = w · (dP − O·dO + d_lse − d_entropy · (ln w + entropy)), tile by tile."""
    sound = rows.state.isfinite()
    d_out = torch.where(rows.out.isfinite() & sound.unsqueeze(-1), grads[0], 0.0)
    d_lse, d_entropy = (torch.where(sound, grad, 0.0) for grad in grads[1:])
    entropy, out = torch.where(sound, rows.entropy, 0.0), torch.where(rows.out.isfinite(), rows.out, 0.0)
    constant = d_lse - (d_out * out).sum(-1) - d_entropy * entropy
    lse = torch.where(sound, rows.state, torch.inf)  # weights of rows without a key, or with NaN, become 0
    entropic = bool((d_entropy != 0).any())
    for strip, tiles in kernel.schedule.strips:
        d_o, lse_s = d_out[..., strip, :], lse[..., strip].unsqueeze(-1)
        const, d_ent = constant[..., strip].unsqueeze(-1), d_entropy[..., strip].unsqueeze(-1)
        for tile in tiles:
            columns = tile.pairs.columns
            x, leaves = sums.logits(tile, operands)
            log_w = (x.detach() - lse_s).expand(*kernel.lanes, -1, -1)
            w = log_w.exp()
            d_w = rows_times_keys(d_o, value[..., columns, :])
            kept = w
            if kernel.dropout is not None:
                factors = kernel.dropout.factors(tile.pairs, w.dtype)
                kept, d_w = w * factors, d_w * factors
            sums.value[..., columns, :] += _values_gradient(kept, d_o)
            dx = d_w + const
            if entropic:
                dx = dx - d_ent * torch.where(w > 0, log_w, 0.0)
            sums.add(tile, x, leaves, dx * w)


def whole_gradients(
    kernel: Kernel, value: Tensor, operands: Tensors, rows: Rows, grads: tuple[Tensor, Tensor, Tensor], sums: Gradients
) -> None:
    """The same for normalizers that need whole rows."""
    d_out = torch.where(rows.out.isfinite(), grads[0], 0.0)
    d_entropy = torch.where(rows.entropy.isfinite(), grads[2], 0.0)
    for strip, tiles in kernel.schedule.strips:
        if not tiles:
            continue
        columns = span(tiles)
        x = strip_logits(kernel, strip, tiles, operands, raw=False)[0]
        w = weights_of(kernel, x)[0]
        if kernel.logits.poison is not None:
            w = torch.where(rows.out[..., strip, :1].isnan(), 0.0, w)
        d_o = d_out[..., strip, :]
        d_w = rows_times_keys(d_o, value[..., columns, :])
        kept = w
        if kernel.dropout is not None:
            factors = kernel.dropout.factors(kernel.schedule.plane.pairs(strip, columns), w.dtype)
            kept, d_w = w * factors, d_w * factors
        sums.value[..., columns, :] += _values_gradient(kept, d_o)
        d_w = d_w - d_entropy[..., strip].unsqueeze(-1) * torch.where(w > 0, w.log() + 1, 0.0)
        dx = kernel.normalizer.backward(w, d_w)
        for tile in tiles:
            graph, leaves = sums.logits(tile, operands)
            first = tile.pairs.columns.start - columns.start
            sums.add(tile, graph, leaves, dx[..., first : first + tile.pairs.columns.stop - tile.pairs.columns.start])


def _values_gradient(weights: Tensor, d_out: Tensor) -> Tensor:
    """weightsᵀ · d_out summed over the group, (batch, kv head, 1, key, d_v)."""
    return (weights.flatten(2, 3).mT @ d_out.flatten(2, 3)).unsqueeze(2)
