"""Measuring: contenders run in turns in one process, best of several; results are compared before they are timed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.bench.cases import Case, Inputs, Work
from regard.engine.attend import attend
from regard.engine.plan import plan
from regard.testing import error, peak_bytes

ROWS = 64  # queries that are compared with the reference in float64


@dataclass(frozen=True)
class Measurement:
    """One contender on one case."""

    case: str
    length: int
    contender: str
    seconds: float
    gflops: float
    mebibytes: float
    error: float | None


def measure(
    case: Case, *, length: int | None = None, rounds: int = 5, engines: tuple[str, ...] = ("auto",)
) -> list[Measurement]:
    """Time the engines and the peer of one case in turns."""
    n = length or case.length
    inputs, spec = case.inputs(n), case.spec(n)
    contenders: dict[str, Work] = {
        f"regard {engine}": lambda x, engine=engine: attend(*x, **spec, engine=engine)  # type: ignore[misc]
        for engine in engines
    }
    contenders[case.peer_name] = case.peer(n, case.heads)
    truth = _truth(inputs, spec)
    works = {name: _work(work, inputs, case.backward) for name, work in contenders.items()}
    errors = {name: _error(work, inputs, truth, name, case) for name, work in contenders.items()}
    best = in_turns(works, rounds)
    flops = plan(*inputs, **spec).flops * (3.5 if case.backward else 1.0)
    outputs = sum(x.numel() * 4 for x in inputs) if case.backward else 0
    outputs += inputs[0].shape[1] * n * case.d_value * 4
    return [
        Measurement(
            case.name,
            n,
            name,
            best[name],
            flops / best[name] / 1e9,
            max(0, peak_bytes(works[name])[0] - outputs) / 2**20,
            errors[name],
        )
        for name in contenders
    ]


def in_turns(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The best time of each, the contenders taking turns so that a noisy moment hits all."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def product_peak() -> float:
    """GFLOP/s of a large matrix product: what the processor gives at best through torch."""
    a, b = torch.randn(2, 1024, 1024)
    return 2 * 1024**3 / in_turns({"product": lambda: a @ b}, 20)["product"] / 1e9


def _work(work: Work, inputs: Inputs, backward: bool) -> Callable[[], object]:
    if not backward:
        return lambda: work(inputs)
    direction = torch.ones(())
    return lambda: torch.autograd.grad(work(inputs).sum(), inputs, direction)


def _truth(inputs: Inputs, spec: dict[str, object]) -> Tensor:
    """The last rows by the reference in float64."""
    query, key, value = (x.detach().double() for x in inputs)
    rows = query[..., -ROWS:, :]
    start = key.shape[-2] - rows.shape[-2]
    out: Tensor = attend(rows, key, value, **spec, query_start=start, engine="reference")  # type: ignore[call-overload]
    return out


def _error(work: Work, inputs: Inputs, truth: Tensor, name: str, case: Case) -> float | None:
    if name == case.peer_name and not case.exact:
        return None
    found = error(work(inputs)[..., -ROWS:, :], truth)
    size = float(truth.square().mean().sqrt())
    if found > 1e-4 * size:
        raise RuntimeError(f"{name} on {case.name} is wrong: error {found:.2g} of {size:.2g}; nothing was timed")
    return found
