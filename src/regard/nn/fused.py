"""Fused: linear layers that read the same input, computed as one product when their weights lie together."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

#: lists of children of a module that read the same input
GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate", "up"))


def fuse(model: nn.Module) -> nn.Module:
    """Lay the weights of projections that read the same input one after another, and give the model back.

    Without gradients each group is then one product, which a single token feels most. Values, names and state dicts
    stay; what moves the parameters later (`.to`, a copy) undoes it, and costs nothing but the speed.
    """
    for module in model.modules():
        for group in GROUPS:
            layers = [child for name in group if type(child := getattr(module, name, None)) is nn.Linear]
            kinds = {(layer.in_features, layer.weight.dtype, layer.weight.device) for layer in layers}
            if len(layers) < len(group) or len(kinds) > 1 or any(layer.bias is not None for layer in layers):
                continue
            whole = torch.cat([layer.weight.detach() for layer in layers])
            for layer, part in zip(layers, whole.split([layer.out_features for layer in layers]), strict=True):
                layer.weight.data = part
    return model


def products(x: Tensor, layers: Sequence[nn.Linear]) -> Sequence[Tensor]:
    """What each layer makes of `x`, in one product where that is possible."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not _together(layers):
        return [layer(x) for layer in layers]
    first, sizes = layers[0].weight, [layer.out_features for layer in layers]
    whole = first.as_strided((sum(sizes), first.shape[1]), first.stride())
    parts: Sequence[Tensor] = functional.linear(x, whole).split(sizes, -1)
    return parts


def _together(layers: Sequence[nn.Linear]) -> bool:
    """Whether the weights are parts of one matrix, and no layer has hooks of its own."""
    if any(type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks for layer in layers):
        return False
    if any(layer.bias is not None for layer in layers):
        return False
    weights = [layer.weight for layer in layers]
    return (
        all(
            left.data_ptr() + left.nbytes == right.data_ptr() and left.is_contiguous() and left.dtype == right.dtype
            for left, right in pairwise(weights)
        )
        and weights[0].untyped_storage().data_ptr() == weights[-1].untyped_storage().data_ptr()
    )
