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

    def tile(self, tile: Tile, cut: Tensors, *, raw: bool) -> tuple[Tensor, Tensor]:
        """(logits / τ with −inf where hidden, logits before τ). `raw` puts non-finite inputs back in."""
        pairs = tile.pairs
        visible = self.mask.visible(pairs) if tile.mixed else None
        bias, at = None, len(self.score.operands)
        for form in self.biases:
            stop = at + len(form.operands)
            term = form.evaluate(pairs, None, cut[at:stop])
            if self.bias_hides:
                shown = term != -torch.inf
                visible = shown if visible is None else visible & shown
                term = torch.where(shown, term, 0.0)
            bias = term if bias is None else bias + term
            at = stop
        logits = self.score.evaluate(pairs, visible, cut[: len(self.score.operands)])
        if raw and self.poison is not None:
            logits = self._with_poison(tile, visible, logits)
        if self.score.hides:
            shown = logits != -torch.inf
            visible = shown if visible is None else visible & shown
        if bias is not None:
            logits = logits + bias
        if visible is not None:
            # before the division too: 0 · Inf would reach τ's gradient
            logits = torch.where(visible, logits, 0.0)
        x = over(logits, self._tau(cut))
        if visible is None:
            return x, logits
        return torch.where(visible, x, -torch.inf), torch.where(visible, logits, -torch.inf)

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
