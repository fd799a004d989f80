"""Layer: what one module computed, in one call or in the steps of a generation."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.request import Request, Spec, request
from regard.inspection import tables
from regard.inspection.capture.growing import Growing
from regard.inspection.capture.heads import Chosen
from regard.inspection.capture.kept import Kept
from regard.inspection.capture.kinds import kind_of
from regard.inspection.hooks.call import Call
from regard.spec.masks import Causal
from regard.spec.normalizers import Softmax
from regard.spec.part import Part
from regard.spec.scores import ScaledDot

DEFAULTS: dict[str, Any] = {"score": ScaledDot(), "normalizer": Softmax(), "temperature": 1.0}


class Step(NamedTuple):
    """The number of queries of one call, and the keys that it had: `keys` of them from `first` on."""

    queries: int
    spec: Spec
    first: int
    keys: int


class Goes(NamedTuple):
    """How a call goes on with a layer: `fresh` keys are new; `order` are the batch rows it goes on from, if they
    changed places as beams do."""

    fresh: int
    order: Tensor | None = None


class Layer:
    """Calls whose queries follow one another, over keys that grow or stay as they are."""

    def __init__(self, name: str, found: Chosen) -> None:
        self.name, self.mechanism = name, found.call.mechanism
        self.rounded: float | None = None
        self.query, self.key = Growing(found.call.query), Growing(found.call.key)
        self._heads, self._total, self._shown = found.heads, found.total, found.shown
        self._steps = [Step(found.call.query.shape[-2], found.call.spec, 0, found.call.key.shape[-2])]

    @property
    def steps(self) -> int:
        """How many there were."""
        return len(self._steps)

    def goes_on(self, call: Call, generating: bool) -> Goes | None:
        """How the call is a further step, or None.

        A step has keys of ours, all or the last of them, and one more for each of its queries; or, where a model
        generates, just ours, those of something else that it looks at.
        """
        new, queries, own = call.key, call.query.shape[-2], len(self.key)
        if self.key.lead != tuple(new.shape[:-2]) or self.query.lead != tuple(call.query.shape[:-2]):
            return None
        if not all(_same(_default(self._steps[0].spec, name), _default(call.spec, name)) for name in DEFAULTS):
            return None
        for added, may in ((queries, len(self.query) == own), (0, generating)):
            known = new.shape[-2] - added
            if not may or not 1 <= known <= own or (added == 0 and known != own):
                continue
            old = new[..., :known, :]
            if self.key.ends_with(old):
                return Goes(added)
            order = self.key.order(old) if generating and known == own else None
            if order is not None:
                return Goes(added, order)
        return None

    def add(self, call: Call, keys: int, order: Tensor | None = None) -> None:
        """One more step, that had so many keys; in the call are those of them that are new."""
        if order is not None:
            self.query.reorder(order)
            self.key.reorder(order)
        self.query.add(call.query)
        self.key.add(call.key)
        self._steps.append(Step(call.query.shape[-2], call.spec, len(self.key) - keys, keys))

    def kept(self) -> Kept:
        """All steps as one."""
        query, key = self.query.whole(), self.key.whole()
        spec: Any = self._steps[0].spec
        if len(self._steps) > 1:
            spec = {**spec, "mask": None, "bias": None, "query_start": None, **self._joined(query, key)}
        chosen = (self._heads, self._total, self._shown)
        found = Kept(self.name, self.mechanism, query, key, spec, *chosen, rounded=self.rounded)
        stays = None if len(self._steps) == 1 else self._steps[0].keys == len(self.key)
        return replace(found, kind=kind_of(self.name, found.matrix, stays))

    def _joined(self, query: Tensor, key: Tensor) -> Spec:
        """The masks and biases of the steps, each in its own rows."""
        ends = accumulate(step.queries for step in self._steps)
        if all(_causal(step, end) for step, end in zip(self._steps, ends, strict=True)):
            return {"mask": Causal(), "query_start": 0}
        plain = not any(_says(step.spec, name) for step in self._steps for name in ("mask", "bias"))
        if plain and all(step.keys == key.shape[-2] for step in self._steps):
            return {}
        found: Spec = {"mask": self._table(query, key, tables.visible)}
        if any(_says(step.spec, "bias") for step in self._steps):
            found["bias"] = self._table(query, key, tables.added)
        return found

    def _table(self, query: Tensor, key: Tensor, told: Callable[[Request], Tensor]) -> Tensor:
        """(batch or 1, head or 1, query, key) of what each step tells of its pairs; False or 0 where it has none."""
        parts, end = [], 0
        for step in self._steps:
            end += step.queries
            rows, columns = slice(end - step.queries, end), slice(step.first, step.first + step.keys)
            part = told(_asked(step, query[..., rows, :], key[..., columns, :]))
            parts.append(pad(part, (step.first, key.shape[-2] - columns.stop)))
        batch, heads = (max(part.shape[axis] for part in parts) for axis in (0, 1))
        return torch.cat([part.expand(batch, heads, -1, -1) for part in parts], -2)


def _says(spec: Spec, name: str) -> bool:
    return spec.get(name) is not None


def _default(spec: Spec, name: str) -> Any:
    return spec.get(name, DEFAULTS[name])


def _same(one: Any, other: Any) -> bool:
    """Whether two parts of a spec say the same; those of models may hold tensors."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, Part) and type(one) is type(other):
        own, others = one.held, other.held
        return own.keys() == others.keys() and all(_same(value, others[name]) for name, value in own.items())
    return bool(one == other)


def _causal(step: Step, end: int) -> bool:
    """Whether its last query, before which there are `end` − 1, sees as many keys, and each before it one less."""
    start = step.spec.get("query_start")
    if _says(step.spec, "bias") or step.first or step.keys != end:
        return False
    if not _says(step.spec, "mask"):
        return step.queries == 1
    ends = start is None or (isinstance(start, int) and start + step.queries == step.keys)
    return step.spec["mask"] in ("causal", Causal()) and ends


def _asked(step: Step, query: Tensor, key: Tensor) -> Request:
    spec: Any = {**DEFAULTS, "mask": None, "bias": None, "query_start": None, **step.spec}
    return request(query, key, key[..., :0], **spec, dropout=0.0, aux=())
