"""The named cases, and how a name, a pattern or sizes of the user's choose among them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch

from regard.bench import additive
from regard.bench.case import Case, Inputs, Shape, attention_inputs, layer_inputs
from regard.spec import biases, masks
from regard.spec.dropout import Dropout

STATISTICS = ("lse", "entropy", "peak", "peak_at", "distance", "max_logit")


def causal(shape: Shape, inputs: Inputs) -> dict[str, Any]:
    """No query sees the future."""
    return {"mask": "causal"}


def window(before: int | None, after: int | None, shape: Shape, inputs: Inputs) -> dict[str, Any]:
    """A band of keys."""
    return {"mask": masks.Window(before, after)}


def alibi(shape: Shape, inputs: Inputs) -> dict[str, Any]:
    """ALiBi under a causal mask."""
    return {"mask": "causal", "bias": biases.ALiBi(shape.heads)}


def dropout(shape: Shape, inputs: Inputs) -> dict[str, Any]:
    """One weight in ten is dropped."""
    return {"dropout": Dropout(0.1, 1)}


def t5(shape: Shape, inputs: Inputs) -> dict[str, Any]:
    """A table of buckets, the fourth input."""
    return {"bias": biases.T5(inputs[3])}


def t5_inputs(shape: Shape, draw: torch.Generator) -> Inputs:
    """Query, key, value and the table."""
    return (*attention_inputs(shape, draw), torch.randn(32, shape.heads, generator=draw))


def _all() -> Iterable[Case]:
    for n in (1024, 4096):
        for d in (64, 128):
            yield Case("dense", "every query sees every key", Shape(n, d))
    for n in (1024, 4096):
        for d in (64, 128):
            yield Case("causal", "no query sees the future", Shape(n, d), causal)
    yield Case("window", "128 keys on each side", Shape(4096), partial(window, 128, 128))
    for n in (16384, 32768, 65536):
        yield Case("past", "256 keys before, causal, one head", Shape(n, heads=1), partial(window, 256, 0))
    yield Case("alibi", "ALiBi under a causal mask", Shape(4096), alibi, beside="causal")
    yield Case("dropout", "dropout 0.1", Shape(2048), dropout)
    yield Case("dropout-train", "dropout 0.1, forward and backward", Shape(2048), dropout, backward=True)
    yield Case("wide", "values twice as wide as keys", Shape(2048, wider=2))
    for n, d in ((4096, 64), (2048, 128)):
        yield Case("train", "forward and backward", Shape(n, d), backward=True)
        yield Case("train-causal", "forward and backward, causal", Shape(n, d), causal, backward=True)
    yield Case("t5-train", "forward and backward, learned T5 table", Shape(2048), t5, t5_inputs, backward=True)
    yield Case("decode", "one query, 32 heads over 8, cold caches", Shape(8192, 128, 32, 8, 1), cold=True)
    yield Case("bfloat16", "every query sees every key, bfloat16", Shape(4096, dtype=torch.bfloat16))
    yield Case("small", "batch of 32, 12 heads", Shape(128, heads=12, batch=32))
    yield Case("tiny", "one tiny call", Shape(16, 16, heads=2))
    yield Case("tiny-train", "one tiny call with gradients", Shape(16, 16, heads=2), backward=True)
    yield Case("statistics", "every row statistic in aux", Shape(4096), aux=STATISTICS, beside="dense")
    yield Case("received", "what every key receives, in aux", Shape(4096), aux=("received",), beside="dense")
    yield Case("layer", "Linear, attention, Linear", Shape(1024), draw=layer_inputs, layer=True)
    for d in (32, 64, 128):
        sizes = Shape(1024, d, heads=1)
        yield Case(
            "additive", f"Bahdanau's score, {d} hidden units", sizes, partial(additive.spec, "tanh"), additive.inputs
        )
    for phi in ("relu", "gelu", "sigmoid"):
        what = f"Luong's concat with {phi}"
        yield Case(phi, what, Shape(1024, heads=1), partial(additive.spec, phi), additive.inputs)
    sums: dict[str, Any] = {"spec": partial(additive.spec, "tanh"), "draw": additive.inputs, "backward": True}
    yield Case("additive-train", "Bahdanau's score, forward and backward", Shape(1024, heads=1), **sums)


CASES = {case.name: case for case in _all()}
FAMILIES = tuple(dict.fromkeys(case.family for case in CASES.values()))
PLOTTED = ("dense-1024-64", "causal-1024-64")
LENGTHS = (256, 512, 1024, 2048, 4096)  # over which a plot runs


def choose(patterns: Sequence[str], lengths: Sequence[int] = (), **sizes: Any) -> list[Case]:
    """The cases whose name or family fits a pattern, at these lengths and sizes if any are given."""
    for pattern in patterns:
        if not any(_fits(case, pattern) for case in CASES.values()):
            raise ValueError(f"no case {pattern}; the cases are {', '.join(FAMILIES)} (`regard bench --list`)")
    fitting = [case for case in CASES.values() if not patterns or any(_fits(case, each) for each in patterns)]
    return _at(fitting, lengths, sizes)


def own(mask: str, lengths: Sequence[int], backward: bool = False, **sizes: Any) -> list[Case]:
    """Plain attention of the user's sizes: `mask` is full, causal or window:BEFORE,AFTER."""
    case = Case("own", f"{mask} mask{', forward and backward' * backward}", Shape(1024), backward=backward)
    if mask == "causal":
        case = replace(case, spec=causal)
    elif mask.startswith("window:"):
        try:
            before, _, after = mask.removeprefix("window:").partition(",")
            case = replace(case, spec=partial(window, int(before), int(after or before)))
        except ValueError:
            raise ValueError(f"--mask window:BEFORE,AFTER takes two whole numbers, got {mask!r}") from None
    elif mask != "full":
        raise ValueError(f"--mask must be full, causal or window:BEFORE,AFTER, got {mask!r}")
    return _at([case], lengths, sizes)


def _fits(case: Case, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (case.name, case.family))


def _at(cases: Sequence[Case], lengths: Sequence[int], sizes: dict[str, Any]) -> list[Case]:
    found: dict[str, Case] = {}
    for case in cases:
        for n in lengths or (case.shape.n,):
            changed = case.sized(n=n, **sizes)
            found.setdefault(changed.name, changed)
    return list(found.values())
