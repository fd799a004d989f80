"""Shared cases on another device."""

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from regard.spec.part import Part
from regard.testing import Case


def on_device(case: Case, dtype: torch.dtype, device: str) -> tuple[list[Tensor], dict[str, Any], dict[str, Tensor]]:
    """`case.build(dtype)` from numbers of float32, on the device; masks stay where they are."""
    inputs, spec, leaves = case.build(dtype, through=torch.float32)
    there = {name: leaf.detach().to(device).requires_grad_() for name, leaf in leaves.items()}
    known = {id(leaf): there[name] for name, leaf in leaves.items()}
    stays = ("mask", "query_start")
    spec = {name: value if name in stays else _moved(value, known, device) for name, value in spec.items()}
    return [known[id(tensor)] for tensor in inputs], spec, there


def _moved(value: Any, leaves: dict[int, Tensor], device: str) -> Any:
    """A part of a spec with its leaves replaced, and its other tensors on the device."""
    if isinstance(value, Tensor):
        return leaves.get(id(value), value.to(device))
    if isinstance(value, tuple):
        return tuple(_moved(each, leaves, device) for each in value)
    if not isinstance(value, Part):
        return value
    part: Any = value
    held = {field.name: getattr(part, field.name) for field in fields(part)}
    if not any(isinstance(each, Tensor | Part | tuple) for each in held.values()):
        return value
    return replace(part, **{name: _moved(each, leaves, device) for name, each in held.items()})
