"""Nested and sparse tensors are refused by name wherever a tensor is taken."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard import (
    AttentionMatrix,
    attend,
    biases,
    explain,
    masks,
    matrix,
    nn,
    normalizers,
    plan,
    positions,
    scores,
    sdpa,
)

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

QUERY, KEY, VALUE = torch.zeros(3, 2, 2, 6, 4)


def wrapped(kind: str, tensor: Tensor) -> Tensor:
    """The tensor in another layout; a jagged one has rows of different length."""
    if kind == "sparse":
        return tensor.to_sparse()
    if kind == "jagged":
        found: Tensor = torch.nested.nested_tensor([tensor[0], tensor[1][:1]], layout=torch.jagged)
        return found
    return torch.nested.nested_tensor(list(tensor), layout=torch.strided)


INPUTS: dict[str, Callable[..., object]] = {
    "attend": attend,
    "attend by name": lambda q, k, v: attend(q, k, v, engine="reference"),
    "plan": plan,
    "sdpa": sdpa,
    "explain": explain,
    "matrix": lambda q, k, v: matrix(q, k),
}


@pytest.mark.parametrize("kind", ["strided", "jagged", "sparse"])
@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str, kind: str) -> None:
    for at, argument in enumerate(("query", "key", "value")[: 2 if name == "matrix" else 3]):
        inputs = [QUERY, KEY, VALUE]
        inputs[at] = wrapped(kind, torch.zeros(2, 2, 6, 4) if kind == "strided" else inputs[at][:, 0])
        with pytest.raises(TypeError, match=f"{argument} must be a dense tensor, got a sparse or nested one"):
            INPUTS[name](*inputs)


FLOATS: dict[str, Callable[[Tensor], object]] = {
    "bias": lambda x: attend(QUERY, KEY, VALUE, bias=x),
    "Dense bias": biases.Dense,
    "Distance": biases.Distance,
    "T5": biases.T5,
    "temperature": lambda x: attend(QUERY, KEY, VALUE, temperature=x),
    "sink": normalizers.Softmax,
    "General": scores.General,
    "Relative": scores.Relative,
    "weights": AttentionMatrix.from_weights,
    "rotary": positions.rotary,
    "layer": lambda x: nn.MultiHeadAttention(4, 2)(x),
}
INTEGERS: dict[str, Callable[[Tensor], object]] = {
    "Lengths": masks.Lengths,
    "Prefix": masks.Prefix,
    "Global": masks.Global,
    "Documents": masks.Documents,
    "Documents of queries": lambda x: masks.Documents([1, 2], x),
    "query_start": lambda x: attend(QUERY, KEY, VALUE, mask="causal", query_start=x),
    "positions": lambda x: positions.rotary(QUERY, positions=x),
    "start": lambda x: positions.rotary(QUERY, start=x),
}
BOOLS: dict[str, Callable[[Tensor], object]] = {
    "mask": lambda x: attend(QUERY, KEY, VALUE, mask=x),
    "Dense mask": masks.Dense,
    "Blocks": lambda x: masks.Blocks(2, x),
}


@pytest.mark.parametrize("kind", ["strided", "jagged", "sparse"])
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, *BOOLS])
def test_parts(name: str, kind: str) -> None:
    call = {**FLOATS, **INTEGERS, **BOOLS}[name]
    table = (
        torch.ones(2, 4, 4)
        if name in FLOATS
        else torch.ones(2, 3).long()
        if name in INTEGERS
        else torch.ones(2, 6, 6).bool()
    )
    with pytest.raises(TypeError, match="must be a dense tensor, got a sparse or nested one"):
        call(wrapped(kind, table))
