"""A case of the benchmark: sizes, inputs, and the call of `attend` that they belong to."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from regard.spec import masks
from regard.spec.masks import Mask
from regard.spec.masks.count import visible_pairs
from regard.spec.masks.extent import plane_of
from regard.spec.plane import Plane

Inputs = tuple[Tensor, ...]
Work = Callable[[Inputs], Tensor]


@dataclass(frozen=True)
class Shape:
    """The sizes of a call; `n` counts the keys, and the queries too unless they are given."""

    n: int
    d: int = 64
    heads: int = 8
    kv_heads: int | None = None
    queries: int | None = None
    wider: int = 1  # values are so many times as wide as keys
    batch: int = 1
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    @property
    def d_value(self) -> int:
        """Width of the values."""
        return self.d * self.wider

    @property
    def rows(self) -> int:
        """Queries."""
        return self.n if self.queries is None else self.queries

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads


def plain(shape: Shape, inputs: Inputs) -> dict[str, Any]:
    """No keywords: every query sees every key."""
    return {}


def attention_inputs(shape: Shape, draw: torch.Generator) -> Inputs:
    """Random query, key and value."""
    sizes = (
        (shape.heads, shape.rows, shape.d),
        (shape.key_heads, shape.n, shape.d),
        (shape.key_heads, shape.n, shape.d_value),
    )
    return tuple(torch.randn(shape.batch, *size, generator=draw).to(shape.dtype) for size in sizes)


@dataclass(frozen=True)
class Case:
    """`spec` makes the keywords of `attend` from sizes and inputs. A `layer` has a Linear before and after."""

    family: str
    what: str
    shape: Shape
    spec: Callable[[Shape, Inputs], dict[str, Any]] = plain
    draw: Callable[[Shape, torch.Generator], Inputs] = attention_inputs
    aux: tuple[str, ...] = ()
    backward: bool = False
    cold: bool = False  # every call reads keys and values that no cache holds
    layer: bool = False
    beside: str | None = None  # the plain case of ours that this one is also compared with

    @property
    def name(self) -> str:
        """Family, length and width."""
        return f"{self.family}-{self.shape.n}-{self.shape.d}"

    def sized(self, **sizes: Any) -> "Case":
        """The same with other sizes; those that are None stay as they are."""
        return replace(self, shape=replace(self.shape, **{k: v for k, v in sizes.items() if v is not None}))

    def inputs(self, seed: int = 0) -> Inputs:
        """Random inputs, the same for every contender."""
        found = self.draw(self.shape, torch.Generator().manual_seed(seed))
        return tuple(tensor.to(self.shape.device).requires_grad_(self.backward) for tensor in found)

    def mask(self) -> Mask:
        """The mask as a value."""
        given = self.spec(self.shape, self.inputs_like()).get("mask")
        return masks.Causal() if given == "causal" else masks.Full() if given is None else given

    def inputs_like(self) -> Inputs:
        """Inputs of the right sizes without numbers, for a spec that only looks at sizes."""
        tiny = self.draw(replace(self.shape, n=1, queries=1), torch.Generator())
        return tuple(tensor.detach() for tensor in tiny)

    def plane(self) -> Plane:
        """All pairs of the call."""
        shape = self.shape
        plane = plane_of(self.mask(), shape.rows, shape.n, shape.batch, shape.heads, shape.n - shape.rows)
        return replace(plane, device=torch.device(shape.device))

    def flops(self) -> float:
        """Useful operations: two per multiply-add over the visible pairs; five more products backward."""
        shape = self.shape
        pairs, _ = visible_pairs(self.mask(), self.plane())
        widths = 4 * shape.d + 3 * shape.d_value if self.backward else shape.d + shape.d_value
        width = shape.heads * shape.d
        around = 2.0 * shape.batch * shape.rows * width * 4 * width if self.layer else 0.0
        return 2.0 * pairs * widths + around

    def bytes_read(self) -> int:
        """Keys and values, once."""
        shape = self.shape
        return shape.batch * shape.key_heads * shape.n * (shape.d + shape.d_value) * shape.dtype.itemsize

    def sets(self, cache: int) -> int:
        """How many sets of inputs take turns: one, or enough that together they exceed twice the cache."""
        return max(2, math.ceil(2 * cache / self.bytes_read()) + 1) if self.cold else 1

    def around(self, attention: Work) -> Work:
        """The work as the case means it: attention itself, or a layer around it."""
        return partial(_layer, self.shape.heads, attention) if self.layer else attention


def layer_inputs(shape: Shape, draw: torch.Generator) -> Inputs:
    """Tokens, and the weights before and after attention."""
    width = shape.heads * shape.d
    tokens = torch.randn(shape.batch, shape.n, width, generator=draw)
    before, after = (torch.randn(rows, width, generator=draw) / width**0.5 for rows in (3 * width, width))
    return tokens.to(shape.dtype), before.to(shape.dtype), after.to(shape.dtype)


def _layer(heads: int, attention: Work, inputs: Inputs) -> Tensor:
    tokens, before, after = inputs
    query, key, value = linear(tokens, before).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    out = attention((query, key, value))
    return linear(out.transpose(1, 2).flatten(-2), after)
