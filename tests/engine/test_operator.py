"""Both operators pass torch's own check: schema, twin, gradients, static and dynamic shapes."""

from typing import Any

import pytest
import torch

from regard.engine import operator
from regard.engine.operator import backward_names, names_in
from regard.engine.request import AUX
from regard.spec.serialize import OperatorInputs, encoded
from regard.testing import Case

# case, dtype, statistics, what is kept for backward, whether gradients are wanted
SAMPLES: dict[str, tuple[Case, torch.dtype, str, str, bool]] = {
    "plain": (Case(), torch.float32, "", "", False),
    "kept": (Case(mask="causal"), torch.float32, "", "state,at,native", True),
    "computed again": (Case(bias="t5", normalizer="hard"), torch.float32, "entropy,peak_at", "", True),
    "statistics": (Case(temperature="per head"), torch.float32, ",".join(AUX), "state,at,native", True),
    "sink": (Case(normalizer="sink"), torch.float64, "entropy", "state,at,native", True),
    "half": (Case(mask="lengths", bias="dense"), torch.bfloat16, "lse", "state,at,native,out", True),
}


def arguments(case: Case, dtype: torch.dtype, aux: str, keeps: str, grad: bool) -> tuple[Any, ...]:
    inputs, spec, leaves = case.build(dtype)
    for leaf in leaves.values():
        leaf.requires_grad_(grad)
    held = OperatorInputs([], [], [])
    text = encoded(tuple(spec[name] for name in operator.ARGUMENTS), held)
    return (*inputs, *held, text, aux, "auto", keeps)


# opcheck of torch 2.15 reads .grad of what is not a leaf
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
def test_forward_passes_torchs_check(sample: tuple[Case, torch.dtype, str, str, bool]) -> None:
    torch.library.opcheck(torch.ops.regard.attend.default, arguments(*sample))


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
def test_backward_passes_torchs_check(sample: tuple[Case, torch.dtype, str, str, bool]) -> None:
    case, dtype, aux, keeps, _ = sample
    given = arguments(case, dtype, aux, keeps, False)
    found = torch.ops.regard.attend(*given)
    names = ("out", *names_in(aux))
    grads = [torch.randn_like(found[0]), *(None for _ in names[1:])]
    named = dict(zip((*names, *names_in(keeps)), found, strict=True))
    results = [named[name] for name in backward_names(aux, keeps)]
    query, key, value, tensors, *rest = given
    inputs = [query, key, value, *tensors]
    needed = [tensor.is_floating_point() for tensor in inputs]
    torch.library.opcheck(torch.ops.regard.attend_backward.default, (grads, inputs, results, needed, *rest))
