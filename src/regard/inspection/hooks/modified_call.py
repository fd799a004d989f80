"""ModifiedCall: an attention call as modifications change it, computed for the heads that they change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.engine.attend import module
from regard.engine.context import autocast_disabled
from regard.engine.request import Request, request
from regard.inspection.hooks.call import AttentionCall, check_weights
from regard.inspection.matrix.handle import DEFAULTS
from regard.spec.dropout import drawn

ENGINES = ("native", "tiled", "reference")  # the first that supports the call is used
Outputs = Callable[[Tensor], Tensor]  # (batch, head, query, width), all heads


@dataclass(frozen=True, eq=False)
class ModifiedCall:
    """`call` is the call after the modifications so far, with axes (batch, head, length, width) and a mask and bias
    that are parts of a spec. `heads` are those whose weights have changed, `outputs` functions of heads' outputs.
    `scale`, (batch, head, query, 1), multiplies outputs and weights of rows that do not add up to 1.
    """

    original: AttentionCall
    call: AttentionCall
    heads: Tensor
    outputs: tuple[tuple[Tensor, Outputs], ...] = ()
    scale: Tensor | None = None
    final: Tensor | None = None  # heads whose weights are given, so that nothing may change them any more

    @classmethod
    def of(cls, call: AttentionCall) -> "ModifiedCall":
        """The call without modifications."""
        query, key, value = _equal_heads(call)
        checked = request(query, key, value, **{**DEFAULTS, **call.spec}, dropout=0.0, aux=())
        parts: Any = {**DEFAULTS, **call.spec, "mask": checked.mask, "bias": checked.bias}
        folded = replace(
            call,
            query=checked.query.flatten(1, 2),
            key=checked.key.squeeze(2),
            value=checked.value.squeeze(2),
            spec=parts,
            weights=None,
            dropout=0.0 if call.rate == 1 else drawn(call.dropout) or 0.0,
        )
        return cls(call, folded, torch.zeros(checked.plane.heads, dtype=torch.bool, device="cpu"))

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.call.query.shape[-2]

    @property
    def keys(self) -> int:
        """Number of keys."""
        return self.call.key.shape[-2]

    @cached_property
    def request(self) -> Request:
        """The call as engines take it."""
        spec: Any = self.call.spec
        assert self.call.value is not None
        return request(self.call.query, self.call.key, self.call.value, **spec, dropout=self.call.dropout, aux=())

    def with_spec(self, heads: Tensor, **parts: Any) -> "ModifiedCall":
        """With other parts of the spec, which change the weights of some heads."""
        spec: Any = {**self.call.spec, **parts}
        return replace(self, call=replace(self.call, spec=spec), heads=self.heads | heads)

    def with_outputs(self, heads: Tensor, function: Outputs) -> "ModifiedCall":
        """With a function of the outputs of some heads."""
        return replace(self, outputs=(*self.outputs, (heads, function)))

    def out(self, out: Tensor) -> Tensor:
        """The heads' outputs, with those that change replaced."""
        if self.heads.any():
            with autocast_disabled(out.device):
                changed = _attended(self.request)
            out = _replaced(out, self._scaled(changed), self.heads)
        for heads, function in self.outputs:
            out = _replaced(out, function(out.reshape(-1, len(self.heads), *out.shape[-2:])), heads)
        return out

    def weights(self, weights: Tensor) -> Tensor:
        """The heads' weights, with those that change replaced."""
        if not self.heads.any():
            return weights
        with autocast_disabled(weights.device):
            value = torch.eye(self.keys, dtype=self.call.query.dtype, device=weights.device)
            wide = replace(self, call=replace(self.call, value=value.expand(*self.call.key.shape[:-2], -1, -1)))
            changed = _attended(wide.request)
        return _replaced(weights, self._scaled(changed), self.heads)

    def _scaled(self, tensor: Tensor) -> Tensor:
        if self.original.rate == 1:
            return tensor * 0.0
        return tensor if self.scale is None else tensor * self.scale


class Modification(NamedTuple):
    """A change of the layer of that name."""

    layer: str
    apply: Callable[[ModifiedCall], ModifiedCall]


Modify = Callable[[], Modification | None]  # called at every attention call; None leaves it unchanged


class CallEdit:
    """Applies modifications to a call, in the order in which their blocks were opened."""

    def __init__(self, read: Callable[[], AttentionCall], modifications: Sequence[Modification]) -> None:
        self._read, self._modifications = read, modifications

    def out(self, out: Tensor) -> Tensor:
        """The changed outputs."""
        self._check_output(self._modified.original, out)
        return self._modified.out(out)

    def weights(self, weights: Tensor) -> Tensor:
        """The changed weights that the model returns."""
        return self._modified.weights(weights)

    def final_call(self) -> AttentionCall:
        """The call as a capture gets it, with all changes."""
        return self._modified.call if self._modified.heads.any() else self._read()

    @cached_property
    def _modified(self) -> ModifiedCall:
        layer = self._modifications[0].layer
        try:
            call = self._read()
            with torch.no_grad():
                check_weights(call)
            modified = ModifiedCall.of(call)
            for modification in self._modifications:
                layer = modification.layer
                modified = modification.apply(modified)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise type(error)(f"{layer} cannot be changed: {error}") from error
        return modified

    @torch.no_grad()
    def _check_output(self, call: AttentionCall, out: Tensor) -> None:
        """Refuse an output that is not weights × values, where the model returns its weights."""
        if call.weights is None or call.value is None:
            return
        weights = call.weights.to(torch.promote_types(call.weights.dtype, torch.float32))
        value = call.value.to(weights.dtype).repeat_interleave(weights.shape[-3] // call.value.shape[-3], -3)
        error, size = (weights @ value - out).abs(), weights.abs() @ value.abs()
        eps = max(torch.finfo(dtype).eps for dtype in (out.dtype, call.weights.dtype, call.value.dtype))
        if not bool((error <= 8 * eps * size + torch.finfo(out.dtype).tiny).all()):
            layer = self._modifications[0].layer
            raise ValueError(f"{layer} cannot be changed: its output is not its weights times its values")


def _attended(checked: Request) -> Tensor:
    """(batch, head, query, width), by the first engine that supports the call."""
    engine = next(module(name) for name in ENGINES if module(name).supports(checked) is None)
    out: Tensor = engine.run(checked).out
    return out.flatten(1, 2)


def _replaced(tensor: Tensor, new: Tensor, heads: Tensor) -> Tensor:
    """The tensor, (…, head, query, …), with some heads of a new one; it keeps its memory format."""
    if tensor.ndim == 2:
        return new.to(tensor.dtype).reshape(tensor.shape)
    index = heads.nonzero().squeeze(1).to(tensor.device)
    chosen = new.index_select(1, index).to(tensor.dtype)
    chosen = chosen.reshape(*tensor.shape[:-3], -1, *tensor.shape[-2:])
    return tensor.clone().index_copy_(-3, index, chosen)  # a clone keeps the memory format


def _equal_heads(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value, with keys and values expanded if their numbers of heads differ."""
    query, key, value = call.query, call.key, call.value
    assert value is not None
    sizes = [tensor.shape[-3] if tensor.ndim > 2 else 1 for tensor in (query, key, value)]
    if sizes[1] == sizes[2]:
        return query, key, value
    return query, _expanded(key, sizes[0]), _expanded(value, sizes[0])


def _expanded(tensor: Tensor, heads: int) -> Tensor:
    tensor = tensor if tensor.ndim > 2 else tensor.unsqueeze(0)
    if tensor.shape[-3] == 1:
        return tensor.expand(*tensor.shape[:-3], heads, *tensor.shape[-2:])
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3)
