"""The attention interface of Hugging Face transformers.

Eager functions are written out in the models' own files, so they are intercepted where a model asks for the function to
call. The shape of the query that a layer passes to scaled_dot_product_attention is noted, to find packed calls.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from torch import Tensor, nn

from regard.engine.request import Spec
from regard.inspection.hooks import parse, rerun
from regard.inspection.hooks.call import AttentionCall
from regard.inspection.hooks.rerun import Function, Rerun
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot, Score, SoftCapped

Hooked = Callable[[Function, Callable[..., AttentionCall], Rerun], Function]
INSIDE = ("sdpa", "regard")  # these call functions that are intercepted


def install(hooked: Hooked, modifying: Callable[[], bool]) -> Callable[[], None]:
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
            return hooked(run, parser, rerun.eager)(*args, **kwargs)

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
        before, parse.layer.query = parse.layer.query, tuple(query.shape) if isinstance(query, Tensor) else None
        try:
            return function(*args, **kwargs)
        finally:
            parse.layer.query = before

    return hook
