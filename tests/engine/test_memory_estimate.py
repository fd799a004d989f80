"""MemoryCounter counts what torch's allocator counts, and bytes found by weighing a part are those of the whole."""

from collections.abc import Callable

import pytest
import torch

from regard import attend
from regard.engine.memory import MemoryCounter
from regard.engine.request import AUX
from regard.testing import Case, Sizes, mechanisms, peak_bytes

SIZES = Sizes(batch=2, kv_heads=2, group=2, queries=150, keys=163, d_key=5, d_value=7, query_start=2)
SCALARS = 64  # bytes of the numbers that torch wraps in passing, unseen


def test_it_counts_from_making_to_freeing() -> None:
    before = torch.zeros(100)
    with MemoryCounter() as memory:
        first = torch.zeros(1000)
        assert (memory.held, memory.peak) == (4000, 4000)
        second = first.exp() + before[0]
        assert (memory.held, memory.peak) == (8000, 12000)
        view = second.view(10, 100)[3:]
        del first, second
        assert memory.held == 4000  # a view keeps what it looks at
        before.add_(1.0)
        assert memory.held == 4000
        del view
    assert (memory.held, memory.peak) == (0, 12000)


def test_what_outlives_the_block_is_still_followed() -> None:
    with MemoryCounter() as memory:
        kept = torch.zeros(10)
    assert memory.held == 40
    del kept
    assert memory.held == 0


def test_it_sees_casts_that_torch_makes_unseen() -> None:
    whole, mask = torch.zeros(1000, dtype=torch.int64), torch.zeros(1000, dtype=torch.bool)
    works: list[Callable[[], object]] = [
        lambda: torch.ones(1000) * whole,
        lambda: 0.5 * whole,
        lambda: mask.sum(),
        lambda: mask.cumsum(0),
    ]
    for work in works:
        with MemoryCounter() as memory:
            work()
        assert memory.peak == pytest.approx(peak_bytes(work)[0], abs=SCALARS)


def test_tensors_without_content_have_their_size() -> None:
    with MemoryCounter() as memory:
        torch.empty(1 << 40, device="meta").exp()
    assert memory.peak == 2 * 4 << 40


@pytest.mark.parametrize("engine", ["tiled", "reference"])
@pytest.mark.parametrize("case", mechanisms(), ids=str)
def test_it_agrees_with_the_allocator(case: Case, engine: str) -> None:
    inputs, spec, _ = Case(**{**vars(case), "sizes": SIZES}).build(torch.float32)
    aux = AUX if case.normalizer in ("softmax", "sink", "zero sink") else AUX[1:]

    def work() -> object:
        return attend(*inputs, **spec, aux=aux, engine=engine)

    most, held = peak_bytes(work)
    with MemoryCounter() as memory:
        kept = work()
    assert held - SCALARS <= memory.held <= held
    assert most - SCALARS <= memory.peak <= most
    del kept
