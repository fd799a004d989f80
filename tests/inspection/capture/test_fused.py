"""Capture of models that call scaled_dot_product_attention."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as fused
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from regard.inspection.capture import capture


class Heads(nn.Module):
    """Self-attention by torch's function, with whatever options."""

    def __init__(self, heads: int = 4, kv_heads: int = 4, width: int = 8, **options: Any) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width, self.options = heads, kv_heads, width, options
        self.q = nn.Linear(12, heads * width)
        self.kv = nn.Linear(12, 2 * kv_heads * width)

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q = self.q(x).unflatten(-1, (self.heads, self.width)).transpose(-3, -2)
        k, v = self.kv(x).unflatten(-1, (2 * self.kv_heads, self.width)).transpose(-3, -2).chunk(2, -3)
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        return fused(*self.projected(x), **self.options)

    def weights(self, x: Tensor) -> Tensor:
        """The formula."""
        q, k, _ = self.projected(x)
        k = k.repeat_interleave(self.heads // self.kv_heads, -3)
        logits = q @ k.mT * (self.options.get("scale") or self.width**-0.5)
        mask = self.options.get("attn_mask")
        if self.options.get("is_causal"):
            mask = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
        if mask is not None:
            logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
        found: Tensor = logits.softmax(-1)
        return found


BOOLS = torch.rand(3, 1, 9, 9, generator=torch.Generator().manual_seed(1)) < 0.5
BOOLS |= torch.eye(9, dtype=torch.bool)
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.7},
    "negative scale": {"scale": -0.3},
    "bools": {"attn_mask": BOOLS},
    "one row for all": {"attn_mask": BOOLS[0, 0, :1]},
    "added": {"attn_mask": torch.randn(4, 9, 9, generator=torch.Generator().manual_seed(2))},
    "grouped": {"kv_heads": 2, "enable_gqa": True, "is_causal": True},
    "dropout": {"dropout_p": 0.3},
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_weights_are_those_of_the_formula_and_the_output_is_untouched(options: dict[str, Any], mode: Any) -> None:
    torch.manual_seed(0)
    heads, x = Heads(**options), torch.randn(3, 9, 12)
    model = nn.Sequential(heads, nn.Flatten())
    with mode():
        torch.manual_seed(5)
        want = model(x)
        torch.manual_seed(5)
        c = capture(model, x)
    assert torch.equal(c.output, want)
    assert c.layers == ("0",)
    assert_close(c[0].dense(), heads.weights(x), atol=1e-6, rtol=1e-5)
    assert_close(c["0", 2].dense(), c[0].dense()[:, 2])


def test_gradients_are_untouched() -> None:
    model, x = Heads(is_causal=True), torch.randn(2, 9, 12)
    model(x).square().sum().backward()
    want = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    c = capture(model, x)
    c.output.square().sum().backward()
    assert all(torch.equal(parameter.grad, grad) for parameter, grad in zip(model.parameters(), want, strict=True))  # type: ignore[arg-type]


def test_what_the_model_does_later_changes_nothing() -> None:
    model, x = Heads(), torch.randn(2, 9, 12)
    c, want = capture(model, x), model.weights(x).detach()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert_close(c[0].dense(), want)


def test_a_mask_written_over_between_layers_is_kept_twice() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = torch.ones(9, 9, dtype=torch.bool)
            self.first, self.second = Heads(attn_mask=self.mask), Heads(attn_mask=self.mask)

        def forward(self, x: Tensor) -> None:
            self.first(x)
            self.mask.tril_()
            self.second(x)

    c = capture(Two(), torch.randn(2, 9, 12))
    assert (c["first"].dense() > 0).all()
    assert torch.equal(c["second"].dense() > 0, torch.ones(2, 4, 9, 9, dtype=torch.bool).tril())


def test_a_layer_of_two_calls_is_numbered() -> None:
    model = Heads()
    with capture(model) as c:
        first, second = torch.randn(2, 9, 12), torch.randn(2, 5, 12)
        model(first), model(second)
    assert c.layers == ("Heads", "Heads#2")
    assert_close(c["Heads#2"].dense(), model.weights(second))
    assert c[-1].shape == (2, 4, 5, 5)


def test_other_models_are_not_heard() -> None:
    model, other, x = Heads(), Heads(), torch.randn(2, 9, 12)
    with capture(model) as c:
        other(x), model(x)
    assert len(c) == 1
    assert_close(c[0].dense(), model.weights(x))


def test_each_of_two_captures_hears_its_own() -> None:
    models, x = nn.ModuleList([Heads(), Heads()]), torch.randn(2, 9, 12)
    with capture(models) as both:
        with capture(models[1]) as one:
            models[0](x), models[1](x)
        models[0](2 * x)
    assert (both.layers, one.layers) == (("0", "1", "0#2"), ("Heads",))


def test_a_checkpointed_layer_is_heard_once() -> None:
    class Saving(Heads):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = checkpoint(super().forward, x, use_reentrant=False)
            return out

    model = Saving()
    with capture(model) as c:
        model(torch.randn(2, 9, 12, requires_grad=True)).sum().backward()
    assert len(c) == 1


def test_autocast_and_half_precision() -> None:
    model, x = Heads(), torch.randn(2, 9, 12)
    with torch.autocast("cpu", torch.bfloat16):
        want = model(x)
        c = capture(model, x)
        q, k, _ = (tensor.float() for tensor in model.projected(x))
    assert torch.equal(c.output, want)
    assert_close(c[0].dense(), (q @ k.mT * 8**-0.5).softmax(-1))


def test_inputs_without_a_batch_axis_have_one() -> None:
    model, x = Heads(), torch.randn(9, 12)
    assert_close(capture(model, x)[0].dense()[0], model.weights(x))


def test_keys_that_grow_are_one_matrix() -> None:
    class Cached(Heads):
        def __init__(self) -> None:
            super().__init__()
            self.past = torch.zeros(2, 2, 4, 0, 8)

        def forward(self, x: Tensor) -> Tensor:
            q, *new = self.projected(x)
            self.past = torch.cat([self.past, torch.stack(new)], -2)
            return fused(q, self.past[0], self.past[1], is_causal=len(x[0]) > 1)

    model, x = Cached(), torch.randn(2, 9, 12)
    with torch.no_grad(), capture(model) as c:
        model(x[:, :6])
        for place in range(6, 9):
            model(x[:, place : place + 1])
    model.options["is_causal"] = True
    assert c.layers == ("Cached",)
    assert "Causal()" in repr(c[0])
    assert_close(c[0].dense(), model.weights(x))
