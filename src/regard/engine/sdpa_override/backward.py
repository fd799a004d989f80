"""Backward passes in a block: checkpointed layers run forward again there, and must meet the same functions."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from regard.engine.sdpa_override.asked import KINDS

FUNCTIONS = (Tensor.backward, torch.autograd.backward, torch.autograd.grad)


def listening(mode: TorchFunctionMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call with the mode on.

    torch switches a mode off while it handles a call that was given tensors. Of a tensor's edge in the graph it takes
    no notice, and means the same by it.
    """
    edges = [_edges(argument) for argument in args[: 2 if func is torch.autograd.grad else 1]]
    named = {name: _edges(value) if name == "inputs" and value is not None else value for name, value in kwargs.items()}
    lost = None in edges or (named.get("inputs") is None and kwargs.get("inputs") is not None)
    if lost or kwargs.get("materialize_grads"):
        return func(*args, **kwargs)
    if func is Tensor.backward:
        func, named["grad_tensors"] = torch.autograd.backward, named.pop("gradient", None)
    with mode:
        return func(*edges, *args[len(edges) :], **named)


def _edges(given: Any) -> tuple[GradientEdge, ...] | None:
    """One for each tensor; None if one has no place in a graph, which torch reports, or answers for itself."""
    found = []
    for one in (given,) if isinstance(given, Tensor | GradientEdge) else given:
        if isinstance(one, Tensor):
            if type(one) not in KINDS or not one.requires_grad:
                return None
            one = get_gradient_edge(one)
        found.append(one)
    return tuple(found)
