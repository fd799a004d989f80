"""attend: the one function that computes attention; it checks, chooses an engine and calls it."""

import importlib
import os
import warnings
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Unpack, overload

import torch
from torch import Tensor

from regard import checks
from regard.engine import context, fork
from regard.engine.context import active_transform, refuse_trace, refuse_vmap, tracing_state, transform_unsupported
from regard.engine.request import Aux, Request, Result, Spec, request
from regard.spec.biases import Bias
from regard.spec.dropout import Dropout
from regard.spec.masks import Mask
from regard.spec.normalizers import Normalizer, Softmax
from regard.spec.scores import ScaledDot, Score

if TYPE_CHECKING:
    from regard.engine.ring import Ring

# name: the module with `supports(request)` and `run(request)`, loaded when it is first needed
ENGINES = {
    "native": "regard.engine.native",
    "tiled": "regard.engine.tiled.engine",
    "sdpa": "regard.engine.sdpa",
    "flex": "regard.engine.flex",
    "reference": "regard.engine.reference",
}
# by device, the first that supports the request
AUTO = {"cpu": ("native", "tiled", "reference"), "cuda": ("sdpa", "flex", "tiled", "reference")}
SLOWER = ("tiled", "reference")


@overload
def attend(  # type: ignore[overload-overlap]
    query: Tensor, key: Tensor, value: Tensor, *, aux: tuple[()] = ..., engine: "str | Ring" = ..., **spec: Unpack[Spec]
) -> Tensor: ...


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    aux: tuple[str, ...] | str,
    engine: "str | Ring" = ...,
    **spec: Unpack[Spec],
) -> tuple[Tensor, Aux]: ...


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score = ScaledDot(),
    mask: Mask | Tensor | str | None = None,
    bias: Bias | Tensor | None = None,
    temperature: float | Tensor = 1.0,
    normalizer: Normalizer = Softmax(),
    dropout: float | Dropout = 0.0,
    query_start: int | Tensor | None = None,
    aux: tuple[str, ...] | str = (),
    engine: "str | Ring" = "auto",
) -> Tensor | tuple[Tensor, Aux]:
    """Attention of any kind: normalizer((score(q, k) + bias) / τ) · v over the visible pairs.

    query: (batch, head, query, d_q); key: (batch, kv head, key, d_k); value: (batch, kv head, key, d_v).
    Leading axes broadcast; the key's heads divide the query's. Returns (batch, head, query, d_v), and an
    `Aux` when `aux` names any of lse, entropy, peak, peak_at, received, distance, max_logit. `engine` is a name, or a
    `Ring` if the inputs are shards that several processes hold.

    >>> import torch, regard
    >>> q, k, v = torch.randn(3, 1, 8, 128, 64)
    >>> regard.attend(q, k, v, mask="causal").shape
    torch.Size([1, 8, 128, 64])
    """
    compiling = torch.compiler.is_compiling()
    casting = context.any_autocast() and context.autocast_enabled(query)
    if compiling or casting or not isinstance(engine, str):
        spec: Spec = {
            "score": score,
            "mask": mask,
            "bias": bias,
            "temperature": temperature,
            "normalizer": normalizer,
            "dropout": dropout,
            "query_start": query_start,
        }
        if casting:
            inputs = [context.to_autocast(tensor) for tensor in (query, key, value)]
            with context.autocast_disabled(query.device):
                return attend(*inputs, aux=aux, engine=engine, **spec)
        if not compiling and not isinstance(engine, str):
            if not hasattr(engine, "attend"):
                raise ValueError(f"engine must be 'auto' or one of {', '.join(ENGINES)}, or a Ring, got {engine!r}")
            return engine.attend(query, key, value, aux, spec)
        from regard.engine.operator import attend_traced

        return attend_traced(query, key, value, dict(spec), aux, engine)
    if tracing_state() is not None:
        refuse_trace()
    around, call_key = active_transform(), None
    if around is not None:
        refuse_vmap(around)
    elif aux == () and engine_name(engine) in ("auto", "native"):
        names, settings = (score, mask, bias, normalizer), (temperature, dropout, query_start)
        call_key = _call_cache().cache_key(query, key, value, names, settings)
        cached = None if call_key is None else _call_cache().cached_output(call_key, query, key, value, score)
        if cached is not None:
            return cached  # type: ignore[no-any-return]
    if call_key is None and not (_has_numbers(query) or _has_numbers(key) or _has_numbers(value)):
        from regard.engine.operator import attend_shapes

        parts = (score, mask, bias, temperature, normalizer, dropout, query_start)
        return attend_shapes(query, key, value, parts, aux)
    checked = request(
        query,
        key,
        value,
        score=score,
        mask=mask,
        bias=bias,
        temperature=temperature,
        normalizer=normalizer,
        dropout=dropout,
        query_start=query_start,
        aux=aux,
    )
    if call_key is None:  # a call with a key holds numbers
        checked.hold_numbers()
    chosen = choose(checked, engine)
    if call_key is not None and chosen == "native" and _call_cache().cache_call(call_key, checked, (query, key, value)):
        cached = _call_cache().cached_output(call_key, query, key, value, score)
        if cached is not None:
            return cached  # type: ignore[no-any-return]
    result: Result = module(chosen).run(checked)
    out = checked.shapes.unfold(result.out)
    if not checked.aux:
        return out
    named = {name: checked.shapes.unfold(getattr(result.aux, name)) for name in checked.aux}
    return out, Aux(**named)


def _has_numbers(tensor: object) -> bool:
    return not isinstance(tensor, Tensor) or checks.has_numbers(tensor)


def run(checked: Request, engine: str = "auto") -> Result:
    """Run a request on the engine of that name, which never falls back, or on the one `auto` chooses."""
    checked.hold_numbers()
    result: Result = module(choose(checked, engine)).run(checked)
    return result


@cache
def module(name: str) -> ModuleType:
    """The engine of that name."""
    if name != "native":  # which appends to OPENMP itself, if it uses torch's threads
        fork.OPENMP.append(True)
    return importlib.import_module(ENGINES[name])


@cache
def _call_cache() -> ModuleType:
    """The cache of native calls."""
    return importlib.import_module("regard.engine.native.call_cache")


def engine_name(engine: str) -> str:
    """The engine's name, from the environment if none is given; ValueError if there is no such engine."""
    name = os.environ.get("REGARD_ENGINE", "auto") if engine == "auto" else engine
    if name != "auto" and name not in list(ENGINES):
        source = "the environment's REGARD_ENGINE" if engine == "auto" else "engine"
        raise ValueError(f"{source} must be 'auto' or one of {', '.join(ENGINES)}, got {name!r}")
    return name


_told: set[str] = set()  # engines that were warned of


def choose(checked: Request, engine: str = "auto") -> str:
    """The name of the engine that will run: for `auto` the first that supports the request, with one warning if it is
    not a fast one."""
    engine = engine_name(engine)
    if engine != "auto":
        why_not = module(engine).supports(checked)
        if why_not is not None:
            raise ValueError(f"engine {engine!r} cannot do this: {why_not}")
        return engine
    device = checked.query.device.type
    reasons: dict[str, str] = {}
    for name in AUTO.get(device, AUTO["cpu"]):
        why_not = module(name).supports(checked) or (transform_unsupported() if name == "sdpa" else None)
        if why_not is None:
            break
        reasons[name] = why_not
    if name in SLOWER and device in AUTO and name not in _told:
        _told.add(name)
        fast = [other for other in reasons if other not in SLOWER][-1]
        warnings.warn(
            f"regard runs this on {name!r}, which is slower: {fast!r} cannot do it, because {reasons[fast]} "
            "(said once; regard.plan(...) tells it for any call)",
            stacklevel=3,
        )
    return name
