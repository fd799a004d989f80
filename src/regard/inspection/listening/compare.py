"""Compare: whether a model's weights, where it has them at hand, are those that we compute."""

import torch
from torch import Tensor

from regard.engine.autocast import off
from regard.inspection.listening.call import Call
from regard.inspection.matrix import matrix

LOOSEST = 0.25  # weights in half precision may be this far off, however large the logits are


def compare(call: Call) -> None:
    """Refuse a call whose weights, where the model has them, are not ours."""
    with off(call.query.device):
        ours = matrix(call.query, call.key, **call.spec)
        if call.weights is None:
            return
        theirs = call.weights
        if ours.shape != theirs.shape:
            raise ValueError(f"its weights are {tuple(theirs.shape)}, and queries and keys give {ours.shape}")
        wrong = (ours.dense(limit=None) - theirs * (1.0 - call.rate)).abs()
        worst = (
            float(torch.where(theirs == 0, 0.0, wrong).max() if call.rate else wrong.max()) if wrong.numel() else 0.0
        )
        if not worst <= (allowed := _allowed(call)):
            raise ValueError(
                f"its weights are {worst:.1e} away from those of its queries, keys, mask and scale, more than "
                f"{allowed:.1e}: it does something to them that cannot be seen"
            )


def _allowed(call: Call) -> float:
    """What rounding explains: a logit is as exact as its size allows."""
    assert call.weights is not None
    scale: float = getattr(call.spec.get("score"), "scale", None) or call.query.shape[-1] ** -0.5
    size = _longest(call.query) * _longest(call.key) * abs(scale)
    # models take the softmax in float32, whatever they are in
    eps = max(torch.finfo(dtype).eps for dtype in (call.weights.dtype, call.query.dtype, torch.float32))
    return min(LOOSEST, 8.0 * eps * (1.0 + size))


def _longest(tensor: Tensor) -> float:
    return float(tensor.float().norm(dim=-1).max()) if tensor.numel() else 0.0
