"""Call: one call of attention as it was heard: queries, keys and the spec of its weights."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.engine.request import Spec
from regard.spec.dropout import Dropout
from regard.spec.part import Part


@dataclass(frozen=True, eq=False)
class Call:
    """query: (…, head, query, width), key: (…, kv head, key, width), as they meet in the score.

    `value` and `dropout` are for those who compute the call again. `weights` are those of the model, if it has them at
    hand, after dropout; they are compared with ours. None of these is kept.
    """

    query: Tensor
    key: Tensor
    spec: Spec
    mechanism: str
    weights: Tensor | None = None
    value: Tensor | None = None
    dropout: float | Dropout = 0.0

    @property
    def rate(self) -> float:
        """The share of weights that are dropped."""
        return self.dropout.p if isinstance(self.dropout, Dropout) else self.dropout


class Store:
    """Copies of what was heard, so that a model may go on and write over its tensors.

    Masks and biases that several layers share are copied once.
    """

    def __init__(self) -> None:
        self._shared: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}

    def kept(self, call: Call) -> Call:
        """The same call on tensors of its own."""
        spec: Any = {name: self._part(part) for name, part in call.spec.items()}
        query, key = (copied(tensor) for tensor in (call.query, call.key))
        return replace(call, query=_headed(query), key=_headed(key), spec=spec, weights=None, value=None)

    def _part(self, part: Any) -> Any:
        """Parts of a spec hold tensors too, which may be parameters that an optimizer writes over."""
        if isinstance(part, Tensor):
            return self._once(part)
        if isinstance(part, tuple):
            return tuple(map(self._part, part))
        if not isinstance(part, Part):
            return part
        own = copy.copy(part)
        for name, held in part.held.items():
            object.__setattr__(own, name, self._part(held))
        return own

    def _once(self, tensor: Tensor) -> Tensor:
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        found = self._shared.get(key)
        if found is None or not torch.equal(found[1], tensor):
            found = self._shared[key] = (tensor, copied(tensor))  # held, so that its place is not used again
        return found[1]


def copied(tensor: Tensor) -> Tensor:
    """A plain tensor without a graph; what broadcasts stays the size it has."""
    with torch.inference_mode(False), torch.no_grad():
        small = tensor.detach()
        for axis, (size, step) in enumerate(zip(small.shape, small.stride(), strict=True)):
            if step == 0 and size > 1:
                small = small.narrow(axis, 0, 1)
        return small.clone().expand(tensor.shape)


def _headed(tensor: Tensor) -> Tensor:
    """With a batch and a head axis."""
    return tensor[(None,) * max(0, 4 - tensor.ndim)]
