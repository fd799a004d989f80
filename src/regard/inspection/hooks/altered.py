"""Altered: one call of attention that someone wants to change."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.inspection.hooks.call import Call
from regard.inspection.hooks.compare import compare
from regard.inspection.hooks.draft import Draft


class Wanted(NamedTuple):
    """A change of the layer of that name."""

    layer: str
    step: Callable[[Draft], Draft]


Alter = Callable[[], Wanted | None]  # asked at every call; None leaves it as it is


class Altered:
    """The heads of a call after all changes, in the order in which their blocks were opened."""

    def __init__(self, read: Callable[[], Call], wanted: Sequence[Wanted]) -> None:
        self._read, self._wanted = read, wanted

    def out(self, out: Tensor) -> Tensor:
        """The outputs."""
        draft = self._draft
        self._check(draft.original, out)
        return draft.out(out)

    def weights(self, weights: Tensor) -> Tensor:
        """The weights that the model gives back."""
        return self._draft.weights(weights)

    def heard(self) -> Call:
        """What a listener hears: the attention as it was changed."""
        return self._draft.call if self._draft.heads.any() else self._read()

    @cached_property
    def _draft(self) -> Draft:
        layer = self._wanted[0].layer
        try:
            call = self._read()
            with torch.no_grad():
                compare(call)
            draft = Draft.of(call)
            for wanted in self._wanted:
                layer = wanted.layer
                draft = wanted.step(draft)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise type(error)(f"{layer} cannot be changed: {error}") from error
        return draft

    @torch.no_grad()
    def _check(self, call: Call, out: Tensor) -> None:
        """Refuse an output that is not the weights, where the model has them, times the values."""
        if call.weights is None or call.value is None:
            return
        weights = call.weights.to(torch.promote_types(call.weights.dtype, torch.float32))
        value = call.value.to(weights.dtype).repeat_interleave(weights.shape[-3] // call.value.shape[-3], -3)
        wrong, size = (weights @ value - out).abs(), weights.abs() @ value.abs()
        eps = max(torch.finfo(dtype).eps for dtype in (out.dtype, call.weights.dtype, call.value.dtype))
        if not bool((wrong <= 8 * eps * size + torch.finfo(out.dtype).tiny).all()):
            raise ValueError(
                f"{self._wanted[0].layer} cannot be changed: its output is not its weights times its values"
            )
