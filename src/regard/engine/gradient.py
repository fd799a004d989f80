"""First derivatives in linear memory: every tile is computed again, and autograd runs inside that one tile."""

from dataclasses import dataclass

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
            return self.kernel.logits.tile(tile, leaves)[0], leaves

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
    entropic = bool((grads[2] != 0).any())
    for strip, tiles in kernel.schedule.strips:
        terms = _row_terms(rows, grads, strip, entropic)
        for tile in tiles:
            _add_tile(kernel, tile, value, operands, terms, sums)


@dataclass(frozen=True, eq=False)
class _Terms:
    """What the rows of a strip bring to dx; `d_entropy` is None where nobody asks for it."""

    d_out: Tensor
    lse: Tensor
    rest: Tensor
    constant: Tensor
    d_entropy: Tensor | None
    poisoned: bool


def _row_terms(rows: Rows, grads: tuple[Tensor, Tensor, Tensor], strip: slice, entropic: bool) -> _Terms:
    out, state = rows.out[..., strip, :], rows.state[..., strip]
    sound = state.isfinite()
    d_out = torch.where(out.isfinite() & sound.unsqueeze(-1), grads[0][..., strip, :], 0.0)
    d_lse, d_entropy = (torch.where(sound, grad[..., strip], 0.0) for grad in grads[1:])
    entropy, out = torch.where(sound, rows.entropy[..., strip], 0.0), torch.where(out.isfinite(), out, 0.0)
    return _Terms(
        d_out=d_out,
        lse=torch.where(sound, state, torch.inf).unsqueeze(-1),  # weights of rows without a key become 0
        rest=rows.rest[..., strip].unsqueeze(-1),
        constant=(d_lse - (d_out * out).sum(-1) - d_entropy * entropy).unsqueeze(-1),
        d_entropy=d_entropy.unsqueeze(-1) if entropic else None,
        poisoned=bool(state.isnan().any()),
    )


def _add_tile(kernel: Kernel, tile: Tile, value: Tensor, operands: Tensors, terms: _Terms, sums: Gradients) -> None:
    columns = tile.columns
    x, leaves = sums.logits(tile, operands)
    log_w = (x.detach() - terms.lse - terms.rest).expand(*kernel.lanes, -1, -1)
    if terms.poisoned:  # the weights of rows with NaN become 0 too
        log_w = torch.where(terms.lse == torch.inf, -torch.inf, log_w)
    w = log_w.exp()
    d_w = rows_times_keys(terms.d_out, value[..., columns, :])
    kept = w
    if kernel.dropout is not None:
        factors = kernel.dropout.factors(tile.pairs, w.dtype)
        kept, d_w = w * factors, d_w * factors
    sums.value[..., columns, :] += _values_gradient(kept, terms.d_out)
    dx = d_w + terms.constant
    if terms.d_entropy is not None:
        dx = dx - terms.d_entropy * torch.where(w > 0, log_w, 0.0)
    sums.add(tile, x, leaves, dx * w)


def whole_gradients(
    kernel: Kernel, value: Tensor, operands: Tensors, rows: Rows, grads: tuple[Tensor, Tensor, Tensor], sums: Gradients
) -> None:
    """The same for normalizers that need whole rows."""
    for strip, tiles in kernel.schedule.strips:
        if tiles:
            _add_strip(kernel, strip, tiles, value, operands, _whole_terms(rows, grads, strip), sums)


def _whole_terms(rows: Rows, grads: tuple[Tensor, Tensor, Tensor], strip: slice) -> tuple[Tensor, Tensor]:
    """The gradients of output and entropy, 0 where a result is not finite."""
    d_out = torch.where(rows.out[..., strip, :].isfinite(), grads[0][..., strip, :], 0.0)
    d_entropy = torch.where(rows.entropy[..., strip].isfinite(), grads[2][..., strip], 0.0)
    return d_out, d_entropy.unsqueeze(-1)


def _add_strip(
    kernel: Kernel,
    strip: slice,
    tiles: list[Tile],
    value: Tensor,
    operands: Tensors,
    terms: tuple[Tensor, Tensor],
    sums: Gradients,
) -> None:
    columns = span(tiles)
    w = weights_of(kernel, strip_logits(kernel, strip, tiles, operands)[0])[0]
    w = torch.where(w.isnan(), 0.0, w)
    d_out = torch.where((w != 0).any(-1, keepdim=True), terms[0], 0.0)
    d_w = rows_times_keys(d_out, value[..., columns, :])
    kept = w
    if kernel.dropout is not None:
        factors = kernel.dropout.factors(kernel.schedule.plane.pairs(strip, columns), w.dtype)
        kept, d_w = w * factors, d_w * factors
    sums.value[..., columns, :] += _values_gradient(kept, d_out)
    d_w = d_w - terms[1] * torch.where(w > 0, w.log() + 1, 0.0)
    dx = kernel.normalizer.backward(w, d_w)
    for tile in tiles:
        graph, leaves = sums.logits(tile, operands)
        sums.add(tile, graph, leaves, dx[..., tile.columns.start - columns.start : tile.columns.stop - columns.start])
        del graph, leaves


def _values_gradient(weights: Tensor, d_out: Tensor) -> Tensor:
    """weightsᵀ · d_out summed over the group, (batch, kv head, 1, key, d_v)."""
    return (weights.flatten(2, 3).mT @ d_out.flatten(2, 3)).unsqueeze(2)
