"""The attention half: one layer's call, served by `attend`."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.engine import context
from regard.engine.attend import attend
from regard.engine.request import Spec
from regard.hf.calls import note
from regard.hf.tensor import MaskTensor
from regard.hf.weights import asked, weights
from regard.inspection.matrix import AttentionMatrix
from regard.spec.masks import Causal, Dense, Mask
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot, Score, SoftCapped

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
    note(module)
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
    seen = weights(query, key, spec, attentions) if asked(more) else None
    dropped = float(dropout) if module.training else 0.0
    spec["dropout"] = 0.0 if dropped == 1.0 else dropped
    out = attend(query, key, value, **spec)
    return (out * 0.0 if dropped == 1.0 else out).transpose(1, 2).contiguous(), seen


def _masked(query: Tensor, key: Tensor, given: Tensor | None, causal: bool, indices: Tensor | None) -> Spec:
    """The mask as `attend` takes it, or the bias that an additive one is."""
    size = (query.shape[2], key.shape[2])
    spec: Spec = {"query_start": 0}
    if isinstance(given, MaskTensor) and given.held.bools is None and tuple(given.shape[2:]) == size:
        spec["mask"], spec["query_start"] = given.held.mask, given.held.start
    elif isinstance(given, MaskTensor):
        spec["mask"] = Dense(given.held.built())
    elif given is not None and given.is_floating_point():
        spec["bias"] = given
    elif given is not None:
        spec["mask"] = given
    elif causal and size[0] > 1:
        spec["mask"] = Causal()  # as torch counts it: query 0 stands at key 0
    if indices is not None:
        chosen = Dense(_chosen(indices, size[1]))
        spec["mask"] = _mask(spec.get("mask")) & chosen if spec.get("mask") is not None else chosen
    return spec


def _mask(mask: Any) -> Mask:
    return mask if isinstance(mask, Mask) else Dense(mask)


def _chosen(indices: Tensor, keys: int) -> Tensor:
    """Keys that an indexer chose, (batch, query, k), as bools (batch, 1, query, key)."""
    none = torch.zeros((*indices.shape[:-1], keys), dtype=torch.bool, device=indices.device)
    return none.scatter(-1, indices.long(), True).unsqueeze(1)
