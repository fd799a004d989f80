"""Fingerprint: a short text that changes with anything a head's weights depend on."""

import hashlib
from typing import Any

import torch
from torch import Tensor

from regard.inspection.matrix.source import Computed, Source
from regard.map.cut import Call
from regard.spec.serialize import Held, encoded, storable


def of_call(call: Call) -> str:
    """Of a head on the native engine."""
    native, plane = call.native, call.native.plane
    numbers = (native.scale, native.cap, native.phi, plane.queries, plane.keys, plane.key_start, plane.starts.tolist())
    return _hashed(numbers, native.mask, native.slopes, *call.inputs)


def of_source(source: Source, lane: int) -> str | None:
    """Of any head; None if a function has a part in it."""
    if not isinstance(source, Computed):
        return _hashed((lane,), source.weights[lane])  # type: ignore[attr-defined]
    asked = source.request
    parts = (asked.score, asked.mask, asked.bias, asked.normalizer, asked.temperature)
    if not all(storable(part) for part in parts):
        return None
    numbers = (lane, asked.plane.key_start, asked.plane.starts.tolist())
    return _hashed(numbers, *parts, asked.query, asked.key)


def _hashed(*parts: Any) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Tensor):
            _add(found, part)
            continue
        held = Held([], [], [])
        text = encoded(part, held) if storable(part) else repr(part)
        found.update(f"{text} {held.integers} {held.floats};".encode())
        for tensor in held.tensors:
            _add(found, tensor)
    return found.hexdigest()


def _add(found: Any, tensor: Tensor) -> None:
    plain = tensor.detach().cpu().contiguous()
    found.update(f"{tuple(plain.shape)} {plain.dtype}:".encode())
    if plain.numel():
        found.update(plain.reshape(-1).view(torch.uint8).numpy())
