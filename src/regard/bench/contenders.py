"""Who runs a case: our engines, torch's fused kernel, compiled FlexAttention, Keras, and the formula in plain torch."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.bench.cases import CASES, Inputs, Work, Workload
from regard.engine.attend import attend
from regard.spec import biases, masks
from regard.spec.scores.base import ACTIVATIONS

SDPA, FLEX, EAGER, COMPILED, KERAS = "torch SDPA", "compiled Flex", "eager", "compiled eager", "Keras"
PEERS = {"sdpa": SDPA, "flex": FLEX, "eager": EAGER, "compiled": COMPILED, "keras": KERAS}
LARGEST_TABLE = 1 << 30  # bytes of a table over all pairs and heads that is still tried
LARGEST_HIDDEN = 4 << 30  # bytes of a (query, key, hidden) tensor that is still tried
LONGEST_FLEX = 8192  # its block mask is made from all pairs


@dataclass(frozen=True)
class Contender:
    """`prepare` does once what a user would do once (a dense mask, compiling) and returns the work to be timed.

    `refuses` gives the reason why a case is not run.
    """

    name: str
    prepare: Callable[[Workload, Inputs], Work]
    refuses: Callable[[Workload], str | None] = lambda case: None
    exact: bool = True  # computes the same numbers as ours, up to rounding
    compiles: bool = False
    ours: bool = False

    def run(self, work: Work, inputs: Inputs, output_gradient: Tensor | None) -> tuple[Tensor, ...]:
        """Output, and the gradients if one is sent back."""
        out = work(inputs)
        if output_gradient is None:
            return (out,)
        leaves = work.leaves(inputs) if isinstance(work, _Sdpa) else inputs
        return (out, *torch.autograd.grad(out, leaves, output_gradient))


def contenders(
    case: Workload, engines: Sequence[str] = ("auto",), peers: Sequence[str] = tuple(PEERS)
) -> list[Contender]:
    """Ours first, then the peers, then what else the case asks for."""
    everybody = [
        Contender("regard" if engine == "auto" else f"regard {engine}", partial(_ours, engine), ours=True)
        for engine in engines
    ]
    if case.beside is not None:
        everybody.append(Contender(f"regard, plain {case.beside}", partial(_plain_ours, engines[0]), exact=False))
    if case.activation is None:
        exact = not case.dropout  # peers drop other weights
        by_peer = {
            "sdpa": [Contender(SDPA, lambda case, inputs: case.around(_Sdpa(case, inputs)), _sdpa_refuses, exact)],
            "flex": [Contender(FLEX, _flex, flex_refuses, exact, compiles=True)],
            "eager": [Contender(EAGER, _eager, _table_too_large, exact)],
        }
    else:
        products_only = "its scores are q·k"
        compiled_eager, compiled_identity = (partial(_compiled, make) for make in (_additive_eager, _additive_identity))
        by_peer = {
            "sdpa": [Contender(SDPA, _additive_eager, lambda case: products_only)],
            "flex": [Contender(FLEX, _additive_eager, lambda case: products_only)],
            "eager": [Contender(EAGER, _additive_eager, _hidden_too_large)],
            "compiled": [
                Contender(COMPILED, compiled_eager, _hidden_too_large, compiles=True),
                Contender("compiled identity", compiled_identity, _identity_refuses, compiles=True),
            ],
            "keras": [Contender(KERAS, _keras, _keras_refuses)],
        }
    everybody += [contender for peer in PEERS if peer in peers for contender in by_peer.get(peer, ())]
    if case.bias == "t5" and "sdpa" in peers:
        everybody.append(Contender(f"{SDPA}, its bias gathered from the table", _sdpa_gathered, _table_too_large))
    return everybody


def _ours(engine: str, case: Workload, inputs: Inputs) -> Work:
    spec = case.spec(inputs)

    def work(x: Inputs) -> Tensor:
        result: Any = attend(x[0], x[1], x[2], **spec, aux=case.aux, engine=engine)
        out: Tensor = result[0] if case.aux else result
        return out

    return case.around(work)


def _plain_ours(engine: str, case: Workload, inputs: Inputs) -> Work:
    plain = next(each for each in CASES.values() if each.family == case.beside)
    spec = replace(plain, shape=case.shape).spec(inputs)
    return lambda x: attend(x[0], x[1], x[2], **spec, engine=engine)


# Product scores: what peers need instead of a mask or a bias is a table over all pairs.


def _table_too_large(case: Workload) -> str | None:
    shape = case.shape
    size = 4 * shape.batch * shape.heads * shape.rows * shape.n
    return f"a table of all pairs takes {size / 2**30:.0f} GiB" if size > LARGEST_TABLE else None


def _table(case: Workload, inputs: Inputs) -> Tensor | None:
    """Mask and bias as one table that broadcasts over (batch, head, query, key): bool, or numbers to add; or None."""
    shape, pairs = case.shape, case.plane().all
    seen = None
    if not isinstance(case.mask, masks.Full):
        seen = case.mask.visible(pairs).expand(1, 1, 1, shape.rows, shape.n)[0].contiguous()
    if case.bias is None:
        return seen
    if case.bias == "t5":
        return inputs[3].mT[:, _buckets(case, inputs)].unsqueeze(0)
    table: Tensor = case.spec(inputs)["bias"].values(pairs).to(shape.dtype).reshape(1, shape.heads, shape.rows, shape.n)
    return table if seen is None else table.masked_fill(~seen, -torch.inf)


def _buckets(case: Workload, inputs: Inputs) -> Tensor:
    """The entry of T5's table for every pair."""
    pairs = case.plane().all
    return biases.T5(inputs[3]).bucket(pairs.i - pairs.j)


def _sdpa_refuses(case: Workload) -> str | None:
    needs_table = case.bias is not None or not isinstance(case.mask, masks.Full | masks.Causal)
    return _table_too_large(case) if needs_table else None


class _Sdpa:
    """torch's fused kernel with what it needs made once; a learned bias is a dense leaf of its own."""

    def __init__(self, case: Workload, inputs: Inputs) -> None:
        causal = isinstance(case.mask, masks.Causal) and case.bias is None
        self.table = None if causal else _table(case, inputs)
        if self.table is not None and case.bias == "t5":
            self.table = self.table.detach().requires_grad_()
        self.call = partial(
            scaled_dot_product_attention,
            attn_mask=self.table,
            dropout_p=case.dropout,
            is_causal=causal,
            enable_gqa=case.shape.key_heads != case.shape.heads,
        )

    def __call__(self, x: Inputs) -> Tensor:
        out: Tensor = self.call(x[0], x[1], x[2])
        return out

    def leaves(self, inputs: Inputs) -> Inputs:
        """What gradients are taken of."""
        return (*inputs[:3], self.table) if self.table is not None and self.table.requires_grad else inputs


def _sdpa_gathered(case: Workload, inputs: Inputs) -> Work:
    index = _buckets(case, inputs)
    return lambda x: scaled_dot_product_attention(x[0], x[1], x[2], attn_mask=x[3].mT[:, index].unsqueeze(0))


def _eager(case: Workload, inputs: Inputs) -> Work:
    shape = case.shape
    index = _buckets(case, inputs) if case.bias == "t5" else None
    table = _table(case, inputs) if index is None else None
    group = shape.heads // shape.key_heads

    def work(x: Inputs) -> Tensor:
        query, key, value = x[:3]
        grouped = query.reshape(shape.batch, shape.key_heads, group * shape.rows, shape.d)
        logits = (grouped * shape.d**-0.5 @ key.mT).reshape(shape.batch, shape.heads, shape.rows, shape.n)
        if index is not None:
            logits = logits + x[3].mT[:, index]
        elif table is not None:
            logits = logits.masked_fill(~table, -torch.inf) if table.dtype is torch.bool else logits + table
        weights = logits.softmax(-1)
        if case.dropout:
            weights = torch.nn.functional.dropout(weights, case.dropout)
        out: Tensor = weights.reshape(shape.batch, shape.key_heads, group * shape.rows, shape.n) @ value
        return out.reshape(shape.batch, shape.heads, shape.rows, shape.d_value)

    return case.around(work)


def flex_refuses(case: Workload) -> str | None:
    """Why FlexAttention cannot run this; on a CPU it has no gradients."""
    if case.backward and case.shape.device == "cpu":
        return "it cannot train on a CPU"
    if case.dropout:
        return "it has no dropout"
    if not isinstance(case.mask, masks.Full) and case.shape.n > LONGEST_FLEX:
        return f"its block mask is made from all {case.shape.rows * case.shape.n / 1e9:.1f} billion pairs"
    return None


def _flex(case: Workload, inputs: Inputs) -> Work:
    """Make the block mask, compile, and run once so that compiling is over."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # a function that was compiled for many cases is not compiled again
    shape, mask, block = case.shape, case.mask, None
    if not isinstance(mask, masks.Full):
        mask_mod = lambda b, h, i, j: j <= i  # noqa: E731
        if isinstance(mask, masks.Window):
            mask_mod = lambda b, h, i, j: (i - j <= mask.before) & (j - i <= mask.after)  # noqa: E731
        block = create_block_mask(mask_mod, None, None, shape.rows, shape.n, device=shape.device)
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    score_mod_of = flex_score_mod(case, inputs)

    def attention(x: Inputs) -> Tensor:
        out: Tensor = compiled(
            x[0], x[1], x[2], score_mod=score_mod_of(x), block_mask=block, enable_gqa=shape.key_heads != shape.heads
        )
        return out

    work = case.around(attention)
    work(inputs)
    return work


def flex_score_mod(case: Workload, inputs: Inputs) -> Callable[[Inputs], Callable[..., Tensor] | None]:
    """Makes the `score_mod` of FlexAttention from a call's inputs: a learned table is one of them."""
    if case.bias is None:
        return lambda x: None
    shape, bias = case.shape, case.spec(inputs)["bias"]
    if case.bias == "t5":
        past = shape.n - 1
        index = bias.bucket(torch.arange(-past, shape.rows, device=shape.device))  # of every i − j
        return lambda x: lambda score, b, h, i, j: score + x[3][index[i - j + past], h]
    slopes = bias.slopes.float().to(shape.device)
    sloped = lambda score, b, h, i, j: score - slopes[h] * (i - j).abs()  # noqa: E731
    return lambda x: sloped


# Additive scores, v · φ(W₁q + W₂k), as plain torch writes them.


def _hidden_too_large(case: Workload) -> str | None:
    shape = case.shape
    size = 4 * shape.batch * shape.heads * shape.rows * shape.n * shape.d * (4 if case.backward else 1)
    return f"hidden units of all pairs take {size / 2**30:.0f} GiB" if size > LARGEST_HIDDEN else None


def _additive_eager(case: Workload, inputs: Inputs) -> Work:
    """Every pair's hidden units, as textbooks write it."""
    phi = ACTIVATIONS[str(case.activation)]

    def work(x: Inputs) -> Tensor:
        query, key, value, w_query, w_key, v = x
        a, b = query @ w_query.T, key @ w_key.T
        return (phi(a.unsqueeze(-2) + b.unsqueeze(-3)) @ v).softmax(-1) @ value

    return work


def _identity_refuses(case: Workload) -> str | None:
    return _hidden_too_large(case) if case.activation == "tanh" else "the identity is tanh's"


def _additive_identity(case: Workload, inputs: Inputs) -> Work:
    """tanh(a + b) = 1 − 2 / (1 + e^2a · e^2b): no exponential per pair; overflows for large numbers."""

    def work(x: Inputs) -> Tensor:
        query, key, value, w_query, w_key, v = x
        e, f = (2 * (query @ w_query.T)).exp(), (2 * (key @ w_key.T)).exp()
        logits = v.sum() - 2 * (v / (1 + e.unsqueeze(-2) * f.unsqueeze(-3))).sum(-1)
        return logits.softmax(-1) @ value

    return work


def _compiled(make: Callable[[Workload, Inputs], Work], case: Workload, inputs: Inputs) -> Work:
    """The same through torch.compile, compiled before it is timed."""
    torch._dynamo.reset()
    plain = make(case, inputs)
    compiled: Any = torch.compile(lambda *x: plain(x), dynamic=False)

    def work(x: Inputs) -> Tensor:
        out: Tensor = compiled(*x)
        return out

    out = work(inputs)
    if case.backward:
        torch.autograd.grad(out.sum(), inputs)
    return work


def _keras_refuses(case: Workload) -> str | None:
    if case.activation != "tanh" or case.shape.heads != 1:
        return "Keras adds under tanh, with one head"
    if case.shape.device != "cpu":
        return "Keras is timed on the processor only"
    if importlib.util.find_spec("keras") is None:
        return "Keras is not installed"
    return _hidden_too_large(case)


def _keras(case: Workload, inputs: Inputs) -> Work:
    """keras.layers.AdditiveAttention behind both projections; its `scale` is v."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    layers: Any = importlib.import_module("keras").layers
    layer = layers.AdditiveAttention()
    layer.build([tuple(x.shape[0:1] + x.shape[2:]) for x in (inputs[0], inputs[2], inputs[1])])

    def work(x: Inputs) -> Tensor:
        query, key, value, w_query, w_key, v = x
        object.__setattr__(layer, "scale", v)  # so that its gradient is v's
        out: Tensor = layer([(query @ w_query.T).squeeze(1), value.squeeze(1), (key @ w_key.T).squeeze(1)])
        return out.unsqueeze(1)

    return work
