"""Rollout: how much of each input token is in each token after several layers (Abnar & Zuidema, 2020)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.matrix.indexing import LIMIT

HELD = 1 << 24  # numbers of a block of rows that are carried down the layers


def rollout(matrices: Sequence[AttentionMatrix], *, rows: Any = None, residual: float = 0.5) -> Tensor:
    """The product of the layers' weights, heads averaged, with a share `residual` of each layer's input passed by.

    `matrices` go from the first layer to the last. `rows` are those of the last layer (an int, a slice or a list; None
    for all); the result is (…, row, key of the first layer). Rows are carried down through blocks of weights, so memory
    is that of the result and of one block, whatever the number of layers.
    """
    if not matrices:
        raise ValueError("rollout needs at least one matrix")
    if not 0.0 <= residual <= 1.0:
        raise ValueError(f"residual must lie between 0 and 1, got {residual}")
    for number, matrix in enumerate(matrices):
        if not isinstance(matrix, AttentionMatrix):
            raise TypeError(
                f"rollout takes AttentionMatrix, got {type(matrix).__name__} for layer {number}; "
                "weights that exist are wrapped by AttentionMatrix.from_weights"
            )
    for number, (below, above) in enumerate(pairwise(matrices)):
        if above.shape[-1] != below.shape[-2] or above.shape[:-3] != below.shape[:-3]:
            raise ValueError(
                f"the keys of one layer must be the queries of the layer below, got shapes {below.shape} and "
                f"{above.shape} for layers {number} and {number + 1}"
            )
    for number, matrix in enumerate(matrices):
        if matrix.ndim < 3:
            raise ValueError(f"layer {number} must be (…, head, query, key), got {matrix.shape}; heads are averaged")
        if residual and matrix.shape[-1] != matrix.shape[-2]:
            raise ValueError(f"with a residual, layer {number} must be square, got {matrix.shape[-2:]}; or residual=0")
    last = matrices[-1]
    chosen = torch.as_tensor(np.array(np.arange(last.shape[-2])[slice(None) if rows is None else rows]), device="cpu")
    flat = chosen.reshape(-1)
    count = torch.Size(last.shape[:-3]).numel() * len(flat) * matrices[0].shape[-1]
    if count > LIMIT:
        raise ValueError(f"this would build {count:,} numbers, more than {LIMIT:,}; ask for fewer rows")
    wide = max(matrix.shape[-1] for matrix in matrices)
    step = max(1, HELD // max(1, wide, torch.Size(last.shape[:-2]).numel() * last.shape[-1]))
    with torch.no_grad():
        parts = [_down(matrices, flat[first : first + step], residual) for first in range(0, len(flat), step)]
    empty = torch.zeros((*last.shape[:-3], 0, matrices[0].shape[-1]), dtype=last.dtype, device=last.device)
    whole = torch.cat([empty, *parts], -2)
    return whole if chosen.ndim else whole[..., 0, :]


def _down(matrices: Sequence[AttentionMatrix], rows: Tensor, residual: float) -> Tensor:
    """Some rows of the last layer, carried to the first."""
    last = matrices[-1]
    carried = (1.0 - residual) * last[..., rows, :].mean(-3)
    if residual:
        carried[..., torch.arange(len(rows), device="cpu"), rows] += residual
    for matrix in reversed(matrices[:-1]):
        through = (1.0 - residual) * matrix.times(carried)
        carried = residual * carried + through if residual else through
    result: Tensor = carried
    return result
