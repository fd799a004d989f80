"""effect: what a change of attention does to the output of a model, head by head."""

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.inspection.intervention.block import intervene
from regard.inspection.intervention.change import Change
from regard.inspection.intervention.choice import Choice, Heads, Layers
from regard.inspection.intervention.metrics import Input, Metrics, measured, named
from regard.inspection.intervention.progress import Progress
from regard.inspection.listening.altered import Wanted
from regard.inspection.listening.draft import Draft
from regard.inspection.listening.names import Names
from regard.inspection.listening.taps import altering
from regard.inspection.records import Cell, Estimate
from regard.inspection.statistics import mean
from regard.inspection.tidy import Tidy

Place = tuple[str, int | str, Layers, Heads]  # the cells of a row, and what is chosen for it


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
    intervene(model, *changes, layers=layers, heads=None if heads == "each" else heads)  # checks them
    with altering(model, lambda: None):  # keeps the taps set from run to run
        places = _places(model, given[0], layers, heads, together)
        found = _runs(model, given, changes, places, metric, at == "last")
    shown = ("layer", "head") if not together else ("layers", "heads")
    names = list(next(iter(found.values())))
    rows: list[list[Cell]] = [
        [*place[:2], *(_cell(torch.cat(found[place[:2]][name])) for name in names)] for place in places
    ]
    title = f"effect of {', '.join(map(repr, changes))} on {type(model).__name__}"
    return Tidy([*shown, *names], rows, title=title)


def _runs(
    model: nn.Module,
    given: list[Input],
    changes: tuple[Change, ...],
    places: list[Place],
    metric: Metrics,
    last: bool,
) -> dict[tuple[str, int | str], dict[str, list[Tensor]]]:
    """What each metric finds in each place, input by input; the model as it is runs once for each."""
    found: dict[tuple[str, int | str], dict[str, list[Tensor]]] = {}
    with Progress(len(given) * (len(places) + 1)) as progress:
        for one in given:
            before = model(*one.args, **one.kwargs)
            progress.step()
            for row, column, layers, heads in places:
                with intervene(model, *changes, layers=layers, heads=heads):
                    after = model(*one.args, **one.kwargs)
                lists = found.setdefault((row, column), {})
                for name, metric_of in named(metric, before).items():
                    lists.setdefault(name, []).append(measured(metric_of, one, before, after, last).cpu())
                progress.step()
    return found


def _places(
    model: nn.Module, given: Input, layers: Layers, heads: Heads | Literal["each"], together: bool
) -> list[Place]:
    """The rows of the table, from a run of the model that tells its layers and their heads."""
    choice = Choice.of(model, layers, None if heads == "each" else heads)
    counts: dict[str, int] = {}
    names = Names(model)

    def note(path: str, draft: Draft) -> Draft:
        counts[path] = len(draft.heads)
        return draft

    def listen() -> Wanted | None:
        place = names.running()
        return None if place is None else Wanted(place.path, lambda draft: note(place.path, draft))

    with altering(model, listen):
        model(*given.args, **given.kwargs)
    choice.check(list(counts))
    chosen = [path for number, path in enumerate(counts) if choice.wants(number, path)]
    if not chosen:
        raise ValueError(f"{type(model).__name__} made no call of attention that can be changed")
    asked = None if heads == "each" else heads
    said = "all" if asked is None else ", ".join(map(str, choice.heads or ()))
    if together:
        return [(_said(len(chosen), len(counts)), said, chosen, asked)]
    if heads != "each":
        return [(path, said, path, asked) for path in chosen]
    return [(path, head, path, head) for path in chosen for head in range(counts[path])]


def _said(chosen: int, count: int) -> str:
    return "all" if chosen == count else f"{chosen} of {count}"


def _cell(values: Tensor) -> Estimate:
    if values.numel() < 2:
        return Estimate(float(values.mean()), math.nan, math.nan)
    return mean(values)
