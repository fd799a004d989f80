"""The attention interface of Hugging Face transformers.

Eager functions are written out in the models' own files, so they are intercepted where a model asks for the function to
call. Version 5.23 and later pass a single query of grouped heads to scaled_dot_product_attention with the heads of a
group as queries, (batch, kv head, group, width). Such packed calls are parsed and rerun with the heads of the layer.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from torch import Tensor, nn

from regard.engine.request import Spec
from regard.engine.sdpa_override.calls import SdpaCall
from regard.inspection.hooks import parse, rerun
from regard.inspection.hooks.call import AttentionCall
from regard.inspection.hooks.rerun import Edit, Function, Rerun
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot, Score, SoftCapped

Intercepted = Callable[[Function, Any, Any, Callable[..., AttentionCall], Rerun], Any]
INSIDE = ("sdpa", "regard")  # these call functions that are intercepted


class _Local(threading.local):
    query: tuple[int, ...] | None = None  # the shape of the query that the layer passes


_local = _Local()


def install(intercepted: Intercepted, modifying: Callable[[], bool]) -> Callable[[], None]:
    """Intercept every eager function that a model asks for; returns a function that removes the hook. `modifying`
    tells whether the current call is modified."""
    from transformers import AttentionInterface

    original = AttentionInterface.get_interface
    original_getitem = AttentionInterface.__getitem__

    def getitem(self: Any, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = original_getitem(self, name)
        return _noting_shape(function) if name == "sdpa" else function

    @wraps(original)
    def get_interface(self: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = original(self, name, default)
        if name == "regard":
            return _refusing_weights(function, modifying)
        if name in INSIDE:
            return function

        @wraps(function)
        def hook(*args: Any, **kwargs: Any) -> Any:
            results: list[Any] = []

            def run(*args: Any, **kwargs: Any) -> Any:
                results.append(function(*args, **kwargs))
                return results[0]

            parser = partial(parse_eager, results) if function is default else _unknown(name)
            return intercepted(run, args, kwargs, parser, rerun.eager)

        return hook

    AttentionInterface.get_interface = get_interface
    AttentionInterface.__getitem__ = getitem

    def remove() -> None:
        AttentionInterface.get_interface = original
        AttentionInterface.__getitem__ = original_getitem

    return remove


def _refusing_weights(function: Callable[..., Any], modifying: Callable[[], bool]) -> Callable[..., Any]:
    """Refuse to return weights with a modified output: they are computed apart from it."""

    @wraps(function)
    def hook(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        if out[1] is not None and modifying():
            raise ValueError(
                "output_attentions with attn_implementation='regard' gives weights that an intervention does not "
                "reach; leave it out and use regard.capture, or load the model with 'eager'"
            )
        return out

    return hook


def parse_eager(
    results: list[Any],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | Tensor | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **more: Any,
) -> AttentionCall:
    """An eager function by the argument names that all models share; `results` holds what it returned. Whether a model
    does just this is known when its weights are compared with ours."""
    weights = results[0][1] if isinstance(results[0], tuple) and len(results[0]) > 1 else None
    if not isinstance(weights, Tensor) or weights.ndim != query.ndim:
        raise ValueError("its eager function gives no weights to compare ours with; load it with 'sdpa'")
    if isinstance(scaling, Tensor):
        query, scaling = query * scaling, 1.0
    score: Score = ScaledDot(None if scaling is None else float(scaling))
    spec: Spec = {"score": score if softcap is None else SoftCapped(score, float(softcap))}
    if s_aux is not None:
        spec["normalizer"] = Softmax(sink=s_aux)
    if attention_mask is not None and not attention_mask.is_floating_point():
        spec["mask"], attention_mask = attention_mask, None
    added = [part for part in (position_bias, attention_mask) if part is not None]
    if added:
        spec["bias"] = added[0] if len(added) == 1 else added[0] + added[1]
    rate = float(dropout) if module.training else 0.0
    return AttentionCall(query, key, spec, "transformers, eager", weights, value, rate)


def _unknown(name: str) -> Callable[..., AttentionCall]:
    """The parser of a function that is neither eager nor sdpa."""

    def parser(*args: Any, **kwargs: Any) -> AttentionCall:
        raise ValueError(f"attn_implementation={name!r} cannot be looked into; load the model with 'sdpa' or 'eager'")

    return parser


def _noting_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """An attention function of transformers, `function(module, query, …)`, that notes the shape of its query."""

    @wraps(function)
    def hook(*args: Any, **kwargs: Any) -> Any:
        query = args[1] if len(args) > 1 else kwargs.get("query")
        before, _local.query = _local.query, tuple(query.shape) if isinstance(query, Tensor) else None
        try:
            return function(*args, **kwargs)
        finally:
            _local.query = before

    return hook


def parse_sdpa(*args: Any, **kwargs: Any) -> AttentionCall:
    """scaled_dot_product_attention, packed or not."""
    given = SdpaCall(*args, **kwargs)
    if _is_packed(given.query):
        mask, group = given.attn_mask, given.query.shape[2]
        if mask is not None and mask.ndim == 4 and mask.shape[2] == group:
            mask = mask.reshape(mask.shape[0], -1, 1, mask.shape[3])
        given = replace(given, query=_unpacked(given.query), attn_mask=mask, enable_gqa=True)
    return parse.sdpa(given)


def rerun_sdpa(function: Function, args: Any, kwargs: Any, edit: Edit) -> Any:
    """scaled_dot_product_attention with changed outputs, packed or not."""
    out = function(*args, **kwargs)
    if _is_packed(SdpaCall(*args, **kwargs).query):
        return edit.out(_unpacked(out)).reshape(out.shape)
    return edit.out(out)


def _is_packed(query: Tensor) -> bool:
    shape = _local.query
    if shape is None or len(shape) != 4 or shape[2] != 1 or query.ndim != 4 or query.shape[2] == 1:
        return False
    return shape[1] == query.shape[1] * query.shape[2]


def _unpacked(tensor: Tensor) -> Tensor:
    """(batch, kv head, group, width) as (batch, head, 1, width)."""
    return tensor.reshape(tensor.shape[0], -1, 1, tensor.shape[3])
