"""Who runs a case: our engines, torch's fused kernel, compiled FlexAttention, and the formula in plain torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.bench import additive, flex
from regard.bench.case import Case, Inputs, Work
from regard.bench.cases import CASES
from regard.bench.dense import buckets, too_large, visible_table
from regard.engine.attend import attend

SDPA, FLEX, EAGER, COMPILED, KERAS = "torch SDPA", "compiled Flex", "eager", "compiled eager", "Keras"
PEERS = {"sdpa": SDPA, "flex": FLEX, "eager": EAGER, "compiled": COMPILED, "keras": KERAS}


@dataclass(frozen=True)
class Contender:
    """`prepare` does once what a user would do once (a dense mask, compiling) and returns the work to be timed."""

    name: str
    prepare: Callable[[Case, Inputs], Work]
    refuses: Callable[[Case], str | None] = lambda case: None
    exact: bool = True  # computes the same numbers as ours, up to rounding
    compiles: bool = False
    ours: bool = False
    leaves: Callable[[Work, Inputs], Inputs] = lambda work, inputs: inputs  # what gradients are taken of


def contenders(case: Case, engines: Sequence[str] = ("auto",), peers: Sequence[str] = tuple(PEERS)) -> list[Contender]:
    """Ours first, then the peers, then what else the case asks for."""
    same_pattern = "dropout" not in case.spec(case.shape, case.inputs_like())
    found = [
        Contender("regard" if engine == "auto" else f"regard {engine}", partial(_ours, engine), ours=True)
        for engine in engines
    ]
    if case.beside is not None:
        found.append(Contender(f"regard, plain {case.beside}", partial(_plain_ours, engines[0]), exact=False))
    by_name = {
        "sdpa": Contender(SDPA, _sdpa, _sdpa_refuses, same_pattern, leaves=_leaves),
        "flex": Contender(FLEX, flex.prepare, flex.refuses, same_pattern, compiles=True),
        "eager": Contender(EAGER, _eager, too_large, same_pattern),
    }
    if additive.phi_of(case) is not None:
        return found + _adding(case, peers)
    found += [by_name[peer] for peer in PEERS if peer in peers and peer in by_name]
    if _learned(case) and "sdpa" in peers:
        found.append(Contender(f"{SDPA}, its bias gathered from the table", _gathered, too_large))
    return found


def _adding(case: Case, peers: Sequence[str]) -> list[Contender]:
    """Whom scores that add are compared with: the formula, the formula compiled, and its best rewriting compiled."""
    products = {"sdpa": SDPA, "flex": FLEX}
    found = [
        Contender(name, additive.eager, lambda case: "its scores are q·k")
        for key, name in products.items()
        if key in peers
    ]
    if "eager" in peers:
        found.append(Contender(EAGER, additive.eager, additive.too_large))
    if "compiled" in peers:
        for name, make, refuses in (
            (COMPILED, additive.eager, additive.too_large),
            ("compiled identity", additive.identity, additive.no_identity),
        ):
            found.append(Contender(name, partial(additive.compiled, make), refuses, compiles=True))
    if "keras" in peers:
        found.append(Contender(KERAS, additive.keras, additive.no_keras))
    return found


def _ours(engine: str, case: Case, inputs: Inputs) -> Work:
    spec = case.spec(case.shape, inputs)

    def work(x: Inputs) -> Tensor:
        found: Any = attend(x[0], x[1], x[2], **spec, aux=case.aux, engine=engine)
        out: Tensor = found[0] if case.aux else found
        return out

    return case.around(work)


def _plain_ours(engine: str, case: Case, inputs: Inputs) -> Work:
    spec = next(each.spec for each in CASES.values() if each.family == case.beside)(case.shape, inputs)
    return lambda x: attend(x[0], x[1], x[2], **spec, engine=engine)


def _learned(case: Case) -> bool:
    return case.family == "t5-train"


def _sdpa_refuses(case: Case) -> str | None:
    spec = case.spec(case.shape, case.inputs_like())
    needs_table = "bias" in spec or spec.get("mask", "causal") != "causal"
    return too_large(case) if needs_table else None


class _Sdpa:
    """torch's fused kernel with what it needs made once; a learned bias is a dense leaf of its own."""

    def __init__(self, case: Case, inputs: Inputs) -> None:
        spec, shape = case.spec(case.shape, inputs), case.shape
        causal = spec.get("mask") == "causal" and "bias" not in spec
        table = None if causal else visible_table(case, inputs)
        if table is not None and _learned(case):
            table = table.detach().requires_grad_()
        self.table = table
        drop = spec["dropout"].p if "dropout" in spec else 0.0
        self.call = partial(
            scaled_dot_product_attention,
            attn_mask=table,
            dropout_p=drop,
            is_causal=causal,
            enable_gqa=shape.key_heads != shape.heads,
        )

    def __call__(self, x: Inputs) -> Tensor:
        out: Tensor = self.call(x[0], x[1], x[2])
        return out


def _sdpa(case: Case, inputs: Inputs) -> Work:
    return case.around(_Sdpa(case, inputs))


def _leaves(work: Work, inputs: Inputs) -> Inputs:
    if isinstance(work, _Sdpa) and work.table is not None and work.table.requires_grad:
        return (*inputs[:3], work.table)
    return inputs


def _gathered(case: Case, inputs: Inputs) -> Work:
    index = buckets(case, inputs)
    return lambda x: scaled_dot_product_attention(x[0], x[1], x[2], attn_mask=x[3].mT[:, index].unsqueeze(0))


def _eager(case: Case, inputs: Inputs) -> Work:
    spec, shape = case.spec(case.shape, inputs), case.shape
    index = buckets(case, inputs) if _learned(case) else None
    table = visible_table(case, inputs) if index is None else None
    drop = spec["dropout"].p if "dropout" in spec else 0.0
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
        if drop:
            weights = torch.nn.functional.dropout(weights, drop)
        out: Tensor = weights.reshape(shape.batch, shape.key_heads, group * shape.rows, shape.n) @ value
        return out.reshape(shape.batch, shape.heads, shape.rows, shape.d_value)

    return case.around(work)
