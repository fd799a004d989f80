"""The tiled engine's memory grows with the length, not with its square: forward and backward, by the allocation hook.

`extra` is what was held at most beyond inputs, outputs and gradients. Eight times the length may take 8.5 times as
much. Small tiles keep the constant part small, so that anything that grows faster than the length shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard import Aux, attend, biases, masks, scores
from regard.engine.request import AUX
from regard.testing import NORMALIZERS, SCORES, Case, Draw, Sizes, allocations, small_tiles

ALLOWED = 8.5
SMALL = {"height": 128, "segment": 128}
LARGE = {"height": 256, "segment": 512}
Parts = Callable[[Sizes, Draw], dict[str, Any]]


@dataclass(frozen=True)
class Setting:
    """A case at any length; `parts` are those of its arguments that grow with the length."""

    case: Case = Case()
    aux: tuple[str, ...] = ()
    parts: Parts = lambda size, draw: {}
    window: bool = True

    def call(self, n: int) -> tuple[list[Tensor], dict[str, Any], list[Tensor]]:
        case = replace(self.case, sizes=replace(self.case.sizes, queries=n, keys=n, query_start=0))
        inputs, spec, leaves = case.build(torch.float32)
        draw = Draw(1, torch.float32, torch.float32)
        spec["mask"] = masks.Window(63, 0) if self.window else masks.Causal()
        spec |= self.parts(case.sizes, draw)
        return inputs, spec, [*leaves.values(), *draw.leaves.values()]


ONE = Sizes(batch=1, kv_heads=1, group=1, d_key=4, d_value=4)
TWO = Sizes(batch=1, kv_heads=1, group=2, d_key=4, d_value=6)


def extra(setting: Setting, n: int, tiles: dict[str, int]) -> tuple[int, int]:
    """Bytes beyond inputs, outputs and gradients; and the largest single allocation."""
    inputs, spec, leaves = setting.call(n)

    def work() -> object:
        found: Any = attend(*inputs, **spec, aux=setting.aux, engine="tiled")
        out, aux = found if setting.aux else (found, Aux())
        results = [out, *(tensor for name in AUX if (tensor := getattr(aux, name)) is not None)]
        loss = torch.stack([tensor.sum() for tensor in results if tensor.requires_grad]).sum()
        grads = torch.autograd.grad(loss, leaves, allow_unused=True)
        return [tensor.detach() for tensor in results], grads

    with small_tiles(**tiles):
        sizes = allocations(work)
    held = list(accumulate(sizes))
    return max(held) - held[-1], max(sizes)


def grows_with_the_length(setting: Setting, n: int, tiles: dict[str, int]) -> None:
    short, _ = extra(setting, n, tiles)
    long, largest = extra(setting, 8 * n, tiles)
    assert long <= ALLOWED * short, f"{short:,} bytes for {n}, {long:,} for {8 * n}: {long / short:.2f} times"
    assert largest < (8 * n) ** 2 // 4 * torch.float32.itemsize


@pytest.mark.parametrize("score", SCORES)
def test_every_score_in_a_window(score: str) -> None:
    grows_with_the_length(Setting(Case(score=score, sizes=ONE)), 1024, SMALL)


@pytest.mark.parametrize("score", SCORES)
def test_every_score_causal(score: str) -> None:
    grows_with_the_length(Setting(Case(score=score, sizes=ONE), window=False), 512, LARGE)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "tiles"), [(512, SMALL), (1024, LARGE)], ids=["small tiles", "large tiles"])
@pytest.mark.parametrize("score", SCORES)
def test_every_score_causal_and_long(score: str, n: int, tiles: dict[str, int]) -> None:
    # the profiler keeps every event: 8,192 keys in small tiles would take 3 GB
    grows_with_the_length(Setting(Case(score=score, sizes=ONE), window=False), n, tiles)


def offsets(size: Sizes, draw: Draw) -> dict[str, Any]:
    return {"bias": biases.Distance(draw.normal("table", size.heads, 2 * size.keys - 1))}


def vectors(size: Sizes, draw: Draw) -> dict[str, Any]:
    return {"score": scores.Relative(draw.normal("vectors", 2 * size.keys - 1, size.d_key))}


def buckets(size: Sizes, draw: Draw) -> dict[str, Any]:
    return {"bias": biases.T5(draw.normal("buckets", 32, size.heads), True, size.keys)}


def row_bias(size: Sizes, draw: Draw) -> dict[str, Any]:
    return {"bias": biases.Dense(draw.normal("row", size.heads, 1, size.keys))}


def documents(size: Sizes, draw: Draw) -> dict[str, Any]:
    return {"mask": masks.Causal() & masks.Documents(torch.arange(size.keys) // 64)}


SETTINGS = {
    "dropout": Setting(Case(dropout=0.1, sizes=ONE)),
    "grouped heads, d_v ≠ d_k": Setting(Case(sizes=TWO)),
    "T5": Setting(Case(sizes=TWO), parts=buckets),
    "a distance table as long as the keys": Setting(Case(sizes=TWO), parts=offsets),
    "relative vectors for every offset": Setting(Case(sizes=TWO), parts=vectors),
    "a bias per key": Setting(Case(sizes=TWO), parts=row_bias),
    "sink": Setting(Case(normalizer="sink", sizes=TWO)),
    "temperature per head": Setting(Case(temperature="per head", sizes=TWO)),
    "documents": Setting(Case(sizes=ONE), parts=documents),
    "all statistics": Setting(Case(sizes=ONE), aux=AUX),
    "much at once": Setting(
        Case(score="additive", normalizer="sink", temperature="per head", dropout=0.1, sizes=TWO), AUX, offsets
    ),
}
NOT_LSE = tuple(name for name in AUX if name != "lse")
WHOLE_ROWS = {name: Setting(Case(normalizer=name, sizes=ONE), aux=NOT_LSE) for name in ("hard", "sparsemax")}
EVERYTHING = SETTINGS | WHOLE_ROWS


@pytest.mark.parametrize("name", SETTINGS)
def test_every_part_in_a_window(name: str) -> None:
    grows_with_the_length(SETTINGS[name], 1024, SMALL)


@pytest.mark.parametrize("name", ["dropout", "relative vectors for every offset", "hard", "sparsemax"])
def test_parts_that_meet_all_keys(name: str) -> None:
    grows_with_the_length(replace(EVERYTHING[name], window=False), 512, LARGE)


@pytest.mark.slow
@pytest.mark.parametrize("window", [True, False], ids=["window", "causal"])
@pytest.mark.parametrize("name", EVERYTHING)
def test_every_part_long(name: str, window: bool) -> None:
    # the profiler keeps every event: with 8,192 keys those of all tiles would take 17 GB
    grows_with_the_length(replace(EVERYTHING[name], window=window), 1024 if window else 512, LARGE)


@pytest.mark.parametrize(
    "name", ["dropout", "a distance table as long as the keys", "relative vectors for every offset"]
)
def test_each_doubling_adds_twice_as_much(name: str) -> None:
    """Sharper than the ratio, which forgives whatever is small beside a tile."""
    first, second, third = (extra(SETTINGS[name], n, SMALL)[0] for n in (1024, 2048, 4096))
    assert third - second <= 2.1 * (second - first)


def test_the_test_sees_a_square() -> None:
    """A score that makes a table of all pairs fails."""

    def dense(size: Sizes, draw: Draw) -> dict[str, Any]:
        n = size.keys
        return {"score": scores.Modified(scores.Dot(), lambda s, b, h, i, j: s + torch.zeros(n, n)[i, j])}

    with pytest.raises(AssertionError, match="times"):
        grows_with_the_length(Setting(Case(sizes=ONE), parts=dense), 256, SMALL)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_empty_tiles_cost_nothing(normalizer: str) -> None:
    """The work of a window grows with the length: every further row costs the same."""

    def flops(n: int) -> int:
        inputs, spec, leaves = Setting(Case(normalizer=normalizer, sizes=ONE)).call(n)
        with small_tiles(**SMALL), FlopCounterMode(display=False) as counter:
            out = attend(*inputs, **spec, engine="tiled")
            assert isinstance(out, Tensor)
            torch.autograd.grad(out.sum(), leaves, allow_unused=True)
        return int(counter.get_total_flops())

    first, second, third = flops(512), flops(1024), flops(1536)
    assert third - second == second - first > 0
