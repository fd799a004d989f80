"""Request: one call of attention, checked and in the axes that engines use; Result: what they give back."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypedDict

import torch
from torch import Tensor

from regard import checks
from regard.engine.shapes import Shapes, fold, starts_of
from regard.spec.biases import Bias
from regard.spec.biases import Dense as DenseBias
from regard.spec.dropout import Dropout, drawn
from regard.spec.masks import Causal, Full, Mask
from regard.spec.masks import Dense as DenseMask
from regard.spec.normalizers import Normalizer, Softmax
from regard.spec.plane import Plane
from regard.spec.scores import Score


@dataclass(frozen=True, eq=False)
class Aux:
    """What was asked for beside the output; per query head, before dropout, in nats. None where not asked."""

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

    @property
    def dtype(self) -> torch.dtype:
        """What accumulates: at least float32."""
        return torch.promote_types(self.query.dtype, torch.float32)

    @cached_property
    def temperatures(self) -> float | Tensor:
        """τ as a float, or (kv head, group, 1, 1)."""
        if isinstance(self.temperature, Tensor) and self.temperature.numel() > 1:
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
        sink = torch.as_tensor(sink, device=self.query.device).to(self.dtype)
        return sink.view(self.plane.kv_heads, self.plane.group, 1) if sink.numel() > 1 else sink.view(1, 1, 1)


class Spec(TypedDict, total=False):
    """The keyword arguments that say what is computed, the same for every public function."""

    score: Score
    mask: Mask | Tensor | str | None
    bias: Bias | Tensor | None
    temperature: float | Tensor
    normalizer: Normalizer
    dropout: float | Dropout
    query_start: int | Tensor | None


def request(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score,
    mask: Mask | Tensor | str | None,
    bias: Bias | Tensor | None,
    temperature: float | Tensor,
    normalizer: Normalizer,
    dropout: float | Dropout,
    query_start: int | Tensor | None,
    aux: tuple[str, ...] | str,
) -> Request:
    """Check a call before any work is done and fold its axes."""
    shapes = Shapes.of(query, key, value)
    if not isinstance(score, Score):
        raise TypeError(
            f"score must be one of regard.scores, got {type(score).__name__}; for 1/√d write scores.ScaledDot()"
        )
    if not isinstance(normalizer, Normalizer):
        raise TypeError(f"normalizer must be one of regard.normalizers, got {type(normalizer).__name__}")
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float, Dropout)):
        raise TypeError(f"dropout must be a float or Dropout(p, seed), got {type(dropout).__name__}")
    score.check(query.shape[-1], key.shape[-1], shapes.kv_heads, shapes.group)
    normalizer.check(shapes.heads)
    aux = _aux(aux, normalizer)
    visible, added = _mask(mask, shapes), _bias(bias, shapes)
    positional = score.positional or visible.positional or (added is not None and added.positional)
    starts = starts_of(query_start, shapes, visible, positional or "distance" in aux)
    plane = Plane(shapes.batch, shapes.kv_heads, shapes.group, shapes.queries, shapes.keys, starts, 0, query.device)
    visible.check(plane)
    if added is not None:
        added.check(plane)
    return Request(
        query=fold(query, shapes, shapes.group),
        key=fold(key, shapes, 1),
        value=fold(value, shapes, 1),
        score=score,
        mask=visible,
        bias=added,
        temperature=_temperature(temperature, shapes.heads),
        normalizer=normalizer,
        dropout=drawn(dropout),
        aux=aux,
        plane=plane,
        shapes=shapes,
    )


def _mask(mask: object, shapes: Shapes) -> Mask:
    if mask is None:
        return Full()
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, str):
        if mask == "causal":
            return Causal()
        raise ValueError(f"mask={mask!r} is not known; the one short name is 'causal', the others are in regard.masks")
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = checks.dtype(mask) if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask must be a Mask or a bool tensor (True = visible), got {kind}; "
            "numbers that are added to the logits belong in bias="
        )
    return DenseMask(shapes.fold_leading(mask))


def _bias(bias: object, shapes: Shapes) -> Bias | None:
    if bias is None or isinstance(bias, Bias):
        return bias
    if not isinstance(bias, Tensor):
        raise TypeError(f"bias must be one of regard.biases or a float tensor, got {type(bias).__name__}")
    return DenseBias(shapes.fold_leading(bias))


def _temperature(temperature: float | Tensor, heads: int) -> float | Tensor:
    if isinstance(temperature, Tensor):
        if temperature.ndim > 1 or temperature.numel() not in (1, heads):
            raise ValueError(
                f"temperature must be a number or one for each of the {heads} query heads, "
                f"got shape {checks.shape(temperature)}"
            )
        checks.is_float("temperature", temperature)
        if not bool((temperature > 0).all()):
            raise ValueError(
                f"temperature must be above 0, got {float(temperature.detach().min())}; for its limit 0 use normalizers.Hard()"
            )
        return temperature
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
        raise TypeError(f"temperature must be a number or a tensor, got {type(temperature).__name__}")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be above 0, got {temperature}; for its limit 0 use normalizers.Hard()")
    return float(temperature)


def _aux(aux: tuple[str, ...] | str, normalizer: Normalizer) -> tuple[str, ...]:
    names = (aux,) if isinstance(aux, str) else tuple(aux)
    for name in names:
        if name not in AUX:
            raise ValueError(f"aux knows {', '.join(AUX)}; got {name!r}")
    if "lse" in names and not isinstance(normalizer, Softmax):
        raise ValueError(f"aux 'lse' belongs to Softmax, the normalizer is {normalizer!r}")
    return names
