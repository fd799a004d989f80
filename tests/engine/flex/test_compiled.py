"""One kernel for each structure: lengths, positions and tables may differ, and torch's compiler agrees."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from regard import attend, biases, masks, scores
from regard.engine.flex import call
from regard.engine.flex.mods import signature
from regard.testing import PRODUCTS, Case, Sizes, assert_within, error, mechanisms

TORCHS_OWN = pytest.mark.filterwarnings("ignore:.*torch.jit.script")
pytestmark = [TORCHS_OWN, pytest.mark.skipif(not torch.cpu._is_avx2_supported(), reason="torch has no kernel here")]


@pytest.fixture
def _traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch traces and counts as ever, but makes no machine code, which takes it half a minute."""
    monkeypatch.setattr(call, "BACKEND", "eager")
    call._kernel.cache_clear()
    yield
    call._kernel.cache_clear()


traced = pytest.mark.usefixtures("_traced")


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def check(n: int, batch: int = 2, **spec: Any) -> int:
    """How many graphs a call of this length takes; its numbers are right."""
    draw = torch.Generator().manual_seed(n)
    q, k, v = (torch.randn(batch, heads, n, d, generator=draw) for heads, d in ((4, 16), (2, 16), (2, 24)))
    before = graphs()
    with torch.no_grad():
        found = attend(q, k, v, **spec, engine="flex")
        right = attend(q, k, v, **spec, engine="reference")
    assert error(found, right) < 1e-6
    return graphs() - before


@traced
def test_two_compilations_for_any_length() -> None:
    spec: dict[str, Any] = {"mask": masks.Causal() & masks.Window(70, 0), "bias": biases.ALiBi(4)}
    assert sum(check(n, **spec) for n in (200, 300, 100, 129, 2)) == 2


@traced
def test_other_tensors_are_the_same_structure() -> None:
    def spec(seed: int) -> dict[str, Any]:
        draw = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, 3, (2, 200), generator=draw).sort().values
        prefix = masks.Prefix(seed) if seed % 2 else masks.Prefix(torch.tensor([seed, 9]))
        return {
            "mask": (masks.Causal() | prefix) & masks.Documents(ids) & masks.Lengths([200, 100 + seed]),
            "bias": biases.T5(torch.randn(8, 4, generator=draw), max_distance=20),
            "temperature": torch.rand(4, generator=draw) + 0.5,
            "query_start": 0 if seed % 2 else torch.tensor([0, 0]),
        }

    assert check(200, **spec(1)) == 1
    assert sum(check(200, **spec(seed)) for seed in (2, 3, 4)) == 0


@traced
def test_more_structures_than_torch_compiles_one_function_for() -> None:
    with torch._dynamo.config.patch(recompile_limit=2):
        assert [check(50, mask=masks.Window(width, 0)) for width in range(3)] == [1, 1, 1]
        assert [check(50, mask=masks.Window(width, 0)) for width in range(3)] == [0, 0, 0]


@traced
def test_functions_are_known_by_their_code() -> None:
    def far(width: int) -> masks.Mask:
        return masks.Where(lambda b, h, i, j: (i - j).abs() > width)

    assert [check(50, mask=far(width)) for width in (3, 4, 3)] == [1, 1, 0]

    def louder(factor: Tensor) -> scores.Score:
        return scores.Modified(scores.Dot(), lambda s, b, h, i, j: s * factor[h])

    assert [check(50, score=louder(torch.rand(4))) for _ in range(2)] == [1, 0]


def test_signatures() -> None:
    def made(width: Any) -> Any:
        return lambda b, h, i, j: i - j < width

    class Called:
        def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return i > j

    assert signature(made(3)) == signature(made(3)) != signature(made(4))
    assert signature(made(torch.ones(2))) == signature(made(torch.zeros(3)))
    one, other = Called(), Called()
    assert signature(one) == signature(one) != signature(other)


SERVED = [case for case in dict.fromkeys(mechanisms()) if case.score in [*PRODUCTS, "modified"]]
SERVED = [case for case in SERVED if case.normalizer == "softmax" and not case.dropout]
LONG = Sizes(queries=150, keys=290, d_key=20, d_value=24, query_start=140)


def compiled(case: Case, dtype: torch.dtype = torch.float32) -> None:
    (inputs, spec, _), (wide, wider, _) = case.build(dtype), case.build(torch.float64, through=dtype)
    before = graphs()
    with torch.no_grad():
        found = attend(*inputs, **spec, engine="flex")
        plain = attend(*inputs, **spec, engine="reference")
        truth = attend(*wide, **wider, engine="reference")
    assert graphs() - before <= 1
    assert isinstance(found, Tensor)
    assert isinstance(plain, Tensor)
    assert isinstance(truth, Tensor)
    if dtype == torch.float32:
        assert_within(found, plain, truth)
    else:  # weights are rounded before they meet the values
        assert error(found, truth) <= max(2 * error(plain, truth), 2 * torch.finfo(dtype).eps)


@traced
@pytest.mark.parametrize("case", SERVED[1::6], ids=str)
def test_torch_can_trace_it(case: Case) -> None:
    compiled(replace(case, sizes=LONG))


@pytest.mark.slow
@pytest.mark.parametrize("case", SERVED, ids=str)
def test_every_compiled_mechanism_agrees(case: Case) -> None:
    compiled(replace(case, sizes=LONG))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_compiled_halves_agree(dtype: torch.dtype) -> None:
    compiled(Case(mask="window", bias="alibi", sizes=LONG), dtype)
