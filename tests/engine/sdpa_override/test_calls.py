"""scaled_dot_product_attention in a block: torch's numbers, gradients and memory layout, however it is called."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as imported_before

from regard.engine.sdpa_override import accelerating
from regard.testing import assert_within, error

ULP = torch.finfo(torch.float64).eps
attention: Any = functional.scaled_dot_product_attention
ENGINES = ["native", "tiled", "reference"]


def three(seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def results(inputs: list[Any], options: dict[str, Any]) -> list[Tensor]:
    """The output, and the gradients of all inputs and of a float mask."""
    leaves: list[Any] = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    mask = options.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        leaves.append(mask.detach().clone().requires_grad_())
        options = {**options, "attn_mask": leaves[-1]}
    out = attention(*leaves[:3], **options)
    weight = torch.linspace(-1.0, 2.0, out.numel(), dtype=out.dtype).view_as(out)
    return [out, *torch.autograd.grad((out * weight).sum(), leaves)]


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], dict[str, Any], int]:
    """Shapes, options and a seed."""
    leading = draw(st.sampled_from([(), (2,), (2, 3)]))
    heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    queries, keys = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    d_key, d_value = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    options: dict[str, Any] = {"enable_gqa": True} if group > 1 else {}
    options["scale"] = draw(st.sampled_from([None, 0.3, -1.0, 2]))
    kind = draw(st.sampled_from(["none", "causal", "bool", "float", "hiding"]))
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    size = (*(draw(st.sampled_from([1, n])) for n in (*leading, heads * group)), queries, keys)
    numbers = torch.randn(size[draw(st.integers(0, len(size) - 2)) :], generator=generator, dtype=torch.float64)
    if kind == "causal":
        options["is_causal"] = True
    elif kind == "bool":
        options["attn_mask"] = numbers > -0.5
    elif kind != "none":
        options["attn_mask"] = numbers.where(numbers > -0.5, -torch.inf) if kind == "hiding" else numbers
    shapes = [(heads * group, queries, d_key), (heads, keys, d_key), (heads, keys, d_value)]
    return [(*leading, *shape) for shape in shapes], options, seed


@pytest.mark.parametrize("engine", ENGINES)
@given(call=calls())
def test_values_and_gradients_are_torchs(engine: str, call: tuple[list[tuple[int, ...]], dict[str, Any], int]) -> None:
    shapes, options, seed = call
    inputs = three(seed, *shapes)
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel gives NaN for a causal mask and a scale below 0
        theirs = results(inputs, options)
    with accelerating(engine) as served:
        ours = results(inputs, options)
    assert (served.served.total(), served.left_alone.total()) == (1, 0), str(served)
    for found, right in zip(ours, theirs, strict=True):
        assert error(found, right) <= 64 * ULP * (1.0 + float(right.detach().abs().amax()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_error_is_at_most_twice_torchs(dtype: torch.dtype, causal: bool) -> None:
    inputs = three(3, *[(2, 3, 70, 16)] * 3, dtype=dtype)
    truth = attention(*(tensor.double() for tensor in inputs), is_causal=causal)
    plain = attention(*inputs, is_causal=causal)
    with accelerating() as served:
        found = attention(*inputs, is_causal=causal)
    assert served.served.total() == 1
    assert found.dtype == dtype
    assert_within(found, plain, truth)


@pytest.mark.parametrize(
    "function",
    [
        functional.scaled_dot_product_attention,
        imported_before,
        torch._C._nn.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention.default,
    ],
    ids=["functional", "imported before", "torch._C._nn", "aten", "aten default"],
)
def test_every_name_of_the_function_is_caught(function: Any) -> None:
    inputs = three(0, *[(2, 3, 5, 4)] * 3)
    with accelerating("reference") as served:
        out = function(*inputs, is_causal=True)
    assert [call.function for call in served.served] == ["scaled_dot_product_attention"]
    torch.testing.assert_close(out, attention(*inputs, is_causal=True))


def test_rows_without_a_key_are_zero_as_in_torch() -> None:
    inputs, visible = three(1, *[(2, 3, 5, 4)] * 3), torch.ones(5, 5, dtype=torch.bool)
    visible[2] = False
    with accelerating() as served:
        out = attention(*inputs, visible)
    assert served.served.total() == 1
    assert bool((out[:, :, 2] == 0).all())
    assert bool((attention(*inputs, visible)[:, :, 2] == 0).all())


def test_dropout_follows_torchs_generator_and_keeps_the_mean() -> None:
    inputs = three(2, *[(1, 2, 6, 4)] * 3)
    with accelerating() as served:
        torch.manual_seed(5)
        first = attention(*inputs, dropout_p=0.4)
        torch.manual_seed(5)
        assert torch.equal(attention(*inputs, dropout_p=0.4), first)
        runs = torch.stack([attention(*inputs, dropout_p=0.4) for _ in range(500)])
        assert bool((attention(*inputs, dropout_p=1.0) == 0).all())
    assert served.served.total() == 503
    assert bool(((runs.mean(0) - attention(*inputs)).abs() < 5 * runs.std(0) / 500**0.5).all())


QUERIES = {
    "contiguous": torch.randn(2, 4, 8, 16),
    "heads from the last axis": torch.randn(2, 8, 4, 16).transpose(1, 2),
    "one packed projection": torch.randn(2, 8, 3, 4, 16).permute(2, 0, 3, 1, 4)[0],
    "batch second": torch.randn(8, 2, 4, 16).permute(1, 2, 0, 3),
    "3-D": torch.randn(8, 4, 16).transpose(0, 1),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "dropout": {"dropout_p": 0.1},
    "learned bias": {"attn_mask": torch.zeros(8, 8).requires_grad_()},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("layout", QUERIES)
def test_results_lie_in_memory_as_torchs_do(layout: str, options: str) -> None:
    """`.transpose(1, 2).view(...)` works after torch's fused kernel, so it must work here."""
    query = QUERIES[layout]
    plain = attention(query, query, query, **OPTIONS[options])
    with accelerating():
        found = attention(query, query, query, **OPTIONS[options])
    assert found.stride() == plain.stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", [torch.float32, torch.bool, None], ids=str)
def test_autocast_casts_as_in_torch(dtype: torch.dtype, mask: torch.dtype | None) -> None:
    inputs = three(4, *[(2, 3, 40, 16)] * 3, dtype=torch.float32)
    options: dict[str, Any] = {}
    if mask is not None:
        options["attn_mask"] = torch.randn(40, 40, generator=torch.Generator().manual_seed(1)) + 1
        options["attn_mask"] = options["attn_mask"] > 0 if mask == torch.bool else options["attn_mask"]
    rounded = [tensor.to(dtype).double() for tensor in inputs]
    exact = {"attn_mask": options["attn_mask"].to(dtype).double()} if mask == torch.float32 else options
    truth = attention(*rounded, **exact)
    with torch.autocast("cpu", dtype=dtype):
        plain = attention(*inputs, **options)
        with accelerating() as served:
            found = attention(*inputs, **options)
        assert torch.is_autocast_enabled("cpu")
    assert found.dtype == plain.dtype == dtype
    assert [call.dtype for call in served.served] == [str(dtype).removeprefix("torch.")]
    assert_within(found, plain, truth)


def test_autocast_leaves_float64_alone() -> None:
    inputs = three(4, *[(2, 3, 5, 4)] * 3)
    with torch.autocast("cpu", dtype=torch.bfloat16), accelerating() as served:
        found = attention(*inputs)
    assert served.served.total() == 1
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, attention(*inputs))


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_without_gradients(around: Any) -> None:
    query = torch.randn(2, 3, 5, 4).requires_grad_()
    with around(), accelerating() as served:
        found = [attention(query, query, query) for _ in range(3)]
    assert served.served.total() == 3
    assert not any(tensor.requires_grad for tensor in found)
    torch.testing.assert_close(found[2], attention(query, query, query).detach())


def test_second_derivatives() -> None:
    leaves = [tensor.requires_grad_() for tensor in three(6, *[(1, 2, 4, 3)] * 3)]

    def inside(*inputs: Any) -> Tensor:
        with accelerating() as served:
            out: Tensor = attention(*inputs, is_causal=True)
        assert served.served.total() == 1
        return out

    assert torch.autograd.gradgradcheck(inside, leaves)


@pytest.mark.parametrize(
    "mask", [torch.zeros(5, 5, dtype=torch.float64), torch.zeros(5, 5).half(), torch.ones(5).bool()]
)
def test_masks_that_torch_refuses_are_torchs_to_refuse(mask: Tensor) -> None:
    q = torch.randn(2, 4, 5, 8)
    with accelerating() as served, pytest.raises((RuntimeError, IndexError)):
        torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    assert not served.served
