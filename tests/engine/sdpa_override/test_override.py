"""The block itself: nested blocks, threads, errors, Ctrl-C, backward passes and checkpoints, engines by name."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

from regard.engine import sdpa
from regard.engine.sdpa_override import accelerating
from regard.engine.sdpa_override.override import FAST

attention: Any = scaled_dot_product_attention


@pytest.fixture
def query() -> Tensor:
    return torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0))


def clean() -> bool:
    """Whether torch is as it was."""
    return not _get_current_function_mode_stack() and not any("__call__" in vars(layer) for layer in FAST)


def test_after_the_block_torch_is_as_it_was(query: Tensor) -> None:
    with accelerating() as served:
        assert not clean()
        attention(query, query, query)
    assert clean()
    attention(query, query, query)
    assert served.served.total() == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_an_error_leaves_torch_as_it_was(query: Tensor, error: type[BaseException]) -> None:
    def failing() -> None:
        with accelerating() as served:
            attention(query, query, query)
            assert served.served.total() == 1
            raise error

    with pytest.raises(error):
        failing()
    assert clean()


def test_ctrl_c_in_an_engine_passes(query: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **options: Any) -> Tensor:
        raise KeyboardInterrupt

    with accelerating() as outer:
        monkeypatch.setattr(sdpa, "attend", interrupted)
        with accelerating() as served, pytest.raises(KeyboardInterrupt):
            attention(query, query, query)
        monkeypatch.undo()
        assert served.served.total() == served.left_alone.total() == 0
        attention(query, query, query)
    assert clean()
    assert outer.served.total() == 1


def test_the_innermost_block_answers_and_counts(query: Tensor) -> None:
    with accelerating("tiled") as outer:
        attention(query, query, query)
        with accelerating("reference") as inner:
            attention(query, query, query)
        attention(query, query, query)
    assert [(call.by, count) for call, count in outer.served.items()] == [("tiled", 2)]
    assert [(call.by, count) for call, count in inner.served.items()] == [("reference", 1)]


def test_what_the_innermost_block_leaves_alone_is_counted_once() -> None:
    layer = nn.MultiheadAttention(8, 2).to("meta")
    x = torch.empty(5, 3, 8, device="meta")
    with accelerating("reference") as outer, accelerating() as inner:
        layer(x, x, x, need_weights=False)
    assert inner.left_alone.total() == 1
    assert outer.left_alone.total() == outer.served.total() == 0


def test_the_engine_that_calls_torch_is_not_caught_again(query: Tensor) -> None:
    with accelerating("sdpa") as served:
        out = attention(query, query, query)
    assert [(call.by, count) for call, count in served.served.items()] == [("sdpa", 1)]
    torch.testing.assert_close(out, attention(query, query, query))


def test_a_named_engine_that_cannot_leaves_the_call_alone(query: Tensor) -> None:
    with accelerating("sdpa") as served:
        out = attention(query, query, query, dropout_p=0.5)
    assert out.shape == query.shape
    assert [call.by for call in served.left_alone] == [
        "engine 'sdpa' cannot do this: torch draws another dropout pattern"
    ]


def test_engine_names_are_checked() -> None:
    wanted = "engine must be 'auto' or one of native, tiled, sdpa, flex, reference, got 'fast'"
    with pytest.raises(ValueError, match=wanted), accelerating("fast"):
        pass
    assert clean()


def test_the_environment_names_an_engine(query: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_ENGINE", "reference")
    with accelerating() as served:
        attention(query, query, query)
    assert [call.by for call in served.served] == ["reference"]
    monkeypatch.setenv("REGARD_ENGINE", "fast")
    with pytest.raises(ValueError, match="the environment's REGARD_ENGINE must be"), accelerating():
        pass


def test_another_thread_needs_a_block_of_its_own(query: Tensor) -> None:
    found: list[int] = []

    def work(own: bool) -> None:
        if not own:
            attention(query, query, query)
            return
        with accelerating() as served:
            for _ in range(20):
                attention(query, query, query)
        found.append(served.served.total())

    with accelerating() as served:
        threads = [threading.Thread(target=work, args=(own,)) for own in (False, True, True, True)]
        for thread in threads:
            thread.start()
        attention(query, query, query)
        for thread in threads:
            thread.join()
    assert served.served.total() == 1
    assert found == [20, 20, 20]
    assert clean()


def test_other_modes_go_on(query: Tensor) -> None:
    class Counting(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    with accelerating() as served, Counting() as counting:
        attention(query, query, query)
    assert served.served.total() == 1
    assert counting.seen.count("scaled_dot_product_attention") == 1


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(
    ("way", "reentrant"),  # torch allows reentrant checkpoints with a plain backward only
    [("tensor", False), ("backward", False), ("grad", False), ("inputs", False), ("tensor", True), ("backward", True)],
)
def test_checkpoints_run_forward_again_the_same_way(way: str, reentrant: bool, dropout: float) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True)
    x = torch.randn(2, 6, 8).requires_grad_()
    leaves = [x, *layer.parameters()]
    found = []
    for checked in (False, True):
        torch.manual_seed(1)
        with accelerating() as served:
            out = checkpoint(layer, x, use_reentrant=reentrant) if checked else layer(x)
            loss = out.square().sum()
            if way == "tensor":
                loss.backward()
            elif way == "backward":
                torch.autograd.backward([loss], [torch.ones(())])
            elif way == "inputs":
                loss.backward(inputs=leaves)
            if way == "grad":
                found.append(list(torch.autograd.grad(loss, leaves)))
            else:
                found.append([leaf.grad.clone() for leaf in leaves if leaf.grad is not None])
        assert served.served.total() == 1 + checked
        for leaf in leaves:
            leaf.grad = None
    assert len(found[0]) == len(leaves)
    for plain, again in zip(*found, strict=True):
        assert torch.equal(plain, again)


@pytest.mark.needs("torch.autograd.grad by a dict of inputs")
def test_gradients_by_a_dict_of_inputs() -> None:
    x = torch.randn(3, requires_grad=True)
    with accelerating():
        assert torch.autograd.grad(x.sum(), {"x": x})["x"].tolist() == [1.0] * 3


def test_backward_passes_mean_what_they_meant() -> None:
    x = torch.randn(3, requires_grad=True)
    unused = torch.randn(3, requires_grad=True)
    with accelerating():
        (gradient,) = torch.autograd.grad((x * x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(gradient, [x], torch.ones(3))
        assert torch.equal(second, torch.full((3,), 2.0))
        assert torch.autograd.grad(x.sum(), unused, allow_unused=True)[0] is None
        (zeros,) = torch.autograd.grad(x.sum(), unused, materialize_grads=True)
        assert torch.equal(zeros, torch.zeros(3))
        with pytest.raises(RuntimeError, match="can be implicitly created only for scalar outputs"):
            (x * x).backward()
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.zeros(()).backward()
        with pytest.raises(RuntimeError, match="appears to not have been used"):
            torch.autograd.grad(x.sum(), unused)
        (2 * x).sum().backward()
        (x * x).backward(torch.ones(3), inputs=x)
    torch.testing.assert_close(x.grad, 2 + 2 * x.detach())
