"""What a block refuses, by name and with the reason."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as fused
from torch.testing import assert_close

import regard
from regard.inspection.capture import capture
from regard.inspection.interventions import (
    Ablate,
    Forbid,
    Mask,
    Pattern,
    Previous,
    Temperature,
    Uniform,
    intervene,
)


class Heads(nn.Module):
    """Four heads over two of keys, causal."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = {"is_causal": True, **options}
        self.inputs, self.outputs = nn.Linear(12, 64), nn.Linear(32, 12)

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.inputs(x).unflatten(-1, (8, 8)).transpose(-3, -2).split([4, 2, 2], -3)
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        out = fused(*self.projected(x), enable_gqa=True, **self.options)
        mixed: Tensor = self.outputs(out.transpose(-3, -2).flatten(-2))
        return mixed


def model(layers: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Heads() for _ in range(layers)))


X = torch.randn(2, 9, 12, generator=torch.Generator().manual_seed(1))


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "class": (lambda: intervene(model(), Ablate), TypeError, r"got the class Ablate; make one: Ablate\(\.\.\.\)"),  # type: ignore[arg-type]
    "none": (lambda: intervene(model()), TypeError, "needs a change"),
    "kind": (lambda: intervene(model(), 3), TypeError, "one of regard.interventions, got int"),  # type: ignore[arg-type]
    "model": (lambda: intervene(len, Ablate()), TypeError, "must be a torch.nn.Module"),  # type: ignore[arg-type]
    "name": (lambda: intervene(model(), Ablate(), layers="3"), ValueError, "no module of Sequential is '3'"),
    "negative": (lambda: intervene(model(), Ablate(), layers=-1), ValueError, "layers count from 0, got -1"),
    "layer": (lambda: intervene(model(), Ablate(), layers=[1.5]), TypeError, "numbers, names or patterns"),  # type: ignore[list-item]
    "empty": (lambda: intervene(model(), Ablate(), heads=[]), ValueError, "heads is empty"),
    "head": (lambda: intervene(model(), Ablate(), heads=["a"]), TypeError, "a head must be an int, got str"),  # type: ignore[list-item]
    "temperature": (lambda: Temperature(0.0), ValueError, "Temperature must be a finite number above 0"),
    "mask": (lambda: Mask(torch.ones(3, 3)), TypeError, "Mask takes a bool tensor"),
    "mask kind": (lambda: Mask("causal"), TypeError, "one of regard.masks or a bool tensor, got str"),  # type: ignore[arg-type]
    "forbid": (lambda: Forbid([-1]), ValueError, "a position of Forbid must be at least 0, got -1"),
    "forbid none": (lambda: Forbid([]), ValueError, "Forbid has no positions"),
    "forbid axes": (lambda: Forbid(torch.ones(1, 2, 3).bool()), ValueError, r"bools \(key,\) or \(batch, key\)"),
    "pattern": (lambda: Pattern([[1.0]]), TypeError, "a Capture, an AttentionMatrix or a tensor"),  # type: ignore[arg-type]
    "pattern axes": (lambda: Pattern(torch.ones(2, 3, 3)), ValueError, "not taken for heads, got shape"),
}


@pytest.mark.parametrize("make, kind, text", WRONG.values(), ids=WRONG)
def test_wrong_arguments(make: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        make()


RUNS: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "number": (
        lambda m: intervene(m, Ablate(), layers=3),
        "layer 3 made no call of attention; .* are 0, 1, 2",
    ),
    "module": (lambda m: intervene(m, Ablate(), layers="1.inputs"), "'1.inputs' made no call of attention"),
    "head": (lambda m: intervene(m, Ablate(), heads=4), "0 cannot be changed: it has 4 heads, 0 to 3, and no head 4"),
    "rows": (lambda m: intervene(m, Forbid(torch.ones(3, 9).bool())), "Forbid has 3 rows, the call has a batch of 2"),
    "position": (lambda m: intervene(m, Forbid([1, 9])), "Forbid names position 9, and there were 9 keys, 0 to 8"),
    "keys": (lambda m: intervene(m, Forbid(torch.ones(10).bool())), "Forbid speaks of 10 keys, and there were 9"),
    "mask keys": (lambda m: intervene(m, Mask(torch.ones(9, 10).bool())), "Mask speaks of 10 keys, and there were 9"),
    "pattern": (lambda m: intervene(m, Pattern(torch.ones(1, 3, 9, 9))), r"the pattern is \(1, 3, 9, 9\), the call"),
    "short": (lambda m: intervene(m, Pattern(torch.eye(5))), "the pattern has 5 queries, the call's stand at 0 to 8"),
    "below": (lambda m: intervene(m, Pattern(-torch.eye(9))), "weights below 0"),
    "after": (lambda m: intervene(m, Pattern(torch.eye(9)), Uniform()), "put the Pattern last"),
    "mask": (
        lambda m: intervene(m, Mask(torch.ones(4, 4).bool())),
        "the mask has 4 queries, the call's stand at 0",
    ),
}


@pytest.mark.parametrize("make, text", RUNS.values(), ids=RUNS)
def test_what_cannot_be_changed_is_refused_by_name(make: Callable[[nn.Module], Any], text: str) -> None:
    three = model()
    with pytest.raises(ValueError, match=text), make(three):
        three(X)


def test_a_block_that_met_no_call() -> None:
    idle = intervene(nn.Linear(3, 3), Ablate())
    with pytest.raises(ValueError, match="Linear made no call of attention that can be changed"), idle:
        pass
    done = intervene(model(), Ablate())
    with pytest.raises(ValueError, match="made no call"), done:
        pass
    with pytest.raises(RuntimeError, match="this intervention is done"), done:
        pass


def test_accelerating_and_compiled_models() -> None:
    with (
        regard.accelerating(),
        pytest.raises(RuntimeError, match="intervene outside of it"),
        intervene(model(), Ablate()),
    ):
        pass
    compiled = model()
    compiled[1].compile(backend="eager")
    with pytest.raises(ValueError, match=r"1 is compiled, .* as it was before"):
        intervene(compiled, Ablate())


def test_more_queries_than_keys_have_no_previous() -> None:
    q, k = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 3, 4)

    class Cross(nn.Module):
        def forward(self) -> Tensor:
            return fused(q, k, k)

    one = Cross()
    with (
        pytest.raises(ValueError, match="Cross cannot be changed: it has more queries than keys"),
        intervene(one, Previous()),
    ):
        one()


def test_attend_that_gives_more_than_its_output_is_refused() -> None:
    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return regard.attend(x, x, x, aux="lse")

    one = Asking()
    with pytest.raises(ValueError, match="more than the output"), intervene(one, Uniform()):
        one(torch.randn(1, 2, 4, 4))


def test_decoder_and_weights_of_multihead_attention() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, dropout=0.0, add_bias_kv=True, add_zero_attn=True)
    x = torch.randn(6, 2, 16)
    for average in (True, False):
        before = layer(x, x, x, average_attn_weights=average)
        with intervene(layer, Temperature(1.0)):
            same = layer(x, x, x, average_attn_weights=average)
        for found, want in zip(same, before, strict=True):
            assert_close(found, want)
        with intervene(layer, Uniform(), heads=[1]), capture(layer) as c:
            weights = layer(x, x, x, average_attn_weights=False)[1]
        assert_close(weights, c[0].dense())
        assert_close(weights[:, 1], torch.full((2, 6, 8), 1 / 8))
    whole = nn.Transformer(16, 2, 1, 1, 24, 0.0, batch_first=True).eval()
    source, target = torch.randn(2, 7, 16), torch.randn(2, 5, 16)
    with torch.no_grad():
        before = whole(source, target)
        with intervene(whole, Temperature(1.0)) as changed:
            same = whole(source, target)
        assert len(changed.layers) == 3
        assert_close(same, before, atol=1e-5, rtol=1e-5)
        with intervene(whole, Ablate(), layers="*multihead_attn"):
            assert not torch.allclose(whole(source, target), before, atol=1e-3)
