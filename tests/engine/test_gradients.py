"""First and second derivatives against finite differences, for every mechanism, on both engines."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from regard import attend
from regard.testing import Case, Sizes, mechanisms, small_tiles

SIZES = Sizes(batch=1, kv_heads=1, group=2, queries=3, keys=5, d_key=2, d_value=3, query_start=1)
TOLERANCE = {"atol": 1e-7, "rtol": 1e-5}


def checked(case: Case, engine: str, check: object) -> None:
    small = Case(**{**vars(case), "sizes": SIZES, "seed": 3})
    inputs, spec, leaves = small.build()
    softmax = small.normalizer in ("softmax", "sink", "zero sink")

    def work(*tensors: Tensor) -> tuple[Tensor, ...]:
        out, aux = attend(*inputs, **spec, aux=("lse", "entropy") if softmax else ("entropy",), engine=engine)
        lse = () if aux.lse is None else (torch.where(aux.lse.isfinite(), aux.lse, 0.0),)
        return (out, aux.entropy, *lse)

    with small_tiles(2, 2):
        assert check(work, tuple(leaves.values()), **TOLERANCE)  # type: ignore[operator]


@pytest.mark.parametrize("engine", ["reference", "tiled", "native"])
@pytest.mark.parametrize("case", mechanisms(), ids=str)
def test_first_derivatives(case: Case, engine: str) -> None:
    checked(case, engine, gradcheck)


@pytest.mark.parametrize("engine", ["reference", "tiled", "native"])
@pytest.mark.parametrize("case", mechanisms(), ids=str)
def test_second_derivatives(case: Case, engine: str) -> None:
    checked(case, engine, gradgradcheck)
