"""The attention half: one layer's call, served by `attend`, and the weights if the model is asked for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.engine import context
from regard.engine.attend import attend
from regard.engine.request import Request, Spec, request
from regard.hf.tensor import MaskTensor
from regard.inspection.matrix import AttentionMatrix, matrix
from regard.inspection.matrix.gradients import needed
from regard.spec.masks import Causal, Dense, Mask
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot, Score, SoftCapped

_open_lists: ContextVar[tuple[list[nn.Module], ...]] = ContextVar("regard_hf_calls", default=())


@contextmanager
def counting() -> Iterator[list[nn.Module]]:
    """The attention modules that call regard inside the block, in order, once for each call.

    >>> with counting() as calls:  # doctest: +SKIP
    ...     model(**inputs)
    >>> calls == [layer.self_attn for layer in model.layers]  # doctest: +SKIP
    True
    """
    calls: list[nn.Module] = []
    token = _open_lists.set((*_open_lists.get(), calls))
    try:
        yield calls
    finally:
        _open_lists.reset(token)


def attentions_requested(kwargs: dict[str, Any]) -> bool:
    """Whether the model collects attentions: it says so, or hooks that record outputs are waiting for them."""
    from transformers.utils.output_capturing import _active_collector

    if kwargs.get("output_attentions"):
        return True
    collected = _active_collector.get()
    return collected is not None and any("attentions" in name for name in collected)


def weights(query: Tensor, key: Tensor, spec: Spec, how: Literal["dense", "matrix"]) -> Tensor | AttentionMatrix:
    """Weights before dropout: (batch, head, query, key) in the query's dtype, or a handle that builds none."""
    if how == "matrix":
        return matrix(query, key, **spec)
    options: dict[str, Any] = {"mask": None, "bias": None, **spec}
    call = request(query, key, key[..., :0], **options, temperature=1.0, dropout=0.0, aux=())
    with context.autocast_disabled(query.device):
        result = _formula(call) if needed(call) else matrix(query, key, **spec).dense(limit=None)
    return result.to(query.dtype)


def _formula(call: Request) -> Tensor:
    """The weights with their graph, which a handle's numbers do not have."""
    pairs = call.plane.all
    logits = call.score.formula(call.query.to(call.dtype), call.key.to(call.dtype), pairs)
    for term in () if call.bias is None else call.bias.terms():
        logits = logits + term.values(pairs).to(call.dtype)
    logits = torch.where(call.mask.visible(pairs), logits, -torch.inf)
    if call.sink is not None:
        logits = torch.cat([logits, call.sink.unsqueeze(-1).expand(*logits.shape[:-1], 1)], -1)
    some = (logits > -torch.inf).any(-1, keepdim=True)
    softmax = torch.softmax(torch.where(some, logits, 0.0), -1)[..., : call.plane.keys]
    return torch.where(some, softmax, 0.0).flatten(1, 2)


# what some layers hand to a kernel of their own instead of a mask
FOREIGN = {"block_indices": "a choice of key blocks", "cache": "a paged cache"}


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | Tensor | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    indices: Tensor | None = None,
    *,
    attentions: Literal["dense", "matrix"],
    **more: Any,
) -> tuple[Tensor, Tensor | AttentionMatrix | None]:
    """(batch, query, head, width), and the weights if the model was asked for them."""
    if not torch.compiler.is_compiling():  # a compiled graph records no calls
        for calls in _open_lists.get():
            calls.append(module)
    for name, what in FOREIGN.items():
        if more.get(name) is not None:
            raise ValueError(
                f"{type(module).__name__} passes {what} ({name}=), which regard does not serve; "
                "load the model with attn_implementation='eager'"
            )
    if context.autocast_enabled(query):
        query, key, value = (context.to_autocast(tensor) for tensor in (query, key, value))
    if isinstance(scaling, Tensor):
        query, scaling = query * scaling, 1.0
    score: Score = ScaledDot(None if scaling is None else float(scaling))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    spec = _masked(query, key, attention_mask, bool(causal), indices)
    if position_bias is not None:
        bias = spec.get("bias")
        spec["bias"] = position_bias if not isinstance(bias, Tensor) else position_bias + bias
    spec["score"] = score if softcap is None else SoftCapped(score, float(softcap))
    spec["normalizer"] = Softmax(sink=s_aux)
    returned = weights(query, key, spec, attentions) if attentions_requested(more) else None
    dropped = float(dropout) if module.training else 0.0
    spec["dropout"] = 0.0 if dropped == 1.0 else dropped
    out = attend(query, key, value, **spec)
    return (out * 0.0 if dropped == 1.0 else out).transpose(1, 2).contiguous(), returned


def _masked(query: Tensor, key: Tensor, given: Tensor | None, causal: bool, indices: Tensor | None) -> Spec:
    """The mask as `attend` takes it, or the bias that an additive one is."""
    size = (query.shape[2], key.shape[2])
    spec: Spec = {"query_start": 0}
    if isinstance(given, MaskTensor) and given.shared.bools is None and tuple(given.shape[2:]) == size:
        spec["mask"], spec["query_start"] = given.shared.mask, given.shared.start
    elif isinstance(given, MaskTensor):
        spec["mask"] = Dense(given.shared.materialize())
    elif given is not None and given.is_floating_point():
        spec["bias"] = given
    elif given is not None:
        spec["mask"] = given
    elif causal and size[0] > 1:
        spec["mask"] = Causal()  # as torch counts it: query 0 stands at key 0
    if indices is not None:  # keys that an indexer chose, (batch, query, k)
        none = torch.zeros((*indices.shape[:-1], size[1]), dtype=torch.bool, device=indices.device)
        chosen = Dense(none.scatter(-1, indices.long(), True).unsqueeze(1))
        mask: Any = spec.get("mask")
        spec["mask"] = chosen if mask is None else (mask if isinstance(mask, Mask) else Dense(mask)) & chosen
    return spec
