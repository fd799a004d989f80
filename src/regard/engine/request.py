"""Request: one call of attention, checked and in the axes that engines use; Result: what they give back."""

from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

import torch
from torch import Tensor

from regard import arrays, checks
from regard.arrays import Array
from regard.cached import cached_property
from regard.engine.arguments import (
    FULL,
    Shapes,
    aux_of,
    bias_of,
    fold,
    mask_of,
    numbers_fit,
    temperature_of,
    tensors_of,
    wrong_normalizer,
    wrong_score,
)
from regard.spec.biases import Bias
from regard.spec.dropout import Dropout, drawn
from regard.spec.masks import Mask
from regard.spec.masks.extent import starts_of
from regard.spec.normalizers import Normalizer
from regard.spec.plane import Plane, Selection, constant
from regard.spec.scores import Score


@dataclass(frozen=True, eq=False)
class Aux:
    """What was asked for beside the output; per query head, before dropout, in nats. None where not asked.

    Of a call with NumPy arrays they are NumPy arrays too.
    """

    lse: Tensor | None = None
    entropy: Tensor | None = None
    peak: Tensor | None = None
    peak_at: Tensor | None = None
    received: Tensor | None = None
    distance: Tensor | None = None
    max_logit: Tensor | None = None

    def __repr__(self) -> str:
        shown = [
            f"{f.name}={tuple(getattr(self, f.name).shape)}" for f in fields(self) if getattr(self, f.name) is not None
        ]
        return f"Aux({', '.join(shown)})"


AUX = tuple(field.name for field in fields(Aux))


@dataclass(frozen=True, eq=False)
class Result:
    """`row_state` is the lse (softmax), a threshold (sparsemax) or a key (hard), for each query."""

    out: Tensor
    row_state: Tensor
    aux: Aux


@dataclass(frozen=True, eq=False)
class Request:
    """Queries are (batch, kv head, group, query, d_q); keys and values (batch, kv head, 1, key, width)."""

    query: Tensor
    key: Tensor
    value: Tensor
    score: Score
    mask: Mask
    bias: Bias | None
    temperature: float | Tensor
    normalizer: Normalizer
    dropout: Dropout | None
    aux: tuple[str, ...]
    plane: Plane
    shapes: Shapes
    #: tensors of the spec that backward reads again; autograd saves them and notices if they are changed in between
    buffers: tuple[Tensor, ...] = ()

    def hold_numbers(self) -> None:
        """Refuse meta and fake tensors: only `attend` itself has an answer for them, if all its inputs are such."""
        inputs = [("query", self.query), ("key", self.key), ("value", self.value)]
        parts = (("score", self.score), ("mask", self.mask), ("bias", self.bias), ("normalizer", self.normalizer))
        for name, tensor in (*inputs, *(named for part in parts for named in tensors_of(*part))):
            if not checks.has_numbers(tensor):
                raise ValueError(f"{name} is a meta or fake tensor, which holds a shape but no numbers")

    def sliced(self, selection: Selection) -> "Request":
        """The call of some batch rows, heads, rows and columns alone; CannotSliceError where a part has none."""
        plane = self.plane.sliced(selection)
        query = selection.tensor(self.query.flatten(1, 2), ("batch", "head", "query", None))
        key, value = (
            selection.tensor(tensor, ("batch", "kv head", None, "key", None)) for tensor in (self.key, self.value)
        )
        tau = self.temperature
        return replace(
            self,
            query=query.unflatten(1, (plane.kv_heads, plane.group)),
            key=key,
            value=value,
            score=self.score.sliced(selection),
            mask=self.mask.sliced(selection),
            bias=None if self.bias is None else self.bias.sliced(selection),
            temperature=selection.tensor(tau, ("head",)) if isinstance(tau, Tensor) else tau,
            normalizer=self.normalizer.sliced(selection),
            plane=plane,
            shapes=replace(
                self.shapes,
                leading=(plane.batch,),
                kv_heads=plane.kv_heads,
                group=plane.group,
                rank=4,
                queries=plane.queries,
                keys=plane.keys,
            ),
        )

    @property
    def dtype(self) -> torch.dtype:
        """What accumulates: at least float32."""
        return torch.promote_types(self.query.dtype, torch.float32)

    @cached_property
    def temperatures(self) -> float | Tensor:
        """τ as a float, or (kv head, group, 1, 1)."""
        if isinstance(self.temperature, Tensor) and self.temperature.numel() != 1:
            return self.temperature.to(self.dtype).view(self.plane.kv_heads, self.plane.group, 1, 1)
        if isinstance(self.temperature, Tensor):
            return self.temperature.to(self.dtype).view(1, 1, 1, 1)
        return self.temperature

    @cached_property
    def sink(self) -> Tensor | None:
        """The sink's logit, (1 or kv head, 1 or group, 1)."""
        sink = getattr(self.normalizer, "sink", None)
        if sink is None:
            return None
        sink = (sink if isinstance(sink, Tensor) else constant([sink], self.dtype)).to(self.query.device, self.dtype)
        return sink.view(self.plane.kv_heads, self.plane.group, 1) if sink.numel() != 1 else sink.view(1, 1, 1)


class Spec(TypedDict, total=False):
    """The keyword arguments that say what is computed, the same for every public function."""

    score: Score
    mask: Mask | Tensor | Array | str | None
    bias: Bias | Tensor | Array | None
    temperature: float | Tensor | Array
    normalizer: Normalizer
    dropout: float | Dropout
    query_start: int | Tensor | Array | None


def depends_on_positions(score: Score, mask: Mask, bias: Bias | None, queries: int, aux: tuple[str, ...]) -> bool:
    """Whether a call with that many queries depends on where they stand."""
    biased = bias is not None and bias.positional
    return biased or score.positional or mask.positional_for(queries) or "distance" in aux


def request(
    query: Any,
    key: Any,
    value: Any,
    *,
    score: Score,
    mask: Mask | Tensor | Array | str | None,
    bias: Bias | Tensor | Array | None,
    temperature: float | Tensor | Array,
    normalizer: Normalizer,
    dropout: float | Dropout,
    query_start: int | Tensor | Array | None,
    aux: tuple[str, ...] | str,
    key_start: int = 0,
    shapes: Shapes | None = None,
) -> Request:
    """Check a call before any work is done and fold its axes. Key 0 stands at `key_start`.

    `shapes` are those of the whole call where query, key and value are a shard of it.
    """
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        (query, key, value), _ = arrays.inputs(("query", "key", "value"), (query, key, value))
    shapes = Shapes.of(query, key, value) if shapes is None else shapes
    if not isinstance(score, Score):
        raise wrong_score(score)
    if not isinstance(normalizer, Normalizer):
        raise wrong_normalizer(normalizer)
    visible = FULL if mask is None else mask_of(mask, shapes)
    added = None if bias is None else bias_of(bias, shapes)
    named = [*tensors_of("score", score), *tensors_of("normalizer", normalizer), *tensors_of("bias", added)]
    if isinstance(mask, Tensor):
        named.append(("mask", mask))
    if named:
        checks.same_device(named, query.device)
    score.check(query.shape[-1], key.shape[-1], shapes.kv_heads, shapes.group)
    heads = shapes.kv_heads * shapes.group
    normalizer.check(heads)
    aux = () if type(aux) is tuple and not aux else aux_of(aux, AUX, normalizer)
    dtype = torch.promote_types(query.dtype, torch.float32)
    numbers_fit(score, dtype)
    numbers_fit(normalizer, dtype)
    temperature = temperature_of(temperature, heads, query.device, dtype)
    if query_start is None and not torch.compiler.is_compiling() and shapes.queries == shapes.keys:
        starts = torch.zeros(1, device="cpu", dtype=torch.int64)
    else:
        positional = depends_on_positions(score, visible, added, shapes.queries, aux)
        starts = starts_of(query_start, shapes.queries, shapes.keys, shapes.batch, visible, positional)
    sizes = (shapes.batch, shapes.kv_heads, shapes.group, shapes.queries, shapes.keys)
    plane = Plane(*sizes, starts, key_start, query.device)
    visible.check(plane)
    if added is not None:
        added.check(plane)
    held = [named for part in (score, visible, added) for named in tensors_of("", part, functions=True)]
    return Request(
        query=fold(query, shapes, shapes.group),
        key=fold(key, shapes, 1),
        value=fold(value, shapes, 1),
        score=score,
        mask=visible,
        bias=added,
        temperature=temperature,
        normalizer=normalizer,
        dropout=None if type(dropout) is float and dropout == 0.0 else drawn(dropout),
        aux=aux,
        plane=plane,
        shapes=shapes,
        buffers=tuple({id(tensor): tensor for _, tensor in held}.values()),
    )
