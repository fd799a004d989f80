"""torch.compile and torch.export see one operator, and give the bits of eager, forward and backward."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from regard import Aux, Dropout, attend, biases, masks, normalizers, scores
from regard.engine.native import autograd
from regard.engine.native.engine import NAME
from regard.engine.native.library import library, run_kernel
from regard.engine.request import AUX
from regard.spec.serialize import storable
from regard.testing import Case, mechanisms

TORCHS_OWN = pytest.mark.filterwarnings("ignore:.*torch.jit.script")
native_only = pytest.mark.skipif(library() is None, reason="the C++ core was not built")
Tensors = dict[str, Tensor]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], backend: Any = "aot_eager", **kw: Any) -> Callable[..., Any]:
    """In one graph: a break is an error."""
    return torch.compile(function, backend=backend, fullgraph=True, **kw)


def named(found: Tensor | tuple[Tensor, Aux]) -> Tensors:
    if isinstance(found, Tensor):
        return {"out": found}
    return {"out": found[0], **{name: getattr(found[1], name) for name in AUX if getattr(found[1], name) is not None}}


def loss_of(results: Tensors) -> Tensor:
    """A fixed random functional of everything that has a gradient."""
    generator = torch.Generator().manual_seed(1)
    total = torch.zeros(())
    for tensor in results.values():
        if tensor.requires_grad:
            weight = torch.randn(tensor.shape, generator=generator)
            total = total + (weight * torch.where(tensor.isfinite(), tensor, 0.0)).sum()
    return total


def assert_same(
    call: Callable[..., Any], inputs: list[Tensor], leaves: list[Tensor], backend: Any = "aot_eager"
) -> None:
    """Bit for bit: results, which of them have gradients, and the gradients."""
    plain, found = named(call(*inputs)), named(compiled(call, backend)(*inputs))
    assert plain.keys() == found.keys()
    for name, right in plain.items():
        assert found[name].dtype == right.dtype, name
        assert found[name].requires_grad == right.requires_grad, name
        assert torch.equal(found[name].nan_to_num(7.5), right.nan_to_num(7.5)), name
    if leaves:
        truth = torch.autograd.grad(loss_of(plain), leaves)
        for number, (right, grad) in enumerate(zip(truth, torch.autograd.grad(loss_of(found), leaves), strict=True)):
            assert torch.equal(grad, right), number


def check(case: Case, aux: bool, dtype: torch.dtype = torch.float32, **kw: Any) -> None:
    inputs, spec, leaves = case.build(dtype)
    names = tuple(name for name in AUX if name != "lse" or isinstance(spec["normalizer"], normalizers.Softmax))
    names = names if aux else ()
    spec.update(kw, aux=names)
    assert_same(lambda *qkv: attend(*qkv, **spec), inputs, list(leaves.values()))


CASES = [
    Case(mask="causal"),
    Case(mask="lengths", bias="t5", normalizer="sink", temperature="per head"),
    Case(mask="packed", bias="dense"),
    Case(mask="dense", bias="hiding", score="soft-capped"),
    Case(score="general per head", mask="blocks", bias="sum", temperature="learned"),
    Case(score="additive", mask="prefix"),
    Case(normalizer="sparsemax", mask="global", dropout=0.3),
]


@pytest.mark.parametrize("aux", [False, True], ids=["plain", "aux"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_equals_eager(case: Case, aux: bool) -> None:
    check(case, aux)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_every_precision(dtype: torch.dtype) -> None:
    check(Case(mask="causal", bias="alibi", normalizer="sink"), True, dtype)


STORED = [case for case in mechanisms() if storable(tuple(case.build()[1].values()))]


@pytest.mark.slow
@pytest.mark.parametrize("aux", [False, True], ids=["plain", "aux"])
@pytest.mark.parametrize("case", STORED, ids=str)
def test_every_mechanism_compiled_equals_eager(case: Case, aux: bool) -> None:
    check(case, aux)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", [case for case in STORED if case.product], ids=str)
def test_every_native_mechanism_in_every_precision(case: Case, dtype: torch.dtype) -> None:
    check(case, False, dtype)


@pytest.mark.parametrize("engine", ["tiled", "reference"])
def test_an_engine_by_name(engine: str) -> None:
    check(Case(mask="causal", bias="t5", normalizer="sink"), True, torch.bfloat16, engine=engine)


SHAPES = {
    "two axes": ((5, 4), (7, 4), (7, 3)),
    "three axes": ((6, 5, 4), (2, 7, 4), (2, 7, 3)),
    "mixed": ((5, 4), (1, 7, 4), (7, 3)),
    "five axes": ((2, 1, 4, 5, 4), (3, 2, 7, 4), (1, 3, 2, 7, 3)),
    "broadcast": ((2, 4, 5, 4), (1, 1, 7, 4), (1, 7, 3)),
    "no queries": ((2, 4, 0, 4), (2, 2, 7, 4), (2, 2, 7, 3)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
def test_axes(shapes: tuple[tuple[int, ...], ...]) -> None:
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    assert_same(lambda *qkv: attend(*qkv, normalizer=normalizers.Softmax(0.5), aux=("lse", "received")), inputs, inputs)


def test_parts_made_inside_the_compiled_function() -> None:
    def call(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, ids: Tensor, table: Tensor) -> Any:
        mask = (masks.Lengths(lengths) & masks.Documents(ids) & masks.Causal()) | masks.Global([0, 0])
        return attend(q, k, v, mask=mask, bias=biases.T5(table) + biases.ALiBi(4), query_start=0, aux="peak_at")

    q, k, v = (torch.randn(2, 4, 9, 8, requires_grad=True) for _ in range(3))
    table = torch.randn(32, 4, requires_grad=True)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2, 2], [5, 4, 4, 4, 4, 0, 0, 0, 0]])
    assert_same(call, [q, k, v, torch.tensor([9, 6]), ids, table], [q, k, v, table])


def test_lengths_are_checked_when_the_graph_runs() -> None:
    call = compiled(lambda q, lengths: attend(q, q, q, mask=masks.Lengths(lengths)))
    q = torch.randn(2, 1, 3, 4)
    call(q, torch.tensor([3, 1]))
    with pytest.raises(ValueError, match="Lengths must not be negative, got -1"):
        call(q, torch.tensor([3, -1]))
    with pytest.raises(ValueError, match="Lengths must not exceed the number of keys, got 4 for 3 keys"):
        call(q, torch.tensor([3, 4]))


def test_twenty_lengths_need_two_compilations() -> None:
    counter = CompileCounterWithBackend("aot_eager")

    def call(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, sink: Tensor) -> Tensor:
        return attend(q, k, v, mask=masks.Causal() & masks.Lengths(lengths), normalizer=normalizers.Softmax(sink))

    run = compiled(call, counter)
    for length in range(3, 23):
        q, k, v = (torch.randn(2, 4, length, 8, requires_grad=True) for _ in range(3))
        sink = torch.randn(4, requires_grad=True)
        rest = (torch.tensor([length, 2]), sink)
        out, plain = run(q, k, v, *rest), call(q, k, v, *rest)
        assert torch.equal(out, plain)
        for grad, right in zip(*(torch.autograd.grad(o.sum(), (q, k, v, sink)) for o in (out, plain)), strict=True):
            assert torch.equal(grad, right)
    assert counter.frame_count <= 2


def test_a_growing_cache_needs_two_compilations() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    run = compiled(lambda q, k, v, start: attend(q, k, v, mask="causal", query_start=start), counter)
    k, v = torch.randn(2, 1, 2, 40, 4)
    for start in range(2, 22):
        q = torch.randn(1, 2, 1, 4)
        found = run(q, k[..., : start + 1, :], v[..., : start + 1, :], start)
        right = attend(q, k[..., : start + 1, :], v[..., : start + 1, :], mask="causal", query_start=start)
        assert torch.equal(found, right)
    assert counter.frame_count <= 3  # one key and no key are always cases of their own


@native_only
@pytest.mark.parametrize("spec", [{}, {"normalizer": normalizers.Softmax(0.3), "aux": ("entropy", "peak")}], ids=str)
def test_backward_does_not_run_forward_again(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def counting(name: str, *rest: Any) -> int:
        counted.append(name)
        return run_kernel(name, *rest)

    monkeypatch.setattr(autograd, "run_kernel", counting)
    q, k, v = (torch.randn(1, 2, 5, 4, requires_grad=True) for _ in range(3))
    run = compiled(lambda *qkv: attend(*qkv, score=scores.Cosine(2.0), **spec))
    loss_of(named(run(q, k, v))).backward()
    assert counted == ["regard_forward", "regard_backward"]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite(bad: float) -> None:
    inputs = [torch.randn(1, 2, 6, 4) for _ in range(3)]
    inputs[1][0, 0, 4, 1] = bad
    inputs[2][0, 1, 5, 0] = bad
    inputs = [tensor.requires_grad_() for tensor in inputs]
    assert_same(lambda *qkv: attend(*qkv, mask="causal", aux="lse"), inputs, inputs)


def test_dropout_draws_in_the_graph() -> None:
    q, k, v = (torch.randn(1, 2, 6, 4, requires_grad=True) for _ in range(3))

    def call(*qkv: Tensor) -> Tensor:
        return attend(*qkv, dropout=0.5)

    run = compiled(call)
    found = []
    for one in (call, run):
        torch.manual_seed(3)
        out = one(q, k, v)
        found.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
    for plain, same in zip(*found, strict=True):
        assert torch.equal(plain, same)
    assert not torch.equal(run(q, k, v), run(q, k, v))


def test_a_new_seed_is_no_new_compilation() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    q = torch.randn(1, 2, 6, 4)
    run = compiled(lambda q, seed: attend(q, q, q, dropout=Dropout(0.5, seed)), counter)
    for seed in (5, 6, 7, 1 << 40):
        assert torch.equal(run(q, seed), attend(q, q, q, dropout=Dropout(0.5, seed)))
    assert counter.frame_count <= 2


def test_the_environment_is_read_when_the_graph_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(1, 2, 6, 4, requires_grad=True)
    run = compiled(lambda q: attend(q, q, q))
    run(q).sum().backward()
    monkeypatch.setenv("REGARD_ENGINE", "reference")
    assert torch.equal(run(q), attend(q, q, q, engine="reference"))
    run(q).sum().backward()
    monkeypatch.setenv("REGARD_ENGINE", "fast")
    with pytest.raises(ValueError, match="the environment's REGARD_ENGINE must be 'auto' or one of native"):
        run(q)


WRONG: list[dict[str, Any]] = [
    {"mask": "casual"},
    {"temperature": -1.0},
    {"dropout": 1.5},
    {"aux": ("lse", "color")},
    {"score": "dot"},
    {"engine": "fast"},
    {"query_start": 1.5},
    {"bias": torch.zeros(4, 3)},
    {"normalizer": normalizers.Hard(), "engine": NAME},
]


def error_text(found: pytest.ExceptionInfo[Exception]) -> str:
    """The message without the node of the graph, which older releases of torch add behind it."""
    return str(found.value).partition("\n\nWhile executing")[0]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: " ".join(wrong))
def test_errors_say_the_same(wrong: dict[str, Any]) -> None:
    q = torch.randn(1, 2, 6, 4, requires_grad=True)
    with pytest.raises((ValueError, TypeError)) as plain:
        attend(q, q, q, **wrong)
    with pytest.raises(type(plain.value)) as found:
        compiled(lambda q: attend(q, q, q, **wrong))(q)
    assert error_text(found) == str(plain.value)


@pytest.mark.parametrize(
    "shapes",
    [((3,), (3,), (3,)), ((4, 5, 2), (3, 5, 2), (3, 5, 2)), ((2, 1, 5, 2), (3, 1, 5, 2), (3, 1, 5, 2))],
    ids=["one axis", "heads", "batch"],
)
def test_shapes_are_refused_when_the_graph_runs(shapes: tuple[tuple[int, ...], ...]) -> None:
    inputs = [torch.randn(shape) for shape in shapes]
    with pytest.raises(ValueError, match=r"must be|must divide|do not broadcast") as plain:
        attend(*inputs)
    with pytest.raises(ValueError, match=r"must be|must divide|do not broadcast") as found:
        compiled(attend)(*inputs)
    assert error_text(found) == str(plain.value)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own, at the break
def test_a_function_in_the_spec_breaks_the_graph() -> None:
    slope = torch.tensor(0.1, requires_grad=True)
    score = scores.Modified(scores.ScaledDot(), lambda s, b, h, i, j: s - slope * (i - j))
    mask = masks.Where(lambda b, h, i, j: (i + j) % 3 != 0)

    def call(q: Tensor) -> Tensor:
        return attend(q * 2, q, q, score=score, mask=mask) + 1

    q = torch.randn(1, 2, 6, 4, requires_grad=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"such as a function in masks\.Where or scores\.Modified"):
        compiled(call)(q)
    torch._dynamo.reset()
    found, right = torch.compile(call, backend="aot_eager")(q), call(q)
    assert torch.equal(found, right)
    for one, two in zip(*(torch.autograd.grad(out.sum(), (q, slope)) for out in (found, right)), strict=True):
        torch.testing.assert_close(one, two)


class Layer(nn.Module):
    """Linear, attention with padding, Linear; the entropy as a second result."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.inside(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        out, aux = attend(q, k, v, mask=masks.Causal() & masks.Lengths(lengths), aux="entropy")
        assert aux.entropy is not None
        return self.outside(out.transpose(1, 2).flatten(2)), aux.entropy


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch.export.load of torch 2.9
@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool) -> None:
    layer, lengths = Layer(), torch.tensor([7, 3, 1])
    length = torch.export.Dim("length", min=2, max=1000)
    program = torch.export.export(
        layer, (torch.randn(3, 7, 16), lengths), dynamic_shapes=({1: length}, None), strict=strict
    )
    nodes = [node for node in program.graph.nodes if "regard" in str(node.target)]
    assert [node.target for node in nodes] == [torch.ops.regard.attend.default]
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    x = torch.randn(3, 20, 16)
    for one, two in zip(torch.export.load(stored).module()(x, lengths), layer(x, lengths), strict=True):
        assert torch.equal(one, two)


def test_export_refuses_a_function() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return attend(x, x, x, mask=masks.Where(lambda b, h, i, j: i >= j))

    with pytest.raises(TypeError, match=r"got Where; .* give its values as a tensor"):
        torch.export.export(Masked(), (torch.randn(1, 1, 4, 4),))


@TORCHS_OWN
def test_inductor() -> None:
    layer = Layer()
    run = torch.compile(layer, fullgraph=True)
    for length in (5, 8, 13):
        x, lengths = torch.randn(3, length, 16, requires_grad=True), torch.tensor([length, 3, 1])
        found, right = run(x, lengths), layer(x, lengths)
        wanted = [x, *layer.parameters()]
        sides = [torch.autograd.grad(out.sum() + entropy.sum(), wanted) for out, entropy in (found, right)]
        for one, two in zip((*found, *sides[0]), (*right, *sides[1]), strict=True):
            torch.testing.assert_close(one, two)


@pytest.mark.slow
@TORCHS_OWN
@pytest.mark.parametrize("case", CASES, ids=str)
def test_inductor_equals_eager(case: Case) -> None:
    inputs, spec, leaves = case.build(torch.float32)
    names = ("entropy", "peak_at", "received")
    assert_same(lambda *qkv: attend(*qkv, aux=names, **spec), inputs, list(leaves.values()), "inductor")
