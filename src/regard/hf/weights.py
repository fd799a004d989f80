"""The weights a model is asked for: as numbers, or as a handle on them."""

from typing import Any, Literal

from torch import Tensor

from regard.engine.request import Spec
from regard.inspection.matrix import AttentionMatrix, matrix


def asked(kwargs: dict[str, Any]) -> bool:
    """Whether the model collects attentions: it says so, or hooks that record outputs are waiting for them."""
    from transformers.utils.output_capturing import _active_collector

    if kwargs.get("output_attentions"):
        return True
    collected = _active_collector.get()
    return collected is not None and any("attentions" in name for name in collected)


def weights(query: Tensor, key: Tensor, spec: Spec, how: Literal["dense", "matrix"]) -> Tensor | AttentionMatrix:
    """Weights before dropout: (batch, head, query, key) in the query's dtype, or a handle that builds none."""
    handle = matrix(query, key, **spec)
    return handle if how == "matrix" else handle.dense(limit=None).to(query.dtype)
