"""torch.onnx.export writes attend as operators that ONNX has; ONNX Runtime gives our numbers to 1e-5."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from regard import Dropout, Ring, attend, biases, masks, normalizers, scores, sdpa
from regard.engine.request import AUX
from regard.testing import Case, mechanisms
from tests.engine.onnx_runtime import DYNAMIC, IGNORED, assert_same, exported

pytestmark = [pytest.mark.filterwarnings(text) for text in IGNORED]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Calls(nn.Module):
    """Several results of the same inputs, by name."""

    def __init__(self, calls: Callable[..., dict[str, Tensor]]) -> None:
        super().__init__()
        self.calls = calls
        self.names = ""  # one line each: torch 2.9 refuses to export a module whose lists change

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        results = self.calls(*inputs)
        self.names = "\n".join(results)
        return list(results.values())


class NamedInputs(Calls):
    """The same with a name for each input: torch 2.9 cannot export `*inputs` with dynamic sizes."""

    def forward(  # type: ignore[override]
        self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, ids: Tensor, prefix: Tensor, padding: Tensor
    ) -> list[Tensor]:
        return super().forward(q, k, v, lengths, ids, prefix, padding)


def one(call: Callable[..., Tensor]) -> Calls:
    return Calls(lambda *inputs: {"out": call(*inputs)})


CASES = [case for case in mechanisms() if not case.dropout]


OPSETS = [None, *(pytest.param(opset, marks=pytest.mark.slow) for opset in (20, 23))]
FEW = ("general per head", "soft-capped additive", "transformer-xl", "where", "causal t5", "window sink", "per head")


@pytest.mark.parametrize("opset", OPSETS)
def test_every_mechanism(opset: int | None) -> None:
    specs, cases = {}, [case for case in CASES if opset or str(case) in FEW]
    for number, case in enumerate(cases):
        _, specs[str(number)], leaves = case.build(torch.float32)
        for leaf in leaves.values():  # constants of the graph
            leaf.requires_grad_(False)
    module = Calls(lambda *qkv: {name: attend(*qkv, **spec) for name, spec in specs.items()})
    inputs = [tensor.detach() for tensor in Case().build(torch.float32)[0]]
    results = exported(module, inputs, opset=opset, optimize=opset is not None)(*inputs)
    for case, found in zip(cases, results, strict=True):
        _, spec, _ = case.build(torch.float64, through=torch.float32)
        right = attend(*(tensor.double() for tensor in inputs), engine="reference", **spec)
        assert_same(found, right, str(case))


CAUSAL, WINDOW = masks.Causal(), masks.Window(2, 1)
LAYOUT = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=torch.bool)
T5 = biases.T5(torch.linspace(-1, 1, 32).view(8, 4), True, 10)
DISTANCE = biases.Distance(torch.linspace(-1, 1, 20).view(4, 5))
RELATIVE = scores.Relative(torch.linspace(-1, 1, 40).view(5, 8))


def statistics(*qkv: Tensor, **spec: Any) -> Tensor:
    """All of them in one tensor."""
    _, aux = attend(*qkv, aux=AUX, **spec)
    return torch.cat([getattr(aux, name).double() for name in AUX], -1)


# calls whose sizes and positions are known only when the graph runs; `more` are lengths, ids, starts and padding
DYNAMIC_CALLS: dict[str, Callable[..., Tensor]] = {
    "causal, queries at the end": lambda q, k, v, *more: attend(q, k, v, mask="causal"),
    "causal, one start for each row": lambda q, k, v, *more: attend(q, k, v, mask="causal", query_start=more[2]),
    "t5": lambda q, k, v, *more: attend(q, k, v, bias=T5, query_start=more[2]),
    "lengths": lambda q, k, v, *more: attend(q, k, v, mask=masks.Lengths(more[0])),
    "documents": lambda q, k, v, *more: attend(k, k, v, mask=masks.Documents(more[1])),
    "statistics": lambda q, k, v, *more: statistics(q, k, v, mask=WINDOW),
    "causal, queries at 0": lambda q, k, v, *more: attend(q, k, v, mask="causal", query_start=0),
    "causal, start of a size": lambda q, k, v, *more: attend(
        q, k, v, mask="causal", query_start=k.shape[2] - q.shape[2] - 1
    ),
    "alibi": lambda q, k, v, *more: attend(q, k, v, mask=WINDOW, bias=biases.ALiBi(4)),
    "distance": lambda q, k, v, *more: attend(q, k, v, bias=DISTANCE, query_start=more[2]),
    "relative": lambda q, k, v, *more: attend(q, k, v, score=RELATIVE, query_start=more[2]),
    "lengths, causal": lambda q, k, v, *more: attend(q, k, v, mask=masks.Lengths(more[0]) & CAUSAL, query_start=0),
    "documents, start": lambda q, k, v, *more: attend(q, k, v, mask=masks.Documents(more[1]), query_start=1),
    "longformer": lambda q, k, v, *more: attend(q, k, v, mask=masks.longformer(3, [0])),
    "prefix": lambda q, k, v, *more: attend(q, k, v, mask=CAUSAL | masks.Prefix(more[0])),
    "padding": lambda q, k, v, *more: attend(q, k, v, mask=masks.from_padding(more[3])),
    "dense": lambda q, k, v, *more: attend(q, k, v, mask=(more[3] == 1)[:, None, None]),
    "where": lambda q, k, v, *more: attend(q, k, v, mask=masks.Where(lambda b, h, i, j: (i - j) % (h + 2) == 0)),
    "modified": lambda q, k, v, *more: attend(
        q, k, v, score=scores.Modified(scores.ScaledDot(), lambda s, b, h, i, j: s + 0.1 * h * (i - j))
    ),
    "blocks": lambda q, k, v, *more: attend(q, k, v, mask=masks.Blocks(8, LAYOUT)),
    "sink": lambda q, k, v, *more: attend(q, k, v, normalizer=normalizers.Softmax(1.0), mask=WINDOW),
    "one batch row of keys": lambda q, k, v, *more: attend(q, k[:1], v[:1]),
    "three axes": lambda q, k, v, *more: attend(q[0], k[0], v[0]),
    "two axes": lambda q, k, v, *more: attend(q[0, 0], k[0, 0], v[0, 0], mask="causal"),
    "five axes": lambda q, k, v, *more: attend(q[None], k[None], v[None], mask="causal"),
    "sdpa": lambda q, k, v, *more: sdpa(q, k, v, is_causal=True, enable_gqa=True),
}


def drawn(batch: int, queries: int, keys: int) -> list[Tensor]:
    return [
        torch.randn(batch, 4, queries, 8),
        torch.randn(batch, 2, keys, 8),
        torch.randn(batch, 2, keys, 6),
        torch.randint(0, keys + 1, (batch,)),
        torch.randint(0, 3, (batch, keys)),
        torch.randint(0, 4, (batch,)),
        torch.randint(0, 2, (batch, keys)),
    ]


@pytest.mark.parametrize("opset", OPSETS)
def test_any_batch_and_length(opset: int | None) -> None:
    """Without an opset, a few calls; with one, all of them and as users export them."""
    calls = dict(list(DYNAMIC_CALLS.items())[: None if opset else 6])
    module = NamedInputs(lambda *inputs: {name: call(*inputs) for name, call in calls.items()})
    both, first = {0: DYNAMIC, 1: DYNAMIC}, {0: DYNAMIC}
    dims = (*[{0: DYNAMIC, 2: DYNAMIC}] * 3, first, both, first, both)
    run = exported(module, drawn(2, 5, 7), dims, opset=opset, optimize=opset is not None)
    for sizes in ((2, 5, 7), (3, 9, 20), (1, 3, 4), (2, 1, 6)):
        inputs = drawn(*sizes)
        found, right = run(*inputs), module(*inputs)
        for name, ours, theirs in zip(module.names.split("\n"), right, found, strict=True):
            assert_same(theirs, ours, f"{name} at {sizes}")


def test_a_plain_call_is_one_attention() -> None:
    """Opset 23 has an operator for it; before, it is two products around a softmax."""
    inputs = [torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)]
    module = Calls(lambda q, k, v: {"causal": attend(q, k, v, mask="causal"), "full": attend(q, k, v, temperature=2.0)})
    run = exported(module, inputs, opset=23)
    assert run.operators.count("Attention") == 2
    assert "Softmax" not in run.operators
    for found, right in zip(run(*inputs), module(*inputs), strict=True):
        assert_same(found, right)
    earlier = exported(module, inputs, opset=20)
    assert (earlier.operators.count("Softmax"), earlier.operators.count("MatMul")) == (2, 4)


def test_an_exported_program() -> None:
    """Its one operator is decomposed by torch.onnx.export alone."""

    def call(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        bias = biases.T5(torch.linspace(-1, 1, 16).view(4, 4)) + biases.ALiBi(4)
        out, aux = attend(q, k, v, mask=masks.Lengths(lengths) & masks.Window(3, 0), bias=bias, aux=("lse", "peak_at"))
        assert aux.lse is not None
        assert aux.peak_at is not None
        plain = attend(q, k, v, mask="causal", normalizer=normalizers.Softmax(0.5)) + attend(q, k, v)
        return {"out": out, "lse": aux.lse, "peak_at": aux.peak_at, "plain": plain}

    inputs = [*torch.randn(3, 2, 4, 6, 8), torch.tensor([6, 3])]
    dims = ({0: DYNAMIC, 2: DYNAMIC},) * 3 + ({0: DYNAMIC},)
    module = Calls(call)
    program = torch.export.export(module, tuple(inputs), dynamic_shapes={"inputs": dims})
    assert str(program.graph).count("regard.attend.default") == 3
    assert str(program.run_decompositions().graph).count("regard.attend.default") == 3
    run = exported(program, inputs)
    for given in (inputs, [*torch.randn(3, 3, 4, 11, 8), torch.tensor([11, 0, 7])]):
        rights = module(*given)
        for name, found, right in zip(module.names.split("\n"), run(*given), rights, strict=True):
            assert_same(found, right, name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_other_precisions(dtype: torch.dtype) -> None:
    inputs = list(torch.randn(3, 2, 4, 6, 8).to(dtype))
    module = Calls(
        lambda q, k, v: {
            "causal": attend(q, k, v, mask="causal"),
            "window": attend(q, k, v, mask=masks.Window(2, 1)),
            "sink": attend(q, k, v, normalizer=normalizers.Softmax(0.0)),
        }
    )
    for found, right in zip(exported(module, inputs)(*inputs), module(*inputs), strict=True):
        assert found.dtype == dtype
        # numbers such as 1/√d are float32 in a graph, also among float64
        budget = 2 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
        torch.testing.assert_close(found, right, atol=budget, rtol=budget)


def test_empty_rows_and_hidden_numbers() -> None:
    """A row that sees no key is 0; a hidden NaN or Inf has no influence, a visible one makes its rows NaN."""
    q, k, v = torch.randn(3, 1, 2, 6, 4)
    k[:, 0, 4], v[:, 1, 5, 0] = torch.nan, torch.inf
    lengths = torch.tensor([4])

    def calls(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        return {
            "hidden": attend(q, k, v, mask=masks.Lengths(lengths)),
            "hidden, with a sink": attend(q, k, v, mask=masks.Lengths(lengths), normalizer=normalizers.Softmax(0.0)),
            "empty": attend(q, k, v, mask=masks.Window(-5, 5)),
            "empty, additive": attend(
                q, k, v, mask=masks.Window(-5, 5), score=scores.Additive(torch.eye(4), torch.eye(4), torch.ones(4))
            ),
        }

    module = Calls(calls)
    hidden, sink, *empty = exported(module, [q, k, v])(q, k, v)
    right = module(q, k, v)
    for found, ours in zip((hidden, sink), right, strict=False):
        assert_same(found, ours)
    for found in empty:
        assert bool((found[:, 0, :, 0] == 0).any())
        assert torch.equal(found.isnan().any(-1), ~right[2].isfinite().all(-1))
        assert_same(found[:, :, 1:], torch.zeros_like(found[:, :, 1:]))


def refused(module: nn.Module | Any, inputs: list[Tensor], text: str) -> None:
    with pytest.raises(Exception, match=text):
        exported(module, inputs, train=True)


def test_refusals() -> None:
    inputs = list(torch.randn(3, 1, 2, 6, 4))

    def by_data(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j if bool((i > 3).any()) else i > j

    refused(one(lambda q, k, v: attend(q, k, v, dropout=Dropout(0.25, 1))), inputs, "dropped with probability 0.25")
    refused(one(lambda q, k, v: attend(q, k, v, mask=masks.Where(by_data))), inputs, "decides by the numbers")
    refused(one(lambda q, k, v: attend(q, k, v[:, :, :3])), inputs, "key and value must have the same length")
    ring = object.__new__(Ring)
    refused(one(lambda q, k, v: attend(q, k, v, engine=ring)), inputs, "a Ring has several; leave out engine=")


def test_dropout_of_an_exported_program_is_refused() -> None:
    inputs = list(torch.randn(3, 1, 2, 6, 4))
    program = torch.export.export(one(lambda q, k, v: attend(q, k, v, dropout=0.5)), tuple(inputs))
    refused(program, inputs, r"dropped with probability 0.5.*call \.eval\(\)")
