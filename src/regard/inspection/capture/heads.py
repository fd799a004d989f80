"""Heads: some heads of a call, with the keys that they look at; and keys that were repeated for their groups."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.inspection.hooks.call import AttentionCall
from regard.spec.part import Part
from regard.spec.plane import CannotSliceError, Selection
from regard.spec.scores import ScaledDot
from regard.spec.steps import Cap, DotProduct

AXES = {"mask": ("batch", "head", None, None), "bias": ("batch", "head", None, None), "temperature": ("head",)}


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
    group = count // (call.key.shape[-3] if call.key.ndim > 2 else 1)
    owners = [head // group for head in wanted]
    needed = sorted(set(owners))
    if len({owners.count(owner) for owner in needed}) > 1:  # groups of different sizes: each head has its own keys
        needed = owners
    selection = Selection(heads=wanted, kv_heads=tuple(needed))
    try:
        spec: Any = {name: _sliced(name, part, selection) for name, part in call.spec.items()}
    except CannotSliceError:
        return Chosen(call, wanted, count, wanted)
    query, key = call.query[..., list(wanted), :, :], call.key[..., needed, :, :]
    return Chosen(replace(call, query=query, key=key, spec=spec), wanted, count)


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
    if not product or call.key.ndim < 3:
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
