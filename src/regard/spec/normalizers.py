"""Normalizers: how a row of logits becomes a row of weights."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regard.checks import is_float, is_tensor, number, shape
from regard.spec.part import Part
from regard.spec.plane import SAME_FOR_ALL, named_axes
from regard.spec.serialize import register
from regard.spec.steps import Exponential, Largest, NormalizerStep, Threshold


class Normalizer(Part):
    """Turns logits / τ into weights, row by row. Hidden pairs come as −inf and get weight 0.

    A normalizer of one's own defines `weights`, and `backward` for gradients on other engines than the reference.
    """

    family = "normalizers"

    axes = SAME_FOR_ALL

    definitions = ("weights",)
    derived = ("backward", "step", "symbols")
    step: ClassVar[NormalizerStep | None] = None  # the primitive step that it is
    #: whether attention over parts of the keys can be merged into attention over all
    mergeable: bool = False

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of full rows (…, query, key), and the row state (…, query). There is always at least one key;
        all keys of a row may be hidden."""
        raise NotImplementedError(f"{type(self).__name__} must define weights(logits)")

    def rows(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """What engines call: `weights`, checked. Rows without keys are rows with one hidden key."""
        keys = logits.shape[-1]
        rows = logits if keys else logits.new_full((*logits.shape[:-1], 1), -torch.inf)
        result: object = self.weights(rows)
        if not (isinstance(result, tuple) and len(result) == 2 and all(isinstance(part, Tensor) for part in result)):
            raise TypeError(
                f"{type(self).__name__}.weights must return two tensors, the weights and the row state, "
                f"got {type(result).__name__}"
            )
        weights, state = result
        if weights.shape != rows.shape or state.shape != rows.shape[:-1]:
            raise ValueError(
                f"{type(self).__name__}.weights must return weights of the logits' shape, {shape(rows)}, and one "
                f"state for each row, got {shape(weights)} and {shape(state)}"
            )
        return weights[..., :keys], state

    def backward(self, weights: Tensor, grad: Tensor) -> Tensor:
        """The gradient of the logits, given that of the weights."""
        raise NotImplementedError(f"{type(self).__name__} must define backward(weights, grad)")

    def check(self, heads: int) -> None:
        """Raise if this normalizer does not fit the heads."""


@register
@dataclass(frozen=True, eq=False, repr=False)
class Softmax(Normalizer):
    """e^(x − lse). `sink` is a logit per query head (a number or a tensor) that takes weight and gives no value;
    it is not divided by τ. The row state is the lse, sink included."""

    axes = named_axes(sink=("head",))

    sink: Tensor | float | None = None

    mergeable = True
    step = Exponential()

    def __post_init__(self) -> None:
        self._keep_tensors("sink")
        if isinstance(self.sink, Tensor):
            is_float("Softmax's sink", is_tensor("Softmax's sink", self.sink))
        elif self.sink is not None:
            number("Softmax's sink", self.sink)

    def check(self, heads: int) -> None:
        if isinstance(self.sink, Tensor) and (self.sink.ndim > 1 or self.sink.numel() not in (1, heads)):
            raise ValueError(
                f"Softmax's sink must be a number or one logit for each of the {heads} query heads, "
                f"got shape {shape(self.sink)}"
            )


@register
@dataclass(frozen=True, eq=False, repr=False)
class Hard(Normalizer):
    """All weight on the largest logit, the first of equals; no gradient to query and key. The row state is that key."""

    step = Largest()

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        best, index = logits.detach().max(-1, keepdim=True)
        seen = best != -torch.inf
        weights = torch.zeros_like(logits).scatter(-1, index, seen.to(logits.dtype))
        nan = torch.where(best.isnan(), best, 0.0)
        return weights + nan, torch.where(seen, index, -1).squeeze(-1)

    def backward(self, weights: Tensor, grad: Tensor) -> Tensor:
        return torch.zeros_like(weights)


@register
@dataclass(frozen=True, eq=False, repr=False)
class Sparsemax(Normalizer):
    """The nearest point of the simplex, often with exact zeros (Martins & Astudillo, 2016).
    The row state is the threshold t of max(x − t, 0)."""

    step = Threshold()

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        top = logits.detach().amax(-1, keepdim=True)
        seen = top != -torch.inf
        hidden = logits == -torch.inf
        # shifted by the largest, so that large logits lose no digits
        shifted = torch.where(hidden, 0.0, logits) - torch.where(seen, top, 0.0)
        ordered = torch.where(hidden, -torch.inf, shifted).sort(-1, descending=True).values
        rank = torch.arange(1, logits.shape[-1] + 1, device=logits.device, dtype=logits.dtype)
        inside = ordered > -torch.inf
        sums = torch.where(inside, ordered, 0.0).cumsum(-1)
        size = (inside & (1 + rank * ordered > sums)).sum(-1, keepdim=True).clamp(min=1)
        threshold = (sums.gather(-1, size - 1) - 1) / size
        weights = torch.where(hidden, 0.0, torch.where(shifted > threshold, shifted - threshold, 0.0))
        weights = torch.where(top.isnan(), top, weights)
        state = torch.where(seen, threshold + torch.where(seen, top, 0.0), -torch.inf)
        return weights, state.squeeze(-1)

    def backward(self, weights: Tensor, grad: Tensor) -> Tensor:
        support = weights > 0
        mean = torch.where(support, grad, 0.0).sum(-1, keepdim=True) / support.sum(-1, keepdim=True).clamp(min=1)
        return torch.where(support, grad - mean, 0.0)
