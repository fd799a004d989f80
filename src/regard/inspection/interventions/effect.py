"""effect: how far the output of a model moves when attention is changed, head by head."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.inspection.hooks.call import AttentionCall, ModuleNames
from regard.inspection.hooks.intercept import intercepting
from regard.inspection.hooks.missed import Watch
from regard.inspection.hooks.selection import Heads, Layers, LayerSelection
from regard.inspection.interventions.base import Change
from regard.inspection.interventions.block import Intervention, check_layers, intervene, selected
from regard.inspection.records import Cell, Estimate, Table
from regard.inspection.statistics import mean
from regard.progress import display, report

Metric = Callable[[Any, Any], Tensor | float]  # (output, output of the changed model): a number, or one for each row
Metrics = str | Metric | Sequence[str] | Mapping[str, str | Metric] | None
NAMES = ("change", "kl", "loss", "next")


@dataclass(frozen=True, eq=False)
class ModelInput:
    """The arguments of a call of the model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @classmethod
    def of(cls, given: Any) -> "ModelInput":
        """A mapping is keyword arguments, a tuple positional ones, anything else the only argument."""
        if isinstance(given, Mapping):
            return cls((), dict(given))
        return cls(given if isinstance(given, tuple) else (given,), {})

    @property
    def ids(self) -> Tensor | None:
        """The tokens, (batch, length), if it has any."""
        given = self.kwargs.get("input_ids", self.args[0] if self.args else None)
        return given if isinstance(given, Tensor) and given.ndim == 2 and not given.is_floating_point() else None

    def counted(self, size: torch.Size) -> Tensor:
        """Which positions (batch, length) of an output count: those with labels, else those without padding."""
        labels, mask = self.kwargs.get("labels"), self.kwargs.get("attention_mask")
        if isinstance(labels, Tensor) and labels.shape == size:
            return labels != -100
        if isinstance(mask, Tensor) and mask.shape == size:
            return mask != 0
        return torch.ones(size, dtype=torch.bool, device="cpu")


def tensor_of(output: Any) -> Tensor:
    """The logits of an output; else its last hidden state, or the tensor that it is or that comes first in it."""
    for name in ("logits", "last_hidden_state"):
        value = _entry(output, name)
        if isinstance(value, Tensor):
            return value
    while isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the model returns a {type(output).__name__} without logits; give a metric that takes two of them: "
            "metric=lambda before, after: ..."
        )
    return output


def named(metrics: Metrics, output: Any) -> dict[str, str | Metric]:
    """The metrics by name; by default those that fit the output."""
    if metrics is None:
        metrics = ["change"] + ["kl"] * (_entry(output, "logits") is not None) + ["loss"] * (_loss(output) is not None)
    if isinstance(metrics, str):
        metrics = [metrics]
    if callable(metrics):
        return {getattr(metrics, "__name__", "metric").replace("<lambda>", "metric"): metrics}
    by_name: dict[str, str | Metric] = {}
    by_name |= metrics if isinstance(metrics, Mapping) else {str(name): name for name in metrics}
    for name, metric in by_name.items():
        if not callable(metric) and metric not in NAMES:
            raise ValueError(f"metric must be a function or one of {', '.join(NAMES)}, got {metric!r} for {name!r}")
    return by_name


def measured(metric: str | Metric, given: ModelInput, before: Any, after: Any, last: bool) -> Tensor:
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
    counted = given.counted(apart.shape[:2]).to(apart.device)
    if last:
        order = torch.arange(counted.shape[1], device=counted.device)
        counted = counted & (order == torch.where(counted, order, -1).amax(1, keepdim=True))
    apart = apart.flatten(2).mean(-1) if apart.ndim > 2 else apart
    return torch.where(counted, apart, 0.0).sum(1) / counted.sum(1)


def _loss(output: Any) -> Tensor | None:
    loss = _entry(output, "loss")
    return loss if isinstance(loss, Tensor) else None


def _entry(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _next(given: ModelInput, logits: Tensor) -> Tensor:
    """The loss of each row on its next tokens."""
    ids = given.ids
    if ids is None or logits.shape[:-1] != ids.shape:
        raise ValueError(
            "the metric 'next' needs token ids (batch, length) and logits (batch, length, vocabulary), got logits of "
            f"shape {tuple(logits.shape)}"
        )
    losses = cross_entropy(logits[:, :-1].double().transpose(1, 2), ids[:, 1:], reduction="none")
    counted = given.counted(ids.shape)[:, 1:].to(losses.device)
    return torch.where(counted, losses, 0.0).sum(1) / counted.sum(1)


@torch.no_grad()
def effect(
    model: nn.Module,
    inputs: Iterable[Any],
    *changes: Change,
    layers: Layers = None,
    heads: Heads | Literal["each"] = "each",
    together: bool = False,
    metric: Metrics = None,
    at: Literal["all", "last"] = "all",
) -> Table:
    """How far the output moves when heads are changed: a row for each head; with `heads=None` or numbers, for each
    layer; `together`, one row for all. The largest comes first after `.sort(...)`.

    `inputs` are several: each a tensor, a tuple of arguments or a mapping of keyword arguments. `metric` names what is
    measured: "change", the mean |Δ| of the output; "kl", KL(p ‖ p changed) in nats; "loss", the change of the model's
    own loss; "next", the change of the loss on the next token; or a function of both outputs. `at="last"` measures
    the last position without padding only. Cells are means over all batch rows of all inputs, with the 95 % interval of
    Student's t.
    """
    if model.training:
        raise ValueError("the model is in training, where dropout changes its output too; call model.eval() first")
    if at not in ("all", "last"):
        raise ValueError(f"at must be 'all' or 'last', got {at!r}")
    if isinstance(inputs, Tensor | dict):
        raise TypeError(f"inputs must be a list of inputs, got one {type(inputs).__name__}; write [input]")
    given = [ModelInput.of(one) for one in inputs]
    if not given:
        raise ValueError("effect needs at least one input")
    selection = selected(model, layers, None if heads == "each" else heads)
    intervene(model, *changes)  # checks the changes
    heads_changed, values = _runs(model, given, changes, selection, heads == "each", together, metric, at == "last")
    columns = ("layers", "heads") if together else ("layer", "head")
    names = list(values[0])
    rows: list[list[Cell]] = [
        [changed.layer, changed.head, *(_estimate(torch.cat(by_metric[name])) for name in names)]
        for changed, by_metric in zip(heads_changed, values, strict=True)
    ]
    title = f"effect of {', '.join(map(repr, changes))} on {type(model).__name__}"
    return Table([*columns, *names], rows, title=title)


class ChangedHeads(NamedTuple):
    """The first cells of a row, and the layers and heads that are changed for it."""

    layer: str
    head: int | str
    layers: Layers
    heads: Heads


def _runs(
    model: nn.Module,
    given: list[ModelInput],
    changes: tuple[Change, ...],
    selection: LayerSelection,
    each: bool,
    together: bool,
    metric: Metrics,
    last: bool,
) -> tuple[list[ChangedHeads], list[dict[str, list[Tensor]]]]:
    """The rows of the table, and the values of each metric in each, input by input. The unchanged model runs once for
    each input; its first run tells the layers and their heads."""
    counts: dict[str, int] = {}
    with intercepting(model, modify=lambda: None), ExitStack() as stack:  # the hooks stay set from run to run
        counting = stack.enter_context(ExitStack())
        watch = Watch(model, "intervention")
        counting.enter_context(intercepting(model, _head_counter(model, counts), watch))
        for index, one in enumerate(given):
            before = model(*one.args, **one.kwargs)
            if index == 0:
                counting.close()
                check_layers(type(model).__name__, list(counts), selection, watch)
                rows = _rows(counts, selection, each, together)
                values: list[dict[str, list[Tensor]]] = [{} for _ in rows]
                stack.enter_context(display())
            for done, (row, by_metric) in enumerate(zip(rows, values, strict=True), 1):
                with Intervention(model, changes, selected(model, row.layers, row.heads)):
                    after = model(*one.args, **one.kwargs)
                for name, how in named(metric, before).items():
                    by_metric.setdefault(name, []).append(measured(how, one, before, after, last).cpu())
                report("changed runs of the model", index * len(rows) + done, len(given) * len(rows), "runs")
    return rows, values


def _head_counter(model: nn.Module, counts: dict[str, int]) -> Callable[[Callable[[], AttentionCall]], None]:
    """A callback that counts the heads of every layer that runs; 0 if its call cannot be parsed."""
    names = ModuleNames(model)

    def on_call(read: Callable[[], AttentionCall]) -> None:
        running = names.running()
        if running is None or running.path in counts:
            return
        try:
            query = read().query
        except (TypeError, ValueError):
            counts[running.path] = 0
            return
        counts[running.path] = query.shape[-3] if query.ndim > 2 else 1

    return on_call


def _rows(counts: dict[str, int], selection: LayerSelection, each: bool, together: bool) -> list[ChangedHeads]:
    chosen = [path for index, path in enumerate(counts) if selection.selects(index, path)]
    heads = "all" if selection.heads is None else ", ".join(map(str, selection.heads))
    if together:
        layers = "all" if len(chosen) == len(counts) else f"{len(chosen)} of {len(counts)}"
        return [ChangedHeads(layers, heads, chosen, selection.heads)]
    if not each:
        return [ChangedHeads(path, heads, path, selection.heads) for path in chosen]
    return [ChangedHeads(path, head, path, head) for path in chosen for head in range(counts[path] or 1)]


def _estimate(values: Tensor) -> Estimate:
    if values.numel() < 2:
        return Estimate(float(values.mean()), math.nan, math.nan)
    return mean(values)
