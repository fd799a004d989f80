"""The scores of Bahdanau and Luong against plain layers of torch modules, as textbooks write them.

Everything here builds the (batch, query, key, hidden) tensor that `regard` avoids.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import regard
from regard import masks, scores

BATCH, QUERIES, KEYS, D_QUERY, D_KEY, HIDDEN, D_VALUE = 2, 11, 17, 7, 5, 13, 3
LENGTHS = torch.tensor([9, KEYS])


def masked_softmax(logits: Tensor) -> Tensor:
    hidden = torch.arange(KEYS) >= LENGTHS[:, None, None]
    return logits.masked_fill(hidden, -torch.inf).softmax(-1)


class Bahdanau(nn.Module):
    """w_v · tanh(W_q q + W_k k) with every pair's hidden vector spelled out."""

    def __init__(self) -> None:
        super().__init__()
        self.W_q = nn.Linear(D_QUERY, HIDDEN, bias=False, dtype=torch.float64)
        self.W_k = nn.Linear(D_KEY, HIDDEN, bias=False, dtype=torch.float64)
        self.w_v = nn.Linear(HIDDEN, 1, bias=False, dtype=torch.float64)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        features = self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1)
        weights = masked_softmax(self.w_v(torch.tanh(features)).squeeze(-1))
        return torch.bmm(weights, values)


class Luong(nn.Module):
    """general: q · (W k); concat: v · φ(W [q; k] + b), one Linear over the joined vectors of every pair."""

    def __init__(self, method: str, activation: Callable[[Tensor], Tensor] = torch.tanh, bias: bool = False) -> None:
        super().__init__()
        self.method = method
        self.activation = activation
        if method == "general":
            self.W = nn.Linear(D_KEY, D_QUERY, bias=False, dtype=torch.float64)
        else:
            self.W = nn.Linear(D_QUERY + D_KEY, HIDDEN, bias=bias, dtype=torch.float64)
            self.v = nn.Parameter(torch.empty(HIDDEN, dtype=torch.float64))

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        if self.method == "general":
            return torch.bmm(query, self.W(key).transpose(1, 2))
        n, m = query.shape[1], key.shape[1]
        pairs = torch.cat([query.unsqueeze(2).expand(-1, -1, m, -1), key.unsqueeze(1).expand(-1, n, -1, -1)], -1)
        return self.activation(self.W(pairs)) @ self.v

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return torch.bmm(masked_softmax(self.score(queries, keys)), values)


def inputs(draw: Callable[..., Tensor]) -> dict[str, Tensor]:
    return {
        "query": draw(BATCH, QUERIES, D_QUERY),
        "key": draw(BATCH, KEYS, D_KEY),
        "value": draw(BATCH, KEYS, D_VALUE),
    }


def compare(
    engine: str,
    agree: Callable[..., None],
    layer: nn.Module,
    given: dict[str, Tensor],
    score: Callable[..., scores.Score],
) -> None:
    """One head of ours with the score made from the layer's parameters, in their order."""
    names = [name for name in given if name not in ("query", "key", "value")]
    assert sorted(names) == sorted(name for name, _ in layer.named_parameters())

    def ours(q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> Any:
        one_head = (x.unsqueeze(1) for x in (q, k, v))
        out = regard.attend(*one_head, score=score(*parameters), mask=masks.Lengths(LENGTHS), engine=engine)
        return out.squeeze(1)

    def theirs(q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> Any:
        return functional_call(layer, dict(zip(names, parameters, strict=True)), (q, k, v))

    agree(ours, theirs, given, order=2)


def test_bahdanau(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    given = inputs(draw) | {
        "W_q.weight": draw(HIDDEN, D_QUERY) / 2,
        "W_k.weight": draw(HIDDEN, D_KEY) / 2,
        "w_v.weight": draw(1, HIDDEN),
    }
    compare(engine, agree, Bahdanau(), given, lambda w_q, w_k, w_v: scores.Additive(w_q, w_k, w_v.squeeze(0)))


def test_luong_general(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    given = inputs(draw) | {"W.weight": draw(D_QUERY, D_KEY) / 3}
    compare(engine, agree, Luong("general"), given, scores.General)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "activation, function",
    [("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("gelu", nn.GELU()), ("relu", torch.relu)],
    ids=["tanh", "sigmoid", "gelu", "relu"],
)
def test_luong_concat(
    engine: str,
    draw: Callable[..., Tensor],
    agree: Callable[..., None],
    activation: str,
    function: Callable[[Tensor], Tensor],
    bias: bool,
) -> None:
    given = inputs(draw) | {"v": draw(HIDDEN), "W.weight": draw(HIDDEN, D_QUERY + D_KEY) / 2}
    if bias:
        given["W.bias"] = draw(HIDDEN)

    def score(v: Tensor, weight: Tensor, offset: Tensor | None = None) -> scores.Score:
        return scores.ConcatMLP(weight[:, :D_QUERY], weight[:, D_QUERY:], offset, v, activation)

    compare(engine, agree, Luong("concat", function, bias), given, score)
