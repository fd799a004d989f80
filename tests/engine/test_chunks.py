"""Keys in pieces give what one call over all of them gives under a mask that hides the rest."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import Dropout, attend, biases, masks, normalizers, scores
from regard.engine.partial import KeyChunk, attend_chunks

WEIGHTS = torch.randn(2, 5, 8, dtype=torch.float64)
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": masks.Causal()},
    "window": {"mask": masks.Window(5, 2)},
    "alibi": {"mask": masks.Causal(), "bias": biases.ALiBi(4)},
    "distance": {"bias": biases.Distance(torch.randn(4, 15, dtype=torch.float64))},
    "t5": {"bias": biases.T5(torch.randn(8, 4, dtype=torch.float64), True, 20)},
    "prefix": {"mask": masks.Causal() | masks.Prefix(6)},
    "documents": {"mask": masks.Documents(torch.arange(30) // 7)},
    "relative": {"score": scores.Relative(torch.randn(9, 8, dtype=torch.float64))},
    "additive": {"score": scores.Additive(WEIGHTS[0], WEIGHTS[1], WEIGHTS[0, :, 0])},
    "sink": {"normalizer": normalizers.Softmax(torch.randn(4, dtype=torch.float64))},
    "one sink": {"normalizer": normalizers.Softmax(0.5), "temperature": 0.7},
    "dropout": {"dropout": Dropout(0.3, 5)},
}


@pytest.mark.parametrize("engine", ["native", "tiled", "reference"])
@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=12)
@given(data=st.data())
def test_pieces_are_one_call_with_holes(name: str, engine: str, data: st.DataObject) -> None:
    if engine == "native" and name == "relative":
        engine = "tiled"
    cuts = sorted(data.draw(st.lists(st.integers(0, 30), min_size=2, max_size=6, unique=True)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    start = data.draw(st.integers(0, 26))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    q = torch.randn(2, 4, 4, 8, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 2, 30, 8, dtype=torch.float64, requires_grad=True)
    v = torch.randn(2, 2, 30, 3, dtype=torch.float64, requires_grad=True)
    spec: dict[str, Any] = {"mask": None, "dropout": 0.0, "bias": None, "score": scores.ScaledDot(), "temperature": 1.0}
    spec |= {"normalizer": normalizers.Softmax(), "query_start": start} | SPECS[name]
    pieces = [KeyChunk(k[..., a:b, :], v[..., a:b, :], a) for a, b in spans]
    found = attend_chunks(q, pieces, engine=engine, **spec)
    kept = torch.zeros(30, dtype=torch.bool)
    for a, b in spans:
        kept[a:b] = True
    mask = masks.Dense(kept.expand(4, 30)) & (spec["mask"] if spec["mask"] is not None else masks.Full())
    right = attend(q, k, v, engine="reference", **(spec | {"mask": mask}))
    torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-11)
    weight = torch.randn_like(found)
    grads = [torch.autograd.grad((out * weight).sum(), (q, k, v)) for out in (found, right)]
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


def test_normalizers_that_cannot_be_merged_are_refused() -> None:
    q, k, v = torch.randn(3, 1, 2, 4, 8)
    pieces = [KeyChunk(k, v), KeyChunk(k, v, 10)]
    spec: dict[str, Any] = {"mask": None, "dropout": 0.0, "bias": None, "score": scores.Dot(), "temperature": 1.0}
    with pytest.raises(ValueError, match="merged by their lse, which Sparsemax"):
        attend_chunks(q, pieces, normalizer=normalizers.Sparsemax(), query_start=0, **spec)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_dtype_stays(dtype: torch.dtype) -> None:
    q, k, v = torch.randn(3, 1, 2, 4, 8).to(dtype)
    spec: dict[str, Any] = {"mask": None, "dropout": 0.0, "bias": None, "score": scores.Dot(), "temperature": 1.0}
    for pieces in ([KeyChunk(k, v)], [KeyChunk(k, v, 3)], [KeyChunk(k, v), KeyChunk(k, v, 10)]):
        assert attend_chunks(q, pieces, normalizer=normalizers.Softmax(), query_start=0, **spec).dtype == dtype
