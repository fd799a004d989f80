"""Metrics: how far the output of a changed run is from that of the model as it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

Metric = Callable[[Any, Any], Tensor | float]  # (output, output of the changed model): a number, or one for each row
Metrics = str | Metric | Sequence[str] | Mapping[str, str | Metric] | None
NAMES = ("change", "kl", "loss", "next")


@dataclass(frozen=True, eq=False)
class Input:
    """What the model is called with."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @classmethod
    def of(cls, given: Any) -> "Input":
        """A mapping is keyword arguments, a tuple positional ones, anything else the only argument."""
        if isinstance(given, Mapping):
            return cls((), dict(given))
        return cls(given if isinstance(given, tuple) else (given,), {})

    @property
    def ids(self) -> Tensor | None:
        """The tokens, (batch, length), if it has any."""
        given = self.kwargs.get("input_ids", self.args[0] if self.args else None)
        return given if isinstance(given, Tensor) and given.ndim == 2 and not given.is_floating_point() else None

    def places(self, size: torch.Size) -> Tensor:
        """Which positions (batch, length) of an output count: those with labels, else those that are no padding."""
        labels, mask = self.kwargs.get("labels"), self.kwargs.get("attention_mask")
        if isinstance(labels, Tensor) and labels.shape == size:
            return labels != -100
        if isinstance(mask, Tensor) and mask.shape == size:
            return mask != 0
        return torch.ones(size, dtype=torch.bool, device="cpu")


def tensor_of(output: Any) -> Tensor:
    """The logits of an output; else its last hidden state, or the tensor that it is or that comes first in it."""
    for name in ("logits", "last_hidden_state"):
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    while isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the model returns a {type(output).__name__} without logits; give a metric that takes two of them: "
            "metric=lambda before, after: ..."
        )
    return output


def named(metrics: Metrics, output: Any) -> dict[str, str | Metric]:
    """The metrics by their names; without any, those that the kind of output has."""
    if metrics is None:
        logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
        metrics = ["change"] + ["kl"] * (logits is not None) + ["loss"] * (_loss(output) is not None)
    if isinstance(metrics, str):
        metrics = [metrics]
    if callable(metrics):
        return {getattr(metrics, "__name__", "metric").replace("<lambda>", "metric"): metrics}
    found: dict[str, str | Metric] = {}
    found |= metrics if isinstance(metrics, Mapping) else {str(name): name for name in metrics}
    for name, metric in found.items():
        if not callable(metric) and metric not in NAMES:
            raise ValueError(f"metric must be a function or one of {', '.join(NAMES)}, got {metric!r} for {name!r}")
    return found


def measured(metric: str | Metric, given: Input, before: Any, after: Any, last: bool) -> Tensor:
    """One number for each batch row, or one for all."""
    if callable(metric):
        return torch.as_tensor(metric(before, after), device="cpu").detach().double().reshape(-1)
    if metric == "loss":
        losses = _loss(before), _loss(after)
        if losses[0] is None or losses[1] is None:
            raise ValueError("the model returns no loss; give it labels=, or use the metric 'next'")
        return (losses[1].double() - losses[0].double()).reshape(-1)
    one, two = tensor_of(before), tensor_of(after)
    if metric == "next":
        return _next(given, two) - _next(given, one)
    if metric == "kl":
        one, two = (tensor.double().log_softmax(-1) for tensor in (one, two))
        apart = (one.exp() * (one - two)).sum(-1)
    else:
        apart = (one.double() - two.double()).abs()
        apart = apart.mean(-1) if apart.ndim > 1 else apart
    if apart.ndim < 2:
        return apart.reshape(-1)
    places = given.places(apart.shape[:2]).to(apart.device)
    if last:
        order = torch.arange(places.shape[1], device=places.device)
        places = places & (order == torch.where(places, order, -1).amax(1, keepdim=True))
    apart = apart.flatten(2).mean(-1) if apart.ndim > 2 else apart
    return torch.where(places, apart, 0.0).sum(1) / places.sum(1)


def _loss(output: Any) -> Tensor | None:
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return found if isinstance(found, Tensor) else None


def _next(given: Input, logits: Tensor) -> Tensor:
    """The loss of each row on its next tokens."""
    ids = given.ids
    if ids is None or logits.shape[:-1] != ids.shape:
        raise ValueError(
            "the metric 'next' needs token ids (batch, length) and logits (batch, length, vocabulary), got logits of "
            f"shape {tuple(logits.shape)}"
        )
    losses = cross_entropy(logits[:, :-1].double().transpose(1, 2), ids[:, 1:], reduction="none")
    places = given.places(ids.shape)[:, 1:].to(losses.device)
    return torch.where(places, losses, 0.0).sum(1) / places.sum(1)
