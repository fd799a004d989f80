"""Logits: score + bias over τ for any rectangle, hidden pairs at −inf."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.poison import Poison, over
from regard.engine.schedule import Tile
from regard.spec.forms import Form, Operand
from regard.spec.masks import Mask

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Logits:
    """The terms of the logits as forms. `temperature` is a float, or the last operand if None."""

    score: Form
    biases: tuple[Form, ...]
    bias_hides: bool
    mask: Mask
    temperature: float | None
    temperatures: Tensor | None
    poison: Poison | None
    dtype: torch.dtype

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All tensors that get a gradient."""
        found = list(self.score.operands)
        for form in self.biases:
            found += form.operands
        if self.temperatures is not None:
            found.append(Operand(self.temperatures, "whole"))
        return tuple(found)

    @property
    def tile_width(self) -> int:
        """Numbers per pair that a rectangle holds."""
        return self.score.tile_width + len(self.biases)

    def cut(self, tensors: Tensors, tile: Tile) -> Tensors:
        """The operands as the tile needs them, in the accumulating precision."""
        return tuple(
            tensor if operand.axis == "captured" else operand.cut(tensor, tile.pairs).to(self.dtype)
            for operand, tensor in zip(self.operands, tensors, strict=True)
        )

    def tile(self, tile: Tile, cut: Tensors) -> tuple[Tensor, Tensor]:
        """(logits / τ with −inf where hidden, logits before τ). Non-finite inputs are put back in."""
        pairs = tile.pairs
        bias, visible = self._bias(tile, cut)
        logits = self.score.evaluate(pairs, visible, cut[: len(self.score.operands)])
        if self.poison is not None:
            logits = self._with_poison(tile, visible, logits)
        if self.score.hides:
            visible = _both(visible, logits != -torch.inf)
        if bias is not None:
            logits = logits + bias
        x = over(logits, self._tau(cut))
        if visible is None:
            return x, logits
        return torch.where(visible, x, -torch.inf), torch.where(visible, logits, -torch.inf)

    def _bias(self, tile: Tile, cut: Tensors) -> tuple[Tensor | None, Tensor | None]:
        """The sum of the biases, and which pairs neither the mask nor a bias hides; None for nothing and for all."""
        visible = self.mask.visible(tile.pairs) if tile.mixed else None
        bias, at = None, len(self.score.operands)
        for form in self.biases:
            stop = at + len(form.operands)
            term = form.evaluate(tile.pairs, None, cut[at:stop])
            if self.bias_hides:
                visible = _both(visible, term != -torch.inf)
            bias = term if bias is None else bias + term
            at = stop
        return bias, visible

    def _tau(self, cut: Tensors) -> float | Tensor:
        return cut[-1] if self.temperature is None else self.temperature

    def _with_poison(self, tile: Tile, visible: Tensor | None, logits: Tensor) -> Tensor:
        assert self.poison is not None
        raw = self.poison.raw
        cut = tuple(
            operand.tensor if operand.axis == "captured" else operand.cut(operand.tensor, tile.pairs)
            for operand in raw.operands
        )
        with torch.no_grad():
            scores = raw.evaluate(tile.pairs, visible, cut)
        return torch.where(self.poison.pairs(tile.pairs), scores, logits)


def _both(visible: Tensor | None, shown: Tensor) -> Tensor:
    return shown if visible is None else visible & shown
