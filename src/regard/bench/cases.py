"""Named cases: a call of `attend` and the best that plain torch offers for the same."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.spec import biases, masks, scores
from regard.spec.dropout import Dropout
from regard.spec.masks.extent import plane_of

Inputs = tuple[Tensor, Tensor, Tensor]
Work = Callable[[Inputs], Tensor]


@dataclass(frozen=True)
class Case:
    """`spec` makes the keywords of `attend` from the length; `peer` makes torch's call, preparing what it needs."""

    name: str
    what: str
    spec: Callable[[int], dict[str, Any]] = field(default=lambda n: {})
    peer: Callable[[int, int], Work] = field(default=lambda n, heads: lambda x: scaled_dot_product_attention(*x))
    peer_name: str = "torch SDPA"
    length: int = 1024
    heads: int = 8
    d_key: int = 64
    d_value: int = 64
    backward: bool = False
    exact: bool = True  # whether the peer computes the same numbers

    def inputs(self, length: int) -> Inputs:
        """Random query, key and value."""
        draw = torch.Generator().manual_seed(0)
        widths = (self.d_key, self.d_key, self.d_value)
        query, key, value = (
            torch.randn(1, self.heads, length, width, generator=draw).requires_grad_(self.backward) for width in widths
        )
        return query, key, value


def _masked(mask: masks.Mask) -> Callable[[int, int], Work]:
    def make(n: int, heads: int) -> Work:
        table = mask.visible(plane_of(mask, n, n, 1, 1, None).all).expand(1, 1, 1, n, n)[0].contiguous()
        return lambda x: scaled_dot_product_attention(*x, attn_mask=table)

    return make


def _biased(bias: Callable[[int], biases.Bias], causal: bool) -> Callable[[int, int], Work]:
    def make(n: int, heads: int) -> Work:
        pairs = plane_of(masks.Full(), n, n, 1, heads, None).all
        table = bias(heads).values(pairs).float().reshape(1, heads, n, n)
        if causal:
            table = table.masked_fill(pairs.j > pairs.i, -torch.inf)
        return lambda x: scaled_dot_product_attention(*x, attn_mask=table)

    return make


def _additive(hidden: int, width: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {
        "w_query": torch.randn(hidden, width, generator=draw) / width**0.5,
        "w_key": torch.randn(hidden, width, generator=draw) / width**0.5,
        "v": torch.randn(hidden, generator=draw) / hidden**0.5,
    }


def _eager_additive(n: int, heads: int) -> Work:
    weights = _additive(64, 64)

    def work(x: Inputs) -> Tensor:
        a, b = x[0] @ weights["w_query"].T, x[1] @ weights["w_key"].T
        logits = torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3)) @ weights["v"]
        return logits.softmax(-1) @ x[2]

    return work


def _causal(x: Inputs) -> Tensor:
    return scaled_dot_product_attention(*x, is_causal=True)


CASES = {
    case.name: case
    for case in (
        Case("dense", "every query sees every key"),
        Case("causal", "no query sees the future", lambda n: {"mask": "causal"}, lambda n, h: _causal),
        Case(
            "window",
            "128 keys on each side",
            lambda n: {"mask": masks.Window(128, 128)},
            _masked(masks.Window(128, 128)),
            "SDPA, dense mask",
            length=4096,
        ),
        Case(
            "alibi",
            "ALiBi under a causal mask",
            lambda n: {"mask": "causal", "bias": biases.ALiBi(8)},
            _biased(biases.ALiBi, causal=True),
            "SDPA, dense bias",
        ),
        Case(
            "dropout",
            "dropout 0.1",
            lambda n: {"dropout": Dropout(0.1, 1)},
            lambda n, h: lambda x: scaled_dot_product_attention(*x, dropout_p=0.1),
            exact=False,
        ),
        Case("wide", "values twice as wide as keys", d_value=128),
        Case("train", "forward and backward", backward=True),
        Case(
            "train-causal",
            "forward and backward, causal",
            lambda n: {"mask": "causal"},
            lambda n, h: _causal,
            backward=True,
        ),
        Case(
            "additive",
            "Bahdanau's score, hidden 64, one head",
            lambda n: {"score": scores.Additive(**_additive(64, 64))},
            _eager_additive,
            "eager formula",
            length=512,
            heads=1,
        ),
    )
}
