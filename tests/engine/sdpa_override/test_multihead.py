"""nn.MultiheadAttention in a block: torch's numbers and gradients for all of its arguments."""

import inspect
from dataclasses import MISSING, dataclass, fields
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import multi_head_attention_forward

from regard.engine.sdpa_override import accelerating
from regard.engine.sdpa_override.multihead import MultiHeadCall
from regard.testing import assert_within, error, peak_bytes

ULP = torch.finfo(torch.float64).eps


def test_arguments_are_torchs() -> None:
    theirs = {
        name: MISSING if one.default is one.empty else one.default
        for name, one in inspect.signature(multi_head_attention_forward).parameters.items()
    }
    assert {one.name: one.default for one in fields(MultiHeadCall)} == theirs
    assert [one.name for one in fields(MultiHeadCall)] == list(theirs)


@dataclass(frozen=True)
class Case:
    """One layer and one call of it."""

    batch: int | None  # None: unbatched
    queries: int
    keys: int
    heads: int
    width: int  # of a head
    inputs: str  # self, cross, three
    layer: dict[str, Any]
    padding: str
    mask: str
    call: dict[str, Any]
    training: bool
    seed: int

    def build(self, dtype: torch.dtype) -> tuple[nn.MultiheadAttention, list[Tensor], dict[str, Any]]:
        """The layer, its inputs and its options."""
        torch.manual_seed(self.seed)
        layer = nn.MultiheadAttention(self.heads * self.width, self.heads, **self.layer, dtype=torch.float64)
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5)
        layer = layer.to(dtype).train(self.training)
        first = torch.randn(self._shape(self.queries, self.heads * self.width), dtype=torch.float64)
        second = torch.randn(self._shape(self.keys, layer.kdim), dtype=torch.float64)
        third = torch.randn(self._shape(self.keys, layer.vdim), dtype=torch.float64)
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (first, second, third)]
        leaves = leaves[: {"self": 1, "cross": 2, "three": 3}[self.inputs]]
        options = {**self.call, "key_padding_mask": self._padding(), "attn_mask": self._mask()}
        for name in ("key_padding_mask", "attn_mask"):
            if options[name] is not None and options[name].dtype != torch.bool:
                options[name] = options[name].to(dtype)
        return layer, leaves, options

    def run(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Output, weights if they are asked for, and the gradients of all inputs and parameters."""
        layer, leaves, options = self.build(dtype)
        query, key, value = [*leaves, leaves[-1], leaves[-1]][:3]
        out, weights = layer(query, key, value, **options)
        found = {"out": out}
        loss = (out * torch.linspace(-1.0, 2.0, out.numel(), dtype=dtype).view_as(out)).sum()
        if weights is not None:
            found["weights"] = weights
            loss = loss + (weights * torch.linspace(2.0, 0.0, weights.numel(), dtype=dtype).view_as(weights)).sum()
        named = {f"input {n}": leaf for n, leaf in enumerate(leaves)} | dict(layer.named_parameters())
        grads = torch.autograd.grad(loss, list(named.values()))
        return found | dict(zip(named, grads, strict=True))

    def _shape(self, length: int, width: int) -> tuple[int, ...]:
        if self.batch is None:
            return length, width
        return (self.batch, length, width) if self.layer["batch_first"] else (length, self.batch, width)

    def _padding(self) -> Tensor | None:
        size = (self.keys,) if self.batch is None else (self.batch, self.keys)
        return self._hiding(self.padding, size)

    def _mask(self) -> Tensor | None:
        if self.mask.startswith("causal"):
            hidden = torch.ones(self.queries, self.keys, dtype=torch.bool).triu(1)
            return (
                hidden
                if self.mask == "causal bool"
                else torch.zeros_like(hidden).float().masked_fill(hidden, -torch.inf)
            )
        size: tuple[int, ...] = (self.queries, self.keys)
        if self.mask.endswith("3-D"):
            size = ((self.batch or 1) * self.heads, *size)
        return self._hiding(self.mask.removesuffix(" 3-D"), size)

    def _hiding(self, kind: str, size: tuple[int, ...]) -> Tensor | None:
        """True or −inf is hidden; the first key never is."""
        if kind == "none":
            return None
        numbers = torch.randn(size, dtype=torch.float64)
        hidden = numbers > 0.5
        hidden[..., 0] = False
        if kind == "bool":
            return hidden
        return (numbers if kind == "float" else torch.zeros_like(numbers)).masked_fill(hidden, -torch.inf)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    inputs = draw(st.sampled_from(["self", "cross", "three"]))
    heads, width = draw(st.sampled_from([1, 2, 3, 4])), draw(st.integers(1, 6))
    queries = draw(st.integers(1, 7))
    keys = queries if inputs == "self" else draw(st.integers(1, 7))
    layer: dict[str, Any] = {
        name: draw(st.booleans()) for name in ("batch_first", "bias", "add_bias_kv", "add_zero_attn")
    }
    if inputs != "self" and draw(st.booleans()):
        layer["kdim"] = draw(st.integers(1, 9))
        layer["vdim"] = draw(st.integers(1, 9)) if inputs == "three" else layer["kdim"]
    hint = draw(st.booleans())
    # torch warns where the two masks are of different types
    kinds = draw(st.sampled_from([["bool"], ["float", "zeros"]]))
    mask = draw(st.sampled_from(["none", *kinds, *(f"{kind} 3-D" for kind in kinds)]))
    if hint:
        mask = "causal bool" if kinds == ["bool"] else "causal float"
    return Case(
        batch=draw(st.sampled_from([None, 1, 2, 3])),
        queries=queries,
        keys=keys,
        heads=heads,
        width=width,
        inputs=inputs,
        layer=layer,
        padding=draw(st.sampled_from(["none", *kinds])),
        mask=mask,
        call={
            "need_weights": draw(st.booleans()),
            "average_attn_weights": draw(st.booleans()),
            "is_causal": hint,
        },
        training=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


@pytest.mark.parametrize("engine", ["native", "tiled"])
@given(case=cases())
def test_values_weights_and_gradients_are_torchs(engine: str, case: Case) -> None:
    theirs = case.run(torch.float64)
    with accelerating(engine) as served:
        ours = case.run(torch.float64)
    assert (served.served.total(), served.left_alone.total()) == (1, 0), str(served)
    assert ours.keys() == theirs.keys()
    for name, right in theirs.items():
        size = 1.0 + float(right.detach().abs().amax()) if right.numel() else 1.0
        assert error(ours[name], right) <= 256 * ULP * size, name


@given(case=cases())
def test_eval_without_gradients_is_torchs_fast_path(case: Case) -> None:
    """Which a block shuts; the result is the same, and as contiguous."""
    layer, leaves, options = case.build(torch.float64)
    query, key, value = [*leaves, leaves[-1], leaves[-1]][:3]
    with torch.no_grad():
        theirs = layer.eval()(query, key, value, **options)
        with accelerating() as served:
            ours = layer(query, key, value, **options)
    assert served.served.total() == 1
    for found, right in zip(ours, theirs, strict=True):
        assert (found is None) == (right is None)
        if found is not None:
            assert error(found, right) <= 256 * ULP * (1.0 + float(right.abs().amax()))
    assert ours[0].is_contiguous() or not theirs[0].is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("need_weights", [False, True])
def test_error_is_at_most_twice_torchs(dtype: torch.dtype, need_weights: bool) -> None:
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(48, 3, batch_first=True).to(dtype), torch.randn(2, 50, 48).to(dtype)
    hidden = torch.zeros(2, 50, dtype=torch.bool)
    hidden[1, 30:] = True
    options: dict[str, Any] = {"key_padding_mask": hidden, "need_weights": need_weights}
    plain = layer(x, x, x, **options)
    with accelerating() as served:
        found = layer(x, x, x, **options)
    assert served.served.total() == 1
    truth = layer.double()(x.double(), x.double(), x.double(), **options)
    for ours, theirs, right in zip(found, plain, truth, strict=True):
        if need_weights or ours is not None:
            assert ours.dtype == dtype
            assert_within(ours, theirs, right)


def test_static_keys_and_values() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, 3, dtype=torch.float64)
    x, static = torch.randn(4, 2, 12, dtype=torch.float64), torch.randn(2, 6, 9, 4, dtype=torch.float64)
    arguments: list[Any] = [x, x, x, 12, 3, layer.in_proj_weight, layer.in_proj_bias, None, None, True, 0.0]
    for weights in (False, True):
        options: dict[str, Any] = {"static_k": static[0], "static_v": static[1], "need_weights": weights}
        theirs = multi_head_attention_forward(*arguments, *layer.out_proj.parameters(), **options)
        with accelerating() as served:
            ours = multi_head_attention_forward(*arguments, *layer.out_proj.parameters(), **options)
        assert [call.key for call in served.served] == [(2, 3, 9, 4)]
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("kind", ["2-D", "3-D", "causal"])
def test_masks_of_bools_reach_the_function_itself(kind: str, learned: bool, weights: bool) -> None:
    """The layer makes numbers of them; who calls the function need not."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, 3, add_bias_kv=learned, dtype=torch.float64)
    x = torch.randn(5, 2, 12, dtype=torch.float64)
    mask, padding = torch.rand(6, 5, 5) < 0.4, torch.rand(2, 5) < 0.4
    mask[..., 0] = padding[:, 0] = False
    mask = {"2-D": mask[0], "3-D": mask, "causal": torch.ones(5, 5, dtype=torch.bool).triu(1)}[kind]
    learned_parts = [layer.bias_k, layer.bias_v]
    arguments: list[Any] = [x, x, x, 12, 3, layer.in_proj_weight, layer.in_proj_bias, *learned_parts, False, 0.0]
    options: dict[str, Any] = {"attn_mask": mask, "need_weights": weights, "is_causal": kind == "causal"}
    options["key_padding_mask"] = padding
    theirs = multi_head_attention_forward(*arguments, *layer.out_proj.parameters(), **options)
    with accelerating() as served:
        ours = multi_head_attention_forward(*arguments, *layer.out_proj.parameters(), **options)
    assert served.served.total() == 1
    torch.testing.assert_close(ours, theirs)


def test_a_query_without_a_key() -> None:
    """torch returns NaN when weights are asked for, and the output bias when they are not; here always the latter."""
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    hidden = torch.tensor([[False] * 5, [True] * 5])
    plain, weights = layer(x, x, x, key_padding_mask=hidden)
    assert bool(plain[1].isnan().all())
    assert bool(weights[1].isnan().all())
    with accelerating() as served:
        ours, shown = layer(x, x, x, key_padding_mask=hidden)
    assert served.served.total() == 1
    torch.testing.assert_close(ours[0], plain[0])
    assert torch.equal(ours[1], layer.out_proj.bias.expand(5, 8))
    assert bool((shown[1] == 0).all())


def test_dropout_is_in_the_output_and_in_the_weights() -> None:
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True), torch.randn(2, 30, 8)
    with accelerating() as served:
        out, weights = layer(x, x, x, average_attn_weights=False)
        without = layer.eval()(x, x, x, average_attn_weights=False)[1]
    assert [call.asked for call in served.served] == ["dropout 0.5, weights", "weights"]
    dropped = weights == 0
    assert 0.4 < float(dropped.double().mean()) < 0.6
    torch.testing.assert_close(weights[~dropped], 2 * without[~dropped])
    value = nn.functional.linear(x, layer.in_proj_weight[16:], layer.in_proj_bias[16:])
    heads = weights @ value.unflatten(-1, (2, 4)).transpose(1, 2)
    torch.testing.assert_close(out, layer.out_proj(heads.transpose(1, 2).flatten(2)))


def test_dropping_everything_leaves_the_bias() -> None:
    layer, x = nn.MultiheadAttention(8, 2, dropout=1.0), torch.randn(5, 3, 8)
    for need_weights in (False, True):
        plain = layer(x, x, x, need_weights=need_weights)
        with accelerating() as served:
            found = layer(x, x, x, need_weights=need_weights)
        assert served.served.total() == 1
        torch.testing.assert_close(found, plain)


def test_autocast() -> None:
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(32, 4, batch_first=True, add_bias_kv=True), torch.randn(2, 20, 32)
    mask = torch.randn(20, 20)
    asked: list[dict[str, Any]] = [{"need_weights": False}, {"attn_mask": mask}, {"average_attn_weights": False}]
    for options in asked:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            plain = layer(x, x, x, **options)
            with accelerating() as served:
                found = layer(x, x, x, **options)
        assert [call.dtype for call in served.served] == ["bfloat16"]
        truth = layer(x, x, x, **options)
        for ours, theirs, right in zip(found, plain, truth, strict=True):
            if ours is not None:
                assert ours.dtype == theirs.dtype
                assert_within(ours, theirs, right)


def test_a_mask_beside_padding_is_not_multiplied_by_the_batch() -> None:
    """torch adds the two to batch × heads × query × key numbers; nothing of that size is made here."""
    layer, x = nn.MultiheadAttention(32, 8, batch_first=True), torch.randn(16, 256, 32)
    hidden = torch.zeros(16, 256, dtype=torch.bool)
    hidden[:, 200:] = True
    causal = torch.ones(256, 256, dtype=torch.bool).triu(1)

    def work() -> Any:
        with torch.no_grad(), accelerating() as served:
            out = layer(x, x, x, key_padding_mask=hidden, attn_mask=causal, need_weights=False)
        assert served.served.total() == 1
        return out

    work()
    assert peak_bytes(work)[0] < 16 * 256 * 256 * 4
