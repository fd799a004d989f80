"""Compare: whether a model's weights, where it has them at hand, are those that we compute."""

import torch
from torch import Tensor

from regard.engine.autocast import off
from regard.inspection.hooks.call import Call
from regard.inspection.matrix import matrix

LOOSEST = 0.25  # weights in half precision may be this far off, however large the logits are
CELLS = 1 << 24  # weights compared at once


def compare(call: Call) -> None:
    """Refuse a call whose weights, where the model has them, are not ours."""
    with off(call.query.device):
        ours = matrix(call.query, call.key, **call.spec)
        if call.weights is None:
            return
        theirs = call.weights
        if ours.shape != theirs.shape:
            raise ValueError(f"its weights are {tuple(theirs.shape)}, and queries and keys give {ours.shape}")
        height = max(1, CELLS * theirs.shape[-2] // max(1, theirs.numel()))
        found = [0.0]
        for first in range(0, theirs.shape[-2], height):
            rows = slice(first, first + height)
            own, given = ours[(..., rows, slice(None))], theirs[..., rows, :]
            wrong = (own - given * (1.0 - call.rate)).abs()
            if call.rate:
                wrong = torch.where(given == 0, 0.0, wrong)
            # where a model has no numbers any more, we need not have any either
            wrong = torch.where(_blind(call, rows) | (own.isnan() & given.isnan()), 0.0, wrong)
            found += [float(wrong.max())] if wrong.numel() else []
        worst = float(torch.tensor(found, device="cpu", dtype=torch.float64).max())  # NaN if one is
        if not worst <= (allowed := _allowed(call)):
            raise ValueError(
                f"its weights are {worst:.1e} away from those of its queries, keys, mask and scale, more than "
                f"{allowed:.1e}: it does something to them that cannot be seen"
            )


def _blind(call: Call, rows: slice) -> Tensor:
    """Rows that see nothing: what a model has there are not weights, and in some types not even numbers."""
    bias = call.spec.get("bias")
    if not isinstance(bias, Tensor) or bias.ndim < 2:
        return torch.zeros((), dtype=torch.bool, device=call.query.device)
    table = bias[..., rows, :] if bias.shape[-2] > 1 else bias
    return (table <= 0.5 * torch.finfo(bias.dtype).min).all(-1, keepdim=True)


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
