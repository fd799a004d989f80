"""What is left to torch: with its reason, with torch's own result, and with no error that torch would not raise."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from regard.engine.sdpa_override import InterceptedCall, accelerating, calls

attention: Any = scaled_dot_product_attention
TRACER = pytest.mark.filterwarnings("ignore:`torch.jit.trace", "ignore::torch.jit.TracerWarning")
PROTOTYPE = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def plain(x: Tensor) -> Tensor:
    out: Tensor = attention(x, x, x)
    return out


def only(served: Any) -> InterceptedCall:
    """The one kind of call, which was left alone."""
    assert not served.served
    (call,) = served.left_alone
    assert isinstance(call, InterceptedCall)
    return call


class Own(Tensor):
    pass


@PROTOTYPE
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda x: x.as_subclass(Own), "query is a Own, not a plain tensor"),
        (lambda x: x.to("meta"), "the native engine runs on the CPU, query is on meta; engine='tiled' runs on any"),
        (lambda x: torch.nested.nested_tensor(list(x)), "query is a sparse or nested tensor"),
        (
            lambda x: torch.nested.nested_tensor(list(x.transpose(1, 2)), layout=torch.jagged).transpose(1, 2),
            "query is a NestedTensor, not a plain tensor",
        ),
    ],
    ids=["subclass", "meta", "nested", "jagged"],
)
def test_kinds_of_tensors(make: Callable[[Tensor], Tensor], reason: str) -> None:
    x = make(draw(2, 3, 5, 4))
    theirs = plain(x)
    with accelerating() as served:
        ours = plain(x)
    assert only(served).by == reason
    assert type(ours) is type(theirs)
    assert ours.is_nested == theirs.is_nested
    if not ours.is_meta and not ours.is_nested:
        assert torch.equal(ours, theirs)


def test_masks_that_are_not_plain_tensors() -> None:
    x, mask = draw(2, 3, 5, 4), causal_lower_right(5, 5)
    with accelerating() as served:
        ours = attention(x, x, x, attn_mask=mask)
    assert only(served).by == "attn_mask is a CausalBias, not a plain tensor"
    assert torch.equal(ours, attention(x, x, x, attn_mask=mask))


def test_without_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "library", lambda: None)
    x = draw(2, 3, 5, 4)
    with accelerating() as served:
        plain(x)
        with accelerating("tiled") as tiled:
            plain(x)
    assert only(served).by == "the package was installed without its C++ core; engine='tiled' needs none"
    assert tiled.served.total() == 1


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch 2.15 under vmap
@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        (lambda x: torch.func.vmap(plain)(x), "attend does not run under torch.func.vmap"),
        (lambda x: torch.func.grad(lambda x: plain(x).sum())(x), "under torch.func only plain torch operators run"),
    ],
    ids=["vmap", "grad"],
)
def test_transforms(transform: Callable[[Tensor], Tensor], reason: str) -> None:
    x = draw(2, 3, 5, 4)
    with accelerating() as served:
        ours = transform(x)
    assert reason in only(served).by
    assert torch.equal(ours, transform(x))


def test_the_reference_runs_under_transforms() -> None:
    x = draw(2, 3, 5, 4)
    with accelerating("reference") as served:
        ours = torch.func.grad(lambda x: plain(x).sum())(x)
    assert served.served.total() == 1
    torch.testing.assert_close(ours, torch.func.grad(lambda x: plain(x).sum())(x))


def test_modes_that_listen_to_operators() -> None:
    x = draw(3, 5, 4)  # three axes: of the fused kernel torch counts nothing on a CPU
    with FlopCounterMode(display=False) as alone:
        plain(x)
    with accelerating() as served, FlopCounterMode(display=False) as counted:
        plain(x)
    assert counted.get_total_flops() == alone.get_total_flops() > 0
    assert only(served).by == "_FlopCounterMode listens to torch's operators, and would not see an engine"
    with accelerating() as served, FakeTensorMode() as fake:
        assert plain(fake.from_tensor(x)).shape == x.shape
    assert "FakeTensorMode listens" in only(served).by


def test_graphs_that_are_recorded_hold_torchs_operators() -> None:
    x, other = draw(2, 3, 5, 4), draw(2, 3, 5, 4) + 1
    with accelerating() as served:
        graph = make_fx(plain)(x)
    assert "ProxyTorchDispatchMode listens" in only(served).by
    torch.testing.assert_close(graph(other), plain(other))


@TRACER
def test_traces_hold_torchs_operators() -> None:
    x, other = draw(2, 3, 5, 4), draw(2, 3, 5, 4) + 1
    with accelerating() as served:
        traced = torch.jit.trace(plain, (x,), check_trace=False)
    assert only(served).by == "torch.jit.trace records torch's operators only"
    torch.testing.assert_close(traced(other), plain(other))


@pytest.mark.parametrize("strict", [False, True])
def test_exports_hold_torchs_operators(strict: bool) -> None:
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).eval(), draw(2, 5, 8)
    with accelerating() as served:
        exported = torch.export.export(layer, (x,), strict=strict)
    assert not served.served
    torch.testing.assert_close(exported.module()(x), layer(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
def test_compiled_models_run(backend: str, training: bool) -> None:
    """In one graph. What that asks torch for by the functions' names is answered; kernels are only counted."""
    torch._dynamo.reset()
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).train(training), draw(2, 5, 8)
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    with torch.set_grad_enabled(training):
        with accelerating() as served:
            first, second = compiled(x), compiled(x)
        assert torch.equal(first, second)
        torch.testing.assert_close(first, layer(x))
    assert served.served.total() + served.left_alone.total() == 2
    assert {call.by for call in served.left_alone} <= {"a compiled graph, or the model itself, calls it by name"}
    torch._dynamo.reset()


def test_a_kernel_called_by_name() -> None:
    x = draw(2, 3, 5, 4)
    with accelerating() as served:
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)
    call = only(served)
    assert (call.function, call.query) == ("_scaled_dot_product_flash_attention_for_cpu", (2, 3, 5, 4))
    assert call.by == "a compiled graph, or the model itself, calls it by name"


@PROTOTYPE
@pytest.mark.parametrize("name", ["src", None])
def test_layers_that_are_given_nested_tensors_keep_their_fast_path(name: str | None) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).eval()
    nested = torch.nested.nested_tensor([draw(5, 8), draw(3, 8)])
    with torch.no_grad():
        theirs = layer(nested)
        with accelerating() as served:
            ours = layer(nested) if name is None else layer(**{name: nested})
            with pytest.raises(RuntimeError):
                layer(torch.nested.nested_tensor([draw(5, 7)]))
            layer.self_attn(nested, nested, nested, need_weights=False)
            layer(draw(2, 5, 8))
    assert torch.equal(ours.to_padded_tensor(0.0), theirs.to_padded_tensor(0.0))
    assert [call.layer for call in served.left_alone] == ["TransformerEncoderLayer", "MultiheadAttention"]
    assert {call.by for call in served.left_alone} == {
        "its input is a nested tensor, which torch's fast path alone takes"
    }
    assert served.served.total() == 1


X = draw(2, 3, 5, 4)
LAYER = nn.MultiheadAttention(8, 2)
Y = draw(5, 3, 8)
WRONG: dict[str, Callable[[], Any]] = {
    "widths": lambda: attention(X, X[..., :3], X),
    "heads": lambda: attention(X, X[:, :2], X[:, :2]),
    "dtypes": lambda: attention(X, X.double(), X),
    "integers": lambda: attention(X.long(), X.long(), X.long()),
    "complex": lambda: attention(X + 0j, X + 0j, X + 0j),
    "an integer mask": lambda: attention(X, X, X, torch.ones(5, 5, dtype=torch.int64)),
    "a mask of another size": lambda: attention(X, X, X, torch.ones(4, 4, dtype=torch.bool)),
    "an unknown option": lambda: attention(X, X, X, nonsense=1),
    "a rate": lambda: attention(X, X, X, dropout_p=1.5),
    "no values": lambda: LAYER(Y, Y, None),
    "another width": lambda: LAYER(Y[..., :6], Y, Y),
    "another batch": lambda: LAYER(Y, Y[:, :1], Y[:, :1]),
    "an axis missing": lambda: LAYER(Y, Y[0], Y[0]),
    "values of another length": lambda: LAYER(Y, Y, Y[:4]),
    "padding of another size": lambda: LAYER(Y, Y, Y, key_padding_mask=torch.zeros(3, 4, dtype=torch.bool)),
    "a mask of another size for heads": lambda: LAYER(Y, Y, Y, attn_mask=torch.zeros(4, 4)),
    "too few masks for heads": lambda: LAYER(Y, Y, Y, attn_mask=torch.zeros(3, 5, 5)),
    "a causal hint without a mask": lambda: LAYER(Y, Y, Y, is_causal=True),
    "inputs of another precision": lambda: LAYER(Y.double(), Y.double(), Y.double()),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_are_torchs_to_report(name: str) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011 (whatever it is)
        WRONG[name]()
    with accelerating() as served, pytest.raises(type(theirs.value)) as ours:
        WRONG[name]()
    assert str(ours.value) == str(theirs.value)
    assert served.served.total() == 0
