"""Packed: transformers 5.23 and later hand a single query of grouped heads to scaled_dot_product_attention with the
heads of a group as queries, (batch, kv head, group, width). Such a call is read, and changed, as the layer means it."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from torch import Tensor

from regard.engine.sdpa_override.calls import SdpaCall
from regard.inspection.hooks import doors, heard
from regard.inspection.hooks.call import Call


class _Local(threading.local):
    query: tuple[int, ...] | None = None  # the shape that the layer gave its query


_local = _Local()


def noting(function: Callable[..., Any]) -> Callable[..., Any]:
    """An attention function of transformers, `function(module, query, …)`, that notes the shape of its query."""

    @wraps(function)
    def met(*args: Any, **kwargs: Any) -> Any:
        query = args[1] if len(args) > 1 else kwargs.get("query")
        before, _local.query = _local.query, tuple(query.shape) if isinstance(query, Tensor) else None
        try:
            return function(*args, **kwargs)
        finally:
            _local.query = before

    return met


def fused(*args: Any, **kwargs: Any) -> Call:
    """scaled_dot_product_attention with the heads and queries of the layer."""
    asked = SdpaCall(*args, **kwargs)
    if _is_packed(asked.query):
        mask, group = asked.attn_mask, asked.query.shape[2]
        if mask is not None and mask.ndim == 4 and mask.shape[2] == group:
            mask = mask.reshape(mask.shape[0], -1, 1, mask.shape[3])
        asked = replace(asked, query=_unpacked(asked.query), attn_mask=mask, enable_gqa=True)
    return heard.fused(**vars(asked))


def door(function: doors.Function, args: Any, kwargs: Any, change: doors.Change) -> Any:
    """The same for what its heads put out."""
    out = function(*args, **kwargs)
    return (
        change.out(_unpacked(out)).reshape(out.shape)
        if _is_packed(SdpaCall(*args, **kwargs).query)
        else change.out(out)
    )


def _is_packed(query: Tensor) -> bool:
    given = _local.query
    if given is None or len(given) != 4 or given[2] != 1 or query.ndim != 4 or query.shape[2] == 1:
        return False
    return given[1] == query.shape[1] * query.shape[2]


def _unpacked(tensor: Tensor) -> Tensor:
    """(batch, kv head, group, width) as (batch, head, 1, width)."""
    return tensor.reshape(tensor.shape[0], -1, 1, tensor.shape[3])
