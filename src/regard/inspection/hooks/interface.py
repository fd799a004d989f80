"""The attention interface of transformers: its eager functions are written out in the models' own files, so they are
met where a model asks for the function to call."""

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from torch import Tensor, nn

from regard.engine.request import Spec
from regard.inspection.hooks import doors, packed
from regard.inspection.hooks.call import Call
from regard.inspection.hooks.doors import Door
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot, Score, SoftCapped

Called = Callable[[Callable[..., Any], Any, Any, Callable[..., Call], Door], Any]
INSIDE = ("sdpa", "regard")  # these call functions that are listened to


def tapped(called: Called, changing: Callable[[], bool]) -> Callable[[], None]:
    """Hand every eager function out inside one that is heard; returns what takes this back. `changing` tells whether
    the call is changed."""
    if "transformers" not in sys.modules:
        return lambda: None
    from transformers import AttentionInterface

    original = AttentionInterface.get_interface
    looked_up = AttentionInterface.__getitem__

    def getitem(self: Any, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = looked_up(self, name)
        return packed.noting(function) if name == "sdpa" else function

    @wraps(original)
    def get_interface(self: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = original(self, name, default)
        if name == "regard":
            return _alone(function, changing)
        if name in INSIDE:
            return function

        @wraps(function)
        def met(*args: Any, **kwargs: Any) -> Any:
            given: list[Any] = []

            def run(*args: Any, **kwargs: Any) -> Any:
                given.append(function(*args, **kwargs))
                return given[0]

            read = partial(eager, given) if function is default else unknown(name)
            return called(run, args, kwargs, read, doors.eager)

        return met

    AttentionInterface.get_interface = get_interface
    AttentionInterface.__getitem__ = getitem

    def back() -> None:
        AttentionInterface.get_interface = original
        AttentionInterface.__getitem__ = looked_up

    return back


def _alone(function: Callable[..., Any], changing: Callable[[], bool]) -> Callable[..., Any]:
    """Refuse weights beside an output that was changed: they are computed apart from it."""

    @wraps(function)
    def met(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        if out[1] is not None and changing():
            raise ValueError(
                "output_attentions with attn_implementation='regard' gives weights that an intervention does not "
                "reach; leave it out and use regard.capture, or load the model with 'eager'"
            )
        return out

    return met


def eager(
    given: list[Any],
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
) -> Call:
    """What the arguments say by the names they share in all models; `given` holds what the function returned. That a
    model does just this is not known before its weights are compared with ours."""
    weights = given[0][1] if isinstance(given[0], tuple) and len(given[0]) > 1 else None
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
    return Call(query, key, spec, "transformers, eager", weights, value, rate)


def unknown(name: str) -> Callable[..., Call]:
    """A function that cannot be looked into."""

    def read(*args: Any, **kwargs: Any) -> Call:
        raise ValueError(f"attn_implementation={name!r} cannot be looked into; load the model with 'sdpa' or 'eager'")

    return read
