"""effect: what a change of attention does to the output of a model, head by head."""

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.inspection.hooks.call import Call
from regard.inspection.hooks.names import Names
from regard.inspection.hooks.taps import altering, listening
from regard.inspection.interventions.block import NOTHING, intervene
from regard.inspection.interventions.change import Change
from regard.inspection.interventions.choice import Choice, Heads, Layers
from regard.inspection.interventions.metrics import Input, Metrics, measured, named
from regard.inspection.records import Cell, Estimate
from regard.inspection.statistics import mean
from regard.inspection.tidy import Tidy
from regard.progress import display, report


class Place(NamedTuple):
    """The cells of a row, and what is chosen for it."""

    layer: str
    head: int | str
    layers: Layers
    heads: Heads


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
) -> Tidy:
    """How far the output moves when heads are changed: a row for each head; with `heads=None` or numbers, for each
    layer; `together`, one row for all. The largest comes first after `.sort(...)`.

    `inputs` are several: each a tensor, a tuple of arguments or a mapping of keyword arguments. `metric` names what is
    measured: "change", the mean |Δ| of the output; "kl", KL(p ‖ p changed) in nats; "loss", the change of the model's
    own loss; "next", the change of the loss on the next token; or a function of both outputs. `at="last"` looks at the
    last position that is no padding only. Cells are means over all batch rows of all inputs, with the 95 % interval of
    Student's t.
    """
    if model.training:
        raise ValueError("the model is in training, where dropout changes its output too; call model.eval() first")
    if at not in ("all", "last"):
        raise ValueError(f"at must be 'all' or 'last', got {at!r}")
    if isinstance(inputs, Tensor | dict):
        raise TypeError(f"inputs must be a list of inputs, got one {type(inputs).__name__}; write [input]")
    given = [Input.of(one) for one in inputs]
    if not given:
        raise ValueError("effect needs at least one input")
    choice = Choice.of(model, layers, None if heads == "each" else heads)
    intervene(model, *changes)  # checks them
    places, found = _runs(model, given, changes, choice, heads == "each", together, metric, at == "last")
    shown = ("layers", "heads") if together else ("layer", "head")
    names = list(found[0])
    rows: list[list[Cell]] = [
        [place.layer, place.head, *(_cell(torch.cat(lists[name])) for name in names)]
        for place, lists in zip(places, found, strict=True)
    ]
    title = f"effect of {', '.join(map(repr, changes))} on {type(model).__name__}"
    return Tidy([*shown, *names], rows, title=title)


def _runs(
    model: nn.Module,
    given: list[Input],
    changes: tuple[Change, ...],
    choice: Choice,
    each: bool,
    together: bool,
    metric: Metrics,
    last: bool,
) -> tuple[list[Place], list[dict[str, list[Tensor]]]]:
    """The rows of the table, and what each metric finds in each, input by input. The model as it is runs once for each
    input; its first run tells the layers and their heads."""
    counts: dict[str, int] = {}
    with altering(model, lambda: None), ExitStack() as stack:  # the taps stay set from run to run
        hearing = stack.enter_context(ExitStack())
        hearing.enter_context(listening(model, _counting(model, counts)))
        for number, one in enumerate(given):
            before = model(*one.args, **one.kwargs)
            if number == 0:
                hearing.close()
                places = _places(model, counts, choice, each, together)
                found: list[dict[str, list[Tensor]]] = [{} for _ in places]
                stack.enter_context(display())
            for row, (place, lists) in enumerate(zip(places, found, strict=True), 1):
                with intervene(model, *changes, layers=place.layers, heads=place.heads):
                    after = model(*one.args, **one.kwargs)
                for name, how in named(metric, before).items():
                    lists.setdefault(name, []).append(measured(how, one, before, after, last).cpu())
                report("changed runs of the model", number * len(places) + row, len(given) * len(places), "runs")
    return places, found


def _counting(model: nn.Module, counts: dict[str, int]) -> Callable[[Callable[[], Call]], None]:
    """Writes down the heads of every layer that runs; 0 for one that cannot be read, and so not changed."""
    names = Names(model)

    def hear(read: Callable[[], Call]) -> None:
        place = names.running()
        if place is None or place.path in counts:
            return
        try:
            query = read().query
        except (TypeError, ValueError):
            counts[place.path] = 0
            return
        counts[place.path] = query.shape[-3] if query.ndim > 2 else 1

    return hear


def _places(model: nn.Module, counts: dict[str, int], choice: Choice, each: bool, together: bool) -> list[Place]:
    """The rows of the table."""
    if not counts:
        raise ValueError(NOTHING.format(type(model).__name__))
    choice.check(list(counts))
    chosen = [path for number, path in enumerate(counts) if choice.wants(number, path)]
    said = "all" if choice.heads is None else ", ".join(map(str, choice.heads))
    if together:
        return [Place(_said(len(chosen), len(counts)), said, chosen, choice.heads)]
    if not each:
        return [Place(path, said, path, choice.heads) for path in chosen]
    return [Place(path, head, path, head) for path in chosen for head in range(counts[path] or 1)]


def _said(chosen: int, count: int) -> str:
    return "all" if chosen == count else f"{chosen} of {count}"


def _cell(values: Tensor) -> Estimate:
    if values.numel() < 2:
        return Estimate(float(values.mean()), math.nan, math.nan)
    return mean(values)
