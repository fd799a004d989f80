"""Slots: the keys of a cache of fixed size that are filled. The others are zeros, and hidden from every query."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.inspection.hooks.call import Call
from regard.spec import biases, masks


def filled(call: Call, known: int) -> Call:
    """The call without empty slots, if it has one key for each of its queries after `known` others; else as it is."""
    count = known + call.query.shape[-2]
    if call.key.shape[-2] <= count or bool(call.key[..., count:, :].any()):
        return call
    spec: Any = dict(call.spec)
    hidden = False
    for name in ("mask", "bias"):
        table = spec.get(name)
        table = table.tensor if isinstance(table, masks.Dense | biases.Dense) else table
        if isinstance(table, Tensor) and table.ndim and table.shape[-1] == call.key.shape[-2]:
            hidden = hidden or _hidden(table[..., count:])
            spec[name] = table[..., :count]
        elif table is not None:
            return call  # what it says of the slots is not known
    return replace(call, key=call.key[..., :count, :], spec=spec) if hidden else call


def _hidden(table: Tensor) -> bool:
    """Whether no query sees any of these; models also hide by the least number of their type."""
    return not bool((table if table.dtype == torch.bool else table > 0.5 * torch.finfo(table.dtype).min).any())
