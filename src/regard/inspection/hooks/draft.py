"""Draft: a call of attention as it is to be, computed for the heads that change."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.engine.attend import module
from regard.engine.autocast import off
from regard.engine.request import Request, request
from regard.inspection.hooks.call import Call
from regard.spec.dropout import drawn
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot

PLAIN: dict[str, Any] = {
    "score": ScaledDot(),
    "mask": None,
    "bias": None,
    "temperature": 1.0,
    "normalizer": Softmax(),
    "query_start": None,
}
ENGINES = ("native", "tiled", "reference")  # the first that can; none is missed by a user who did not ask for it
Outputs = Callable[[Tensor], Tensor]  # (batch, head, query, width), all heads


@dataclass(frozen=True, eq=False)
class Draft:
    """`call` is what the changes so far make of the call, with axes (batch, head, length, width) and with parts of a
    spec for its mask and bias. `heads` are those whose weights have changed, `outputs` what is done to heads' outputs
    after. `scale`, (batch, head, query, 1), multiplies outputs and weights of rows that do not add up to 1.
    """

    original: Call
    call: Call
    heads: Tensor
    outputs: tuple[tuple[Tensor, Outputs], ...] = ()
    scale: Tensor | None = None
    final: Tensor | None = None  # heads whose weights are given, so that nothing can change them any more

    @classmethod
    def of(cls, call: Call) -> "Draft":
        """The call as it is."""
        query, key, value = _paired(call)
        asked = request(query, key, value, **{**PLAIN, **call.spec}, dropout=0.0, aux=())
        parts: Any = {**PLAIN, **call.spec, "mask": asked.mask, "bias": asked.bias}
        folded = replace(
            call,
            query=asked.query.flatten(1, 2),
            key=asked.key.squeeze(2),
            value=asked.value.squeeze(2),
            spec=parts,
            weights=None,
            dropout=0.0 if call.rate == 1 else drawn(call.dropout) or 0.0,
        )
        return cls(call, folded, torch.zeros(asked.plane.heads, dtype=torch.bool, device="cpu"))

    @property
    def queries(self) -> int:
        """How many."""
        return self.call.query.shape[-2]

    @property
    def keys(self) -> int:
        """How many."""
        return self.call.key.shape[-2]

    @cached_property
    def asked(self) -> Request:
        """The call as engines take it."""
        spec: Any = self.call.spec
        assert self.call.value is not None
        return request(self.call.query, self.call.key, self.call.value, **spec, dropout=self.call.dropout, aux=())

    def with_spec(self, heads: Tensor, **parts: Any) -> "Draft":
        """Other parts of the spec, which some heads' weights follow from."""
        spec: Any = {**self.call.spec, **parts}
        return replace(self, call=replace(self.call, spec=spec), heads=self.heads | heads)

    def out(self, out: Tensor) -> Tensor:
        """Heads' outputs, those that change replaced."""
        if self.heads.any():
            with off(out.device):
                found = _attended(self.asked)
            out = _replaced(out, self._scaled(found), self.heads)
        for heads, function in self.outputs:
            out = _replaced(out, function(_four(out, self)), heads)
        return out

    def weights(self, weights: Tensor) -> Tensor:
        """Heads' weights, those that change replaced."""
        if not self.heads.any():
            return weights
        with off(weights.device):
            value = torch.eye(self.keys, dtype=self.call.query.dtype, device=weights.device)
            wide = replace(self, call=replace(self.call, value=value.expand(*self.call.key.shape[:-2], -1, -1)))
            found = _attended(wide.asked)
        return _replaced(weights, self._scaled(found), self.heads)

    def _scaled(self, tensor: Tensor) -> Tensor:
        if self.original.rate == 1:
            return tensor * 0.0
        return tensor if self.scale is None else tensor * self.scale


def _attended(asked: Request) -> Tensor:
    """(batch, head, query, width), by the first engine that can."""
    engine = next(module(name) for name in ENGINES if module(name).supports(asked) is None)
    out: Tensor = engine.run(asked).out
    return out.flatten(1, 2)


def _replaced(tensor: Tensor, new: Tensor, heads: Tensor) -> Tensor:
    """The heads of a new tensor in an old one, (…, head, query, …), in the order in memory that it has."""
    if tensor.ndim == 2:
        return new.to(tensor.dtype).reshape(tensor.shape)
    index = heads.nonzero().squeeze(1).to(tensor.device)
    chosen = new.index_select(1, index).to(tensor.dtype)
    chosen = chosen.reshape(*tensor.shape[:-3], -1, *tensor.shape[-2:])
    return tensor.clone().index_copy_(-3, index, chosen)  # a clone lies in memory as the tensor does


def _four(tensor: Tensor, draft: Draft) -> Tensor:
    """With the axes of a draft."""
    return tensor.reshape(-1, len(draft.heads), *tensor.shape[-2:])


def _paired(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values with as many heads."""
    query, key, value = call.query, call.key, call.value
    assert value is not None
    sizes = [tensor.shape[-3] if tensor.ndim > 2 else 1 for tensor in (query, key, value)]
    if sizes[1] == sizes[2]:
        return query, key, value
    return query, _widened(key, sizes[0]), _widened(value, sizes[0])


def _widened(tensor: Tensor, heads: int) -> Tensor:
    tensor = tensor if tensor.ndim > 2 else tensor.unsqueeze(0)
    if tensor.shape[-3] == 1:
        return tensor.expand(*tensor.shape[:-3], heads, *tensor.shape[-2:])
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3)
