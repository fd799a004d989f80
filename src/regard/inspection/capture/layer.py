"""Layer: what one module computed, in one call or in the steps of a generation."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.engine.request import Request, Spec, request
from regard.inspection.capture.call import Call
from regard.inspection.matrix import AttentionMatrix, matrix
from regard.spec.masks import Causal
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot

ROWS = 16  # of a layer that the self-check adds up


class Layer:
    """Calls whose queries follow one another over keys that grow, or stay as they are."""

    def __init__(self, name: str, call: Call) -> None:
        self.name, self.mechanism = name, call.mechanism
        self._calls, self._key = [call], call.key

    @property
    def heads(self) -> int:
        """Of the queries."""
        return self._calls[0].query.shape[-3]

    @property
    def queries(self) -> int:
        """Of all steps."""
        return sum(call.query.shape[-2] for call in self._calls)

    @property
    def keys(self) -> int:
        """Of the last step."""
        return self._key.shape[-2]

    def follows(self, call: Call, generating: bool) -> bool:
        """Whether the call is a further step: the keys are ours and one more for each query; or, where a model
        generates, ours exactly."""
        first, old, new = self._calls[0], self._key, call.key
        if old.shape[:-2] != new.shape[:-2] or first.query.shape[:-2] != call.query.shape[:-2]:
            return False
        if any(_default(first, name) != _default(call, name) for name in ("score", "normalizer", "temperature")):
            return False
        grown = new.shape[-2] - old.shape[-2]
        itself = self.queries == self.keys and grown == call.query.shape[-2]
        if not itself and not (generating and grown == 0):
            return False
        return torch.equal(old, new[..., : old.shape[-2], :])

    def add(self, call: Call) -> None:
        """One more step; the keys of all steps are those of the last."""
        self._calls.append(call)
        self._key = call.key
        for number, each in enumerate(self._calls):
            keys = call.key[..., : each.key.shape[-2], :]
            self._calls[number] = Call(each.query, keys, each.spec, each.mechanism)

    @cached_property
    def matrix(self) -> AttentionMatrix:
        """The weights of all steps, (batch, head, query, key)."""
        if len(self._calls) == 1:
            return matrix(self._calls[0].query, self._key, **self._calls[0].spec)
        query = torch.cat([call.query for call in self._calls], -2)
        spec: Any = {**self._calls[0].spec, "mask": None, "bias": None, "query_start": None, **self._joined()}
        return matrix(query, self._key, **spec)

    @cached_property
    def off(self) -> float:
        """The self-check: how far the weights of some rows are from adding up to 1 (with a sink, to 1 less its share;
        to 0 in a row that sees nothing)."""
        step = max(1, self.queries // ROWS)
        rows = list(range(0, self.queries, step))
        sums = self.matrix[(..., rows, slice(None))].sum(-1)
        normalizer = self._calls[0].spec.get("normalizer", Softmax())
        wanted = torch.ones_like(sums)
        if isinstance(normalizer, Softmax) and normalizer.sink is not None:
            sink = torch.as_tensor(normalizer.sink, dtype=sums.dtype, device=sums.device).reshape(-1, 1)
            wanted = 1.0 - (sink - self.matrix.lse()[..., rows]).exp()
        wrong = torch.where(sums == 0.0, 0.0, (sums - wanted).abs())
        return float(wrong.max()) if wrong.numel() else 0.0

    def _joined(self) -> Spec:
        """The masks and biases of the steps, each in its own rows."""
        if all(map(_causal, self._calls)):
            return {"mask": Causal(), "query_start": 0}
        if not any(_says(call, name) for call in self._calls for name in ("mask", "bias")):
            return {} if self.queries != self.keys else {"mask": self._table(visible=True)}
        found: Spec = {"mask": self._table(visible=True)}
        if any(_says(call, "bias") for call in self._calls):
            found["bias"] = self._table(visible=False)
        return found

    def _table(self, visible: bool) -> Tensor:
        """(batch, 1 or head, query, key): what is visible, or what is added."""
        rows = []
        for call in self._calls:
            asked = _asked(call)
            part = _visible(asked) if visible else _added(asked)
            rows.append(torch.nn.functional.pad(part, (0, self.keys - call.key.shape[-2])))
        heads = max(part.shape[1] for part in rows)
        return torch.cat([part.expand(-1, heads, -1, -1) for part in rows], -2)


def _says(call: Call, name: str) -> bool:
    return call.spec.get(name) is not None


def _default(call: Call, name: str) -> Any:
    return call.spec.get(name, {"score": ScaledDot(), "normalizer": Softmax(), "temperature": 1.0}[name])


def _causal(call: Call) -> bool:
    """Whether its last query sees every key, and each before it one less."""
    queries, keys = call.query.shape[-2], call.key.shape[-2]
    if _says(call, "bias"):
        return False
    if not _says(call, "mask"):
        return queries == 1
    start = call.spec.get("query_start")
    ends = start is None or (isinstance(start, int) and start + queries == keys)
    return call.spec["mask"] in ("causal", Causal()) and ends


def _asked(call: Call) -> Request:
    plain: Any = {"mask": None, "bias": None, "query_start": None, **call.spec}
    for name in ("score", "normalizer", "temperature"):
        plain[name] = _default(call, name)
    return request(call.query, call.key, call.key[..., :0], **plain, dropout=0.0, aux=())


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
