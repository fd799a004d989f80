"""Layer: what one module computed, in one call or in the steps of a generation."""

from collections.abc import Callable
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.request import Request, Spec, request
from regard.inspection.listening.call import Call
from regard.inspection.matrix import AttentionMatrix, matrix
from regard.spec.masks import Causal
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot

DEFAULTS: dict[str, Any] = {"score": ScaledDot(), "normalizer": Softmax(), "temperature": 1.0}
ROWS = 16  # of a layer that the self-check adds up


class Step(NamedTuple):
    """The queries of one call, and the keys that it had: `keys` of them from `first` on."""

    query: Tensor
    spec: Spec
    first: int
    keys: int


class Layer:
    """Calls whose queries follow one another, over keys that grow or stay as they are."""

    def __init__(self, name: str, call: Call) -> None:
        self.name, self.mechanism = name, call.mechanism
        self._steps, self._key = [Step(call.query, call.spec, 0, call.key.shape[-2])], call.key

    @property
    def heads(self) -> int:
        """Of the queries."""
        return self._steps[0].query.shape[-3]

    @property
    def queries(self) -> int:
        """Of all steps."""
        return sum(step.query.shape[-2] for step in self._steps)

    @property
    def keys(self) -> int:
        """Of all steps."""
        return self._key.shape[-2]

    def fresh(self, call: Call, generating: bool) -> int | None:
        """How many keys the call adds if it is a further step, else None.

        A step has keys of ours, all or the last of them, and one more for each of its queries; or, where a model
        generates, just ours, those of something else that it looks at.
        """
        first, new, queries = self._steps[0], call.key, call.query.shape[-2]
        if self._key.shape[:-2] != new.shape[:-2] or first.query.shape[:-2] != call.query.shape[:-2]:
            return None
        if any(_default(first.spec, name) != _default(call.spec, name) for name in DEFAULTS):
            return None
        for added, may in ((queries, self.queries == self.keys), (0, generating)):
            known = new.shape[-2] - added
            may = may and 1 <= known <= self.keys and (added > 0 or known == self.keys)
            if may and torch.equal(self._key[..., self.keys - known :, :], new[..., :known, :]):
                return added
        return None

    def add(self, call: Call, fresh: int) -> None:
        """One more step, whose last keys are new."""
        count = call.key.shape[-2]
        self._key = torch.cat([self._key, call.key[..., count - fresh :, :]], -2)
        self._steps.append(Step(call.query, call.spec, self.keys - count, count))

    @cached_property
    def matrix(self) -> AttentionMatrix:
        """The weights of all steps, (batch, head, query, key)."""
        if len(self._steps) == 1:
            return matrix(self._steps[0].query, self._key, **self._steps[0].spec)
        query = torch.cat([step.query for step in self._steps], -2)
        spec: Any = {**self._steps[0].spec, "mask": None, "bias": None, "query_start": None, **self._joined()}
        return matrix(query, self._key, **spec)

    @cached_property
    def off(self) -> float:
        """The self-check: how far the weights of some rows are from adding up to 1 (with a sink, to 1 less its share;
        to 0 in a row that sees nothing)."""
        step = max(1, self.queries // ROWS)
        rows = list(range(0, self.queries, step))
        sums = self.matrix[(..., rows, slice(None))].sum(-1)
        normalizer = _default(self._steps[0].spec, "normalizer")
        wanted = torch.ones_like(sums)
        if isinstance(normalizer, Softmax) and normalizer.sink is not None:
            sink = torch.as_tensor(normalizer.sink, dtype=sums.dtype, device=sums.device).reshape(-1, 1)
            wanted = 1.0 - (sink - self.matrix.lse()[..., rows]).exp()
        wrong = torch.where(sums == 0.0, 0.0, (sums - wanted).abs())
        return float(wrong.max()) if wrong.numel() else 0.0

    def _joined(self) -> Spec:
        """The masks and biases of the steps, each in its own rows."""
        ends = accumulate(step.query.shape[-2] for step in self._steps)
        if all(_causal(step, end) for step, end in zip(self._steps, ends, strict=True)):
            return {"mask": Causal(), "query_start": 0}
        plain = not any(_says(step.spec, name) for step in self._steps for name in ("mask", "bias"))
        if plain and all(step.keys == self.keys for step in self._steps):
            return {}
        found: Spec = {"mask": self._table(_visible)}
        if any(_says(step.spec, "bias") for step in self._steps):
            found["bias"] = self._table(_added)
        return found

    def _table(self, told: Callable[[Request], Tensor]) -> Tensor:
        """(batch, 1 or head, query, key) of what each step tells of its pairs; False or 0 where it has none."""
        rows = []
        for step in self._steps:
            key = self._key[..., step.first : step.first + step.keys, :]
            part = told(_asked(step, key))
            rows.append(pad(part, (step.first, self.keys - step.first - step.keys)))
        heads = max(part.shape[1] for part in rows)
        return torch.cat([part.expand(-1, heads, -1, -1) for part in rows], -2)


def _says(spec: Spec, name: str) -> bool:
    return spec.get(name) is not None


def _default(spec: Spec, name: str) -> Any:
    return spec.get(name, DEFAULTS[name])


def _causal(step: Step, end: int) -> bool:
    """Whether its last query, before which there are `end` − 1, sees as many keys, and each before it one less."""
    queries, start = step.query.shape[-2], step.spec.get("query_start")
    if _says(step.spec, "bias") or step.first or step.keys != end:
        return False
    if not _says(step.spec, "mask"):
        return queries == 1
    ends = start is None or (isinstance(start, int) and start + queries == step.keys)
    return step.spec["mask"] in ("causal", Causal()) and ends


def _asked(step: Step, key: Tensor) -> Request:
    spec: Any = {**DEFAULTS, "mask": None, "bias": None, "query_start": None, **step.spec}
    return request(step.query, key, key[..., :0], **spec, dropout=0.0, aux=())


def _visible(asked: Request) -> Tensor:
    return _one_head(asked.mask.visible(asked.plane.all), asked)


def _added(asked: Request) -> Tensor:
    total = torch.zeros((1, 1, 1, 1, 1), dtype=asked.dtype, device=asked.query.device)
    for term in () if asked.bias is None else asked.bias.terms():
        total = total + term.values(asked.plane.all)
    return _one_head(total, asked)


def _one_head(table: Tensor, asked: Request) -> Tensor:
    """(batch, kv head, group, query, key) or what broadcasts to it, with one head axis; one head if all are alike."""
    plane = asked.plane
    table = table[(None,) * (5 - table.ndim)]
    alike = table.shape[1:3] == (1, 1)
    heads = (1, 1) if alike else (plane.kv_heads, plane.group)
    return table.expand(plane.batch, *heads, plane.queries, plane.keys).flatten(1, 2)
