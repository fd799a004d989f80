"""Worked answers: parts of an explanation, small attentions in two axes, and numbers as they are printed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.inspection.explain import Explanation, explain
from regard.lab import maps
from regard.lab.exercises.numbers import Numbers, tensor
from regard.spec.scores import Dot


def weights(query: Tensor, key: Tensor, **spec: Any) -> Tensor:
    """The weights of queries (n, d) over keys (m, d): (n, m)."""
    return maps.weights(query[None, None], key[None, None], engine="reference", **spec)[0, 0]


def softmax(logits: Numbers, **spec: Any) -> Tensor:
    """The weights that these logits give, (key,) or (query, key), by `attend`."""
    table = tensor(logits)
    rows = table.reshape(-1, table.shape[-1])
    empty = torch.zeros(len(rows), 1, dtype=torch.float64), torch.zeros(rows.shape[1], 1, dtype=torch.float64)
    return weights(*empty, score=Dot(), bias=rows, query_start=0, **spec).view(table.shape)


def from_weights(table: Tensor, value: Numbers, **spec: Any) -> Explanation:
    """Attention with these weights (query, key): their logarithms are the logits."""
    rows, columns = table.shape
    query, key = torch.zeros(rows, 1, dtype=torch.float64), torch.zeros(columns, 1, dtype=torch.float64)
    return explain(query, key, tensor(value), score=Dot(), bias=table.log(), query_start=0, **spec)


def steps(explanation: Explanation, width: int, start: str = "", stop: str = "") -> str:
    """The explanation from the step whose title begins with `start` to the one with `stop`, both included."""
    titles = [step.title for step in explanation.steps]
    first = _place(titles, start) if start else 0
    last = _place(titles, stop) if stop else len(titles) - 1
    return replace(explanation, notes=(), steps=explanation.steps[first : last + 1]).text(width)


def _place(titles: Sequence[str], start: str) -> int:
    for index, title in enumerate(titles):
        if title.startswith(start):
            return index
    raise ValueError(f"no step begins with {start!r}; there are {', '.join(titles)}")


def shown(value: Tensor | float) -> str:
    """A number, a list or a matrix to four decimals, without the zeros at its end."""
    if isinstance(value, Tensor) and value.ndim:
        return f"[{', '.join(shown(each) for each in value)}]"
    text = f"{float(value):,.4f}".rstrip("0").rstrip(".")
    return text.replace("-", "−") if text != "-0" else "0"
