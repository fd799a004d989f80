"""What exercises are written with: tensors, small attentions in two axes, steps of an explanation, printed numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.inspection.explain import Explanation, explain
from regard.lab import maps
from regard.spec.scores import Dot

Numbers = Tensor | float | Sequence[float] | Sequence[Sequence[float]] | Sequence[Sequence[Sequence[float]]]


def tensor(given: Numbers) -> Tensor:
    """In float64, whatever it is written as."""
    return torch.as_tensor(given, dtype=torch.float64)


def weights(query: Tensor, key: Tensor, **spec: Any) -> Tensor:
    """The weights of queries (n, d) over keys (m, d): (n, m)."""
    return maps.weights(query[None, None], key[None, None], engine="reference", **spec)[0, 0]


def softmax(logits: Numbers, **spec: Any) -> Tensor:
    """The weights that these logits give, (key,) or (query, key), by `attend`."""
    table = tensor(logits)
    rows = table.reshape(-1, table.shape[-1])
    query, key = torch.zeros(len(rows), 1, dtype=torch.float64), torch.zeros(rows.shape[1], 1, dtype=torch.float64)
    return weights(query, key, score=Dot(), bias=rows, query_start=0, **spec).view(table.shape)


def explain_row(scores: Tensor, values: Tensor, **spec: Any) -> Explanation:
    """The attention of one query that gives these scores to keys with these values, all numbers."""
    keys = [f"key {number}" for number in range(1, len(scores) + 1)]
    return explain([[1]], scores[:, None], values[:, None], score=Dot(), key_tokens=keys, **spec)


def steps(explanation: Explanation, start: str = "", stop: str = "") -> Explanation:
    """The explanation from the step whose title begins with `start` to the one with `stop`, both included."""
    titles = [step.title for step in explanation.steps]
    first = next(index for index, title in enumerate(titles) if title.startswith(start))
    last = next(index for index, title in enumerate(titles) if title.startswith(stop)) if stop else len(titles) - 1
    return replace(explanation, notes=(), steps=explanation.steps[first : last + 1])


def shown(value: Tensor | float) -> str:
    """A number, a list or a matrix to four decimals, without the zeros at its end."""
    if isinstance(value, Tensor) and value.ndim:
        return f"[{', '.join(shown(each) for each in value)}]"
    text = f"{float(value):,.4f}".rstrip("0").rstrip(".")
    return text.replace("-", "−") if text != "-0" else "0"
