"""attend: the one function that computes attention; it checks, chooses an engine and calls it."""

import importlib
import os
import warnings
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack, overload

import torch
from torch import Tensor

from regard import arrays, checks
from regard.arrays import Array
from regard.engine import context, fork
from regard.engine.arguments import unknown_keywords
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


@overload
def attend(  # type: ignore[overload-overlap]
    query: Array, key: Array, value: Array, *, aux: tuple[()] = ..., engine: str = ..., **spec: Unpack[Spec]
) -> Array: ...


@overload
def attend(
    query: Array, key: Array, value: Array, *, aux: tuple[str, ...] | str, engine: str = ..., **spec: Unpack[Spec]
) -> tuple[Array, Aux]: ...


def attend(
    query: Any,
    key: Any,
    value: Any,
    *,
    score: Score = ScaledDot(),
    mask: Mask | Tensor | Array | str | None = None,
    bias: Bias | Tensor | Array | None = None,
    temperature: float | Tensor | Array = 1.0,
    normalizer: Normalizer = Softmax(),
    dropout: float | Dropout = 0.0,
    query_start: int | Tensor | Array | None = None,
    aux: tuple[str, ...] | str = (),
    engine: "str | Ring" = "auto",
    **unknown: object,
) -> Any:
    """Attention of any kind: normalizer((score(q, k) + bias) / τ) · v over the visible pairs.

    query: (batch, head, query, d_q); key: (batch, kv head, key, d_k); value: (batch, kv head, key, d_v).
    Leading axes broadcast; the key's heads divide the query's. Returns (batch, head, query, d_v), and an
    `Aux` when `aux` names any of lse, entropy, peak, peak_at, received, distance, max_logit. `engine` is a name, or a
    `Ring` if the inputs are shards that several processes hold. NumPy arrays give NumPy arrays; other objects with
    DLPack, such as JAX arrays, give tensors.

    >>> import torch, regard
    >>> q, k, v = torch.randn(3, 1, 8, 128, 64)
    >>> regard.attend(q, k, v, mask="causal").shape
    torch.Size([1, 8, 128, 64])
    """
    if unknown:
        raise unknown_keywords("attend", unknown, (*Spec.__annotations__, "aux", "engine"))
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
        if compiling and context.exporting_onnx():
            from regard.engine.onnx import attend_exported

            return attend_exported(query, key, value, spec, aux, engine)
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
            return cached
    if call_key is None and not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        options: dict[str, Any] = {
            "score": score,
            "mask": mask,
            "bias": bias,
            "temperature": temperature,
            "normalizer": normalizer,
        }
        options |= {"dropout": dropout, "query_start": query_start, "aux": aux, "engine": engine}
        return _attend_arrays((query, key, value), options)
    if call_key is None and (query.is_nested or key.is_nested or value.is_nested):
        parts = (score, mask, bias, temperature, normalizer, dropout, query_start)
        return _attend_nested((query, key, value), dict(zip(Spec.__annotations__, parts, strict=True)), aux, engine)
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
            return cached
    result: Result = module(chosen).run(checked)
    out = checked.shapes.unfold(result.out)
    if not checked.aux:
        return out
    named = {name: checked.shapes.unfold(getattr(result.aux, name)) for name in checked.aux}
    return out, Aux(**named)


def _attend_arrays(given: tuple[Any, Any, Any], options: dict[str, Any]) -> Any:
    """The call for arrays. NumPy arrays have no gradients, and know nothing of torch's autocast."""
    tensors, numpy = arrays.inputs(("query", "key", "value"), given)
    for name, tensor in zip(("query", "key", "value"), tensors, strict=True):
        checks.is_tensor(name, tensor)
    if not numpy:
        return attend(*tensors, **options)
    with torch.no_grad(), context.autocast_disabled(tensors[0].device):
        result: Any = attend(*tensors, **options)
    if isinstance(result, Tensor):
        return arrays.array_of(result, given[0])
    out, statistics = result
    named = {name: value for name, value in vars(statistics).items() if value is not None}
    return arrays.array_of(out, given[0]), Aux(**{name: arrays.array_of(x, given[0]) for name, x in named.items()})  # type: ignore[arg-type]


def _attend_nested(given: tuple[Tensor, Tensor, Tensor], spec: dict[str, Any], aux: Any, engine: str) -> Any:
    """The call for nested tensors of layout torch.jagged."""
    from regard.engine.nested import Padded

    padded = Padded.of(given, spec, aux)
    spec |= {"mask": padded.mask, "query_start": padded.query_start}
    return padded.results(attend(*padded.inputs, aux=aux, engine=engine, **spec))


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
