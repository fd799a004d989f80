"""Heads: some heads of a call, with the keys that they look at; and keys that were repeated for their groups."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.inspection.hooks.call import AttentionCall
from regard.spec import biases, masks, scores
from regard.spec.normalizers import Hard, Softmax, Sparsemax
from regard.spec.part import Part

# parts that are the same for every head, and those that are made of others or of a table for each head
EVEN = (
    *(scores.Dot, scores.ScaledDot, scores.Cosine, Hard, Sparsemax),
    *(masks.Full, masks.Causal, masks.Window, masks.Dilated, masks.Global, masks.Prefix),
    *(masks.Lengths, masks.Documents),
)
MADE = (scores.SoftCapped, masks.And, masks.Or, masks.Not, biases.Total)
TABLES = {masks.Dense: "tensor", biases.Dense: "tensor", masks.Blocks: "layout"}


class Chosen(NamedTuple):
    """A call of some heads. `heads` are the numbers they have in the model, which has `total`; `shown` are their places
    in the call, if it has others too."""

    call: AttentionCall
    heads: tuple[int, ...]
    total: int
    shown: tuple[int, ...] | None = None


def chosen(call: AttentionCall, wanted: tuple[int, ...] | None) -> Chosen:
    """The heads of these numbers. A call whose spec cannot be cut by heads stays whole, and shows just these."""
    count = call.query.shape[-3] if call.query.ndim > 2 else 1
    if wanted is None or wanted == tuple(range(count)):
        return Chosen(call, tuple(range(count)), count)
    if wanted[-1] >= count:
        raise ValueError(f"heads: it has {count} heads, numbered from 0, and none is number {wanted[-1]}")
    try:
        spec: Any = {name: _cut(part, count, wanted, name) for name, part in call.spec.items()}
    except NotImplementedError:
        return Chosen(call, wanted, count, wanted)
    group = count // (call.key.shape[-3] if call.key.ndim > 2 else 1)
    owners = [head // group for head in wanted]
    needed = sorted(set(owners))
    if len({owners.count(owner) for owner in needed}) > 1:  # groups of different sizes: each head has its own keys
        needed = owners
    query, key = call.query[..., list(wanted), :, :], call.key[..., needed, :, :]
    return Chosen(replace(call, query=query, key=key, spec=spec), wanted, count)


def _cut(part: Any, count: int, wanted: tuple[int, ...], name: str) -> Any:
    """The same for some heads; NotImplementedError where it is not known how."""
    cut = partial(_cut, count=count, wanted=wanted, name=name)
    if isinstance(part, Tensor):
        if name in ("mask", "bias"):
            return _axis(part, -3, count, wanted) if part.ndim > 2 else part
        return _axis(part, -1, count, wanted) if name == "temperature" and part.ndim else part
    if isinstance(part, Softmax):
        return replace(part, sink=_axis(part.sink, -1, count, wanted)) if _per_head(part.sink, count) else part
    if type(part) in TABLES:
        field = TABLES[type(part)]
        table = getattr(part, field)
        return replace(part, **{field: _axis(table, -3, count, wanted)}) if table.ndim > 2 else part
    if isinstance(part, MADE):
        return type(part)(*(cut(getattr(part, field)) for field in part.__dataclass_fields__))
    if isinstance(part, tuple):
        return tuple(map(cut, part))
    if isinstance(part, Part) and not isinstance(part, EVEN):
        raise NotImplementedError
    return part


def _per_head(value: object, count: int) -> bool:
    return isinstance(value, Tensor) and value.ndim == 1 and len(value) == count > 1


def _axis(tensor: Any, axis: int, count: int, wanted: tuple[int, ...]) -> Any:
    if tensor.shape[axis] != count or count == 1:
        return tensor
    return tensor.index_select(axis, torch.tensor(wanted, device=tensor.device, dtype=torch.int64))


def grouped(call: AttentionCall) -> AttentionCall:
    """One of the keys that a model repeated for the heads of a group, where they are equal bit by bit."""
    score: Any = call.spec.get("score", scores.ScaledDot())
    while isinstance(score, scores.SoftCapped):
        score = score.score
    if not isinstance(score, scores.ScaledDot | scores.Dot | scores.Cosine) or call.key.ndim < 3:
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
