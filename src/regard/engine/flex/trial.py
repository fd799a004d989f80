"""Users' functions, tried on one pair: FlexAttention asks them pair by pair, other engines tile by tile."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_mask

from regard.spec.forms import called
from regard.spec.masks import Mask
from regard.spec.plane import Plane
from regard.spec.scores import Score

SIDE = 8  # rows and columns that functions are tried on


def tried(score: Score, mask: Mask, plane: Plane, precision: torch.dtype) -> None:
    """Refuse functions whose answers no engine takes, with the words of the others: torch would take some of them."""
    pairs = plane.pairs(slice(0, min(SIDE, plane.queries)), slice(0, min(SIDE, plane.keys)))
    with torch.no_grad():
        for leaf in mask.leaves():
            if leaf.functions:
                leaf.visible(pairs)
        size = (plane.batch, plane.kv_heads, plane.group, pairs.rows.stop, pairs.columns.stop)
        for fn in score.functions:
            called(fn, torch.zeros(size, dtype=precision, device=plane.device), pairs)


def mask_refused(fn: Callable[..., Any], device: torch.device) -> str | None:
    """None, or why a function of (b, h, i, j) does not answer for one pair."""

    def asked(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.as_tensor(fn(b, h, i, j), device=device)

    return _refused(asked, fn, device)


def score_refused(fn: Callable[..., Any], device: torch.device) -> str | None:
    """The same for a function of (score, b, h, i, j)."""

    def asked(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.as_tensor(fn(score, b, h, i, j), device=device)

    return _refused(asked, fn, device)


def _refused(asked: Callable[..., Tensor], fn: Callable[..., Any], device: torch.device) -> str | None:
    try:
        create_mask(asked, 1, 1, 1, 1, str(device))
    except Exception as failure:  # whatever a user's function may raise
        line = next(iter(str(failure).strip().splitlines()), type(failure).__name__)
        name = getattr(fn, "__name__", type(fn).__name__)
        return f"FlexAttention asks a function pair by pair, and {name} does not answer: {line}"
    return None
