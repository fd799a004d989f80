"""LayerSteps: the calls of one module for some of its heads, appended step by step while a model generates."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.request import Request, Spec, request
from regard.inspection import pair_tables
from regard.inspection.capture.layer import CHANNELS, CapturedLayer
from regard.inspection.capture.spill import AppendedTensor
from regard.inspection.hooks.call import AttentionCall
from regard.inspection.matrix.handle import DEFAULTS
from regard.spec import biases, masks
from regard.spec.masks import Causal
from regard.spec.part import Part
from regard.spec.plane import CannotSliceError, Selection
from regard.spec.scores import ScaledDot
from regard.spec.steps import Cap, DotProduct

CONSTANT = ("score", "normalizer", "temperature")  # parts of the spec that are the same in all steps
AXES = {"mask": ("batch", "head", None, None), "bias": ("batch", "head", None, None), "temperature": ("head",)}


class Chosen(NamedTuple):
    """A call of some heads. `heads` are the numbers they have in the model, which has `total`; `shown` are their places
    in the call, if it has others too."""

    call: AttentionCall
    heads: tuple[int, ...]
    total: int
    shown: tuple[int, ...] | None = None


def chosen(call: AttentionCall, numbers: tuple[int, ...] | None) -> Chosen:
    """The heads of these numbers. A call whose spec cannot be cut by heads stays whole, and shows just these."""
    count = call.query.shape[-3] if call.query.ndim > 2 else 1
    if numbers is None or numbers == tuple(range(count)):
        return Chosen(call, tuple(range(count)), count)
    if numbers[-1] >= count:
        raise ValueError(f"heads: it has {count} heads, numbered from 0, and none is number {numbers[-1]}")
    group = count // (call.key.shape[-3] if call.key.ndim > 2 else 1)
    owners = [head // group for head in numbers]
    needed = sorted(set(owners))
    if len({owners.count(owner) for owner in needed}) > 1:  # groups of different sizes: each head has its own keys
        needed = owners
    selection = Selection(heads=numbers, kv_heads=tuple(needed))
    try:
        spec: Any = {name: _sliced(name, part, selection) for name, part in call.spec.items()}
    except CannotSliceError:
        return Chosen(call, numbers, count, numbers)
    query, key = call.query[..., list(numbers), :, :], call.key[..., needed, :, :]
    exact = None if call.exact is None else call.exact[..., list(numbers), :, :]
    return Chosen(replace(call, query=query, key=key, spec=spec, exact=exact), numbers, count)


def _sliced(name: str, part: Any, selection: Selection) -> Any:
    """The same for some heads; CannotSliceError where there is no such part."""
    if isinstance(part, Tensor):
        return selection.tensor(part, AXES.get(name, ()))
    return part.sliced(selection) if isinstance(part, Part) else part


def grouped(call: AttentionCall) -> AttentionCall:
    """One of the keys that a model repeated for the heads of a group, where they are equal bit by bit."""
    score = call.spec.get("score", ScaledDot())
    match score.steps():
        case (DotProduct(weight=None), *rest) if all(isinstance(step, Cap) for step in rest):
            product = True
        case _:
            product = False
    if not product or call.key.ndim < 3 or not call.key.shape[-1]:
        return call
    key, count = call.key, call.key.shape[-3]
    if count < 2 or call.query.ndim < 3 or call.query.shape[-3] != count or not key.numel():
        return call
    first = key[..., 0, :]  # of the first token: enough to tell most heads apart
    equal = (first[..., 1:, :] == first[..., :-1, :]).all(-1).reshape(-1, count - 1).all(0).tolist()
    starts = [0, *(head + 1 for head, same in enumerate(equal) if not same)]
    size = count // len(starts)
    if size == 1 or starts != list(range(0, count, size)):
        return call
    split = key.unflatten(-3, (len(starts), size))
    alone = split[..., 0, :, :]
    if any(not torch.equal(split[..., member, :, :], alone) for member in range(1, size)):
        return call
    return replace(call, key=alone)


class CapturedCall(NamedTuple):
    """One call: its number of queries, its spec, and its keys, `keys` of them from `first` on."""

    queries: int
    spec: Spec
    first: int
    keys: int


class Continuation(NamedTuple):
    """How a call continues a layer: its last `new_keys` keys are new; `order` are the batch rows that it continues, if
    they were reordered as beams are."""

    new_keys: int
    order: Tensor | None = None


class LayerSteps:
    """Calls whose queries follow one another, over keys that are appended or do not change."""

    def __init__(self, name: str, first: Chosen, number: int | None = None) -> None:
        self.number = number
        self.name, self.mechanism = name, first.call.mechanism
        self.rounded: float | None = None
        self.query, self.key = AppendedTensor([first.call.query]), AppendedTensor([first.call.key])
        # the weights of all steps behind one another, (batch, head, pair, 1), because rows have different lengths
        self.weights = None if first.call.exact is None else AppendedTensor([_flat(first.call.exact)])
        self._channels = first.call.channels
        self._heads, self._total, self._shown = first.heads, first.total, first.shown
        self._steps = [CapturedCall(first.call.query.shape[-2], first.call.spec, 0, first.call.key.shape[-2])]

    @property
    def steps(self) -> int:
        """Number of calls."""
        return len(self._steps)

    @property
    def tensors(self) -> list[AppendedTensor]:
        """All that is stored."""
        return [self.query, self.key, *([] if self.weights is None else [self.weights])]

    def continuation(self, call: AttentionCall, generating: bool) -> Continuation | None:
        """How the call continues this layer; None if it does not.

        A further step has our keys, all or the last of them, and a new one for each of its queries; or, where a model
        generates, just our keys, as cross-attention does.
        """
        new, queries, own = call.key, call.query.shape[-2], len(self.key)
        if self.key.leading != tuple(new.shape[:-2]) or self.query.leading != tuple(call.query.shape[:-2]):
            return None
        if (call.exact is None) != (self.weights is None) or not new.shape[-1]:  # keys without a width are not known
            return None
        first: Any = {**DEFAULTS, **self._steps[0].spec}
        spec: Any = {**DEFAULTS, **call.spec}
        if not all(_same(first[name], spec[name]) for name in CONSTANT):
            return None
        for added, possible in ((queries, len(self.query) == own), (0, generating)):
            count = new.shape[-2] - added
            if not possible or not 1 <= count <= own or (added == 0 and count != own):
                continue
            old = new[..., :count, :]
            if self.key.ends_with(old):
                return Continuation(added)
            order = self.key.order(old) if generating and count == own else None
            if order is not None:
                return Continuation(added, order)
        return None

    def append(self, call: AttentionCall, keys: int, order: Tensor | None = None) -> None:
        """Append a call that had so many keys, and holds the new ones."""
        if order is not None:
            for tensor in self.tensors:
                tensor.reorder(order)
        self.query.append(call.query)
        self.key.append(call.key)
        if self.weights is not None and call.exact is not None:
            self.weights.append(_flat(call.exact))
        self._steps.append(CapturedCall(call.query.shape[-2], call.spec, len(self.key) - keys, keys))

    def captured(self) -> CapturedLayer:
        """All steps as one layer."""
        query, key, weights = self.query.joined(), self.key.joined(), None
        spec: Any = self._steps[0].spec
        known_kind = CHANNELS if self._channels else None
        if self.weights is not None:
            weights, key = self._joined_weights(), key[..., :0]
        elif len(self._steps) > 1:
            spec = {**spec, "mask": None, "bias": None, "query_start": None, **self._joined(query, key)}
        chosen = (self._heads, self._total, self._shown)
        stays = None if len(self._steps) == 1 else self._steps[0].keys == len(self.key)
        more: Any = {
            "known_kind": known_kind,
            "rounded": self.rounded,
            "stays": stays,
            "weights": weights,
            "number": self.number,
        }
        return CapturedLayer(self.name, self.mechanism, query, key, spec, *chosen, **more)

    def _joined_weights(self) -> Tensor:
        """(batch, head, query, key) of all steps; 0 for keys that a step lacks."""
        assert self.weights is not None
        flat = self.weights.joined()
        if len(self._steps) == 1:
            step = self._steps[0]
            return flat.reshape(*flat.shape[:2], step.queries, step.keys)
        whole = torch.zeros((*flat.shape[:2], len(self.query), len(self.key)), dtype=flat.dtype, device=flat.device)
        row = first = 0
        for step in self._steps:
            size = step.queries * step.keys
            part = flat[:, :, first : first + size].reshape(*flat.shape[:2], step.queries, step.keys)
            whole[:, :, row : row + step.queries, step.first : step.first + step.keys] = part
            row, first = row + step.queries, first + size
        return whole

    def _joined(self, query: Tensor, key: Tensor) -> Spec:
        """The masks and biases of all steps, each in its own rows."""
        ends = accumulate(step.queries for step in self._steps)
        if all(_causal(step, end) for step, end in zip(self._steps, ends, strict=True)):
            return {"mask": Causal(), "query_start": 0}
        plain = not any(step.spec.get(name) is not None for step in self._steps for name in ("mask", "bias"))
        if plain and all(step.keys == key.shape[-2] for step in self._steps):
            return {}
        joined: Spec = {"mask": self._table(query, key, pair_tables.visible)}
        if any(step.spec.get("bias") is not None for step in self._steps):
            joined["bias"] = self._table(query, key, pair_tables.added)
        return joined

    def _table(self, query: Tensor, key: Tensor, table: Callable[[Request], Tensor]) -> Tensor:
        """(batch or 1, head or 1, query, key) of the tables of all steps; False or 0 for keys that a step lacks."""
        parts, end = [], 0
        for step in self._steps:
            end += step.queries
            rows, columns = slice(end - step.queries, end), slice(step.first, step.first + step.keys)
            queries, keys = query[..., rows, :], key[..., columns, :]
            spec: Any = {**DEFAULTS, **step.spec}
            part = table(request(queries, keys, keys[..., :0], **spec, dropout=0.0, aux=()))
            parts.append(pad(part, (step.first, key.shape[-2] - columns.stop)))
        batch, heads = (max(part.shape[axis] for part in parts) for axis in (0, 1))
        return torch.cat([part.expand(batch, heads, -1, -1) for part in parts], -2)


def _flat(weights: Tensor) -> Tensor:
    return weights.reshape(*weights.shape[:2], -1, 1)


def _same(one: Any, other: Any) -> bool:
    """Whether two parts of a spec are equal; they may hold tensors."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, Part) and type(one) is type(other):
        own, others = one.attributes, other.attributes
        return own.keys() == others.keys() and all(_same(value, others[name]) for name, value in own.items())
    return bool(one == other)


def _causal(step: CapturedCall, end: int) -> bool:
    """Whether the step, whose queries end at `end`, is causal over all keys so far."""
    start = step.spec.get("query_start")
    if step.spec.get("bias") is not None or step.first or step.keys != end:
        return False
    if step.spec.get("mask") is None:
        return step.queries == 1
    ends = start is None or (isinstance(start, int) and start + step.queries == step.keys)
    return step.spec["mask"] in ("causal", Causal()) and ends


def without_empty_slots(call: AttentionCall, before: int) -> AttentionCall:
    """The call without the empty keys of a static cache, which are zeros and hidden from every query, if it has one key
    for each of its queries after `before` others; else unchanged."""
    count = before + call.query.shape[-2]
    if call.key.shape[-2] <= count or bool(call.key[..., count:, :].any()):
        return call
    if call.exact is not None:
        hidden = not bool(call.exact[..., count:].any())
        small = replace(call, key=call.key[..., :count, :], exact=call.exact[..., :count])
        return small if hidden and call.key.shape[-1] else call
    spec: Any = dict(call.spec)
    hidden = False
    for name in ("mask", "bias"):
        table = spec.get(name)
        table = table.tensor if isinstance(table, masks.Dense | biases.Dense) else table
        if isinstance(table, Tensor) and table.ndim and table.shape[-1] == call.key.shape[-2]:
            lowest = None if table.dtype == torch.bool else 0.5 * torch.finfo(table.dtype).min  # as models hide
            slots = table[..., count:]
            hidden = hidden or not bool((slots if lowest is None else slots > lowest).any())
            spec[name] = table[..., :count]
        elif table is not None:
            return call  # it may show the slots
    return replace(call, key=call.key[..., :count, :], spec=spec) if hidden else call
