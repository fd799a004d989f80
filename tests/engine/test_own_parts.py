"""Parts of one's own: with or without the decorator, on every engine that takes them, and never taken for another."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import attend, biases, capture, explain, masks, matrix, nn, normalizers, plan, scores
from regard.engine.arguments import tensors_of
from regard.spec.forms import Form
from regard.spec.masks.runs import Runs
from regard.spec.plane import Pairs, RowBlocks
from regard.testing import assert_within

pytestmark = pytest.mark.filterwarnings("ignore:regard runs this on")

generator = torch.Generator().manual_seed(0)
INPUTS = [torch.randn(1, 2, 5, 4, generator=generator) for _ in range(3)]


class Power(normalizers.Normalizer):
    def __init__(self, power: float = 2.0) -> None:
        self.power = power

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        assert logits.shape[-1] > 0, "weights was called without keys"
        found = torch.softmax(self.power * logits, -1)
        return torch.where(found.isnan(), 0.0, found), logits.amax(-1)

    def backward(self, weights: Tensor, grad: Tensor) -> Tensor:
        return self.power * weights * (grad - (weights * grad).sum(-1, keepdim=True))


@dataclass
class Thawed(normalizers.Normalizer):
    """Decorated, but not frozen."""

    power: float = 2.0
    weights = Power.weights
    backward = Power.backward


class Near(masks.Mask):
    def __init__(self, reach: int) -> None:
        self.reach = reach

    def visible(self, pairs: Pairs) -> Tensor:
        return (pairs.i - pairs.j).abs() <= self.reach


class Slope(biases.Bias):
    def __init__(self, slope: Tensor) -> None:
        self.slope = slope

    def values(self, pairs: Pairs) -> Tensor:
        return -self.slope * (pairs.i - pairs.j).abs()


class Times(scores.Score):
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return self.factor * (query @ key.mT)

    def lower(self, query: Tensor, key: Tensor) -> Form:
        return scores.Dot().lower(query * self.factor, key)


class Sevenfold(scores.ScaledDot):
    """Derived from one of regard's: engines that know ScaledDot must not take it for that."""

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return 7.0 * (query @ key.mT)

    def lower(self, query: Tensor, key: Tensor) -> Form:
        return scores.Dot().lower(query * 7.0, key)


class Past(masks.Causal):
    def visible(self, pairs: Pairs) -> Tensor:
        return pairs.j < pairs.i

    def runs(self, row_blocks: RowBlocks) -> Runs:
        return masks.Mask.runs(self, row_blocks)


class Flat(biases.ALiBi):
    def values(self, pairs: Pairs) -> Tensor:
        return 0.5 * super().values(pairs)

    lower = biases.Bias.lower


PARTS: dict[str, tuple[str, Callable[[], Any], str]] = {
    "normalizer": ("normalizer", lambda: Power(3.0), "Power(power=3.0)"),
    "normalizer, thawed": ("normalizer", lambda: Thawed(3.0), "Thawed(power=3.0)"),
    "mask": ("mask", lambda: Near(1), "Near(reach=1)"),
    "bias": ("bias", lambda: Slope(torch.tensor(0.5)), "Slope(slope=0.5)"),
    "score": ("score", lambda: Times(0.25), "Times(factor=0.25)"),
    "derived score": ("score", lambda: Sevenfold(2.0), "Sevenfold(scale=2.0)"),
    "derived mask": ("mask", Past, "Past()"),
    "derived bias": ("bias", lambda: Flat(2), "Flat(2)"),
}


@pytest.mark.parametrize("name", PARTS)
def test_it_prints_compares_and_tells_what_it_holds(name: str) -> None:
    _, make, text = PARTS[name]
    part = make()
    if name != "normalizer, thawed":  # its repr is the decorator's
        assert repr(part) == text
    assert part == make()
    assert part != text
    assert part.contents is None  # it may change: no call is remembered by it
    assert [tensor for _, tensor in tensors_of("part", part)] == ([part.slope] if name == "bias" else [])


def test_parts_that_hold_other_things_differ() -> None:
    assert Power(2.0) != Power(3.0)
    changed = Power(2.0)
    changed.more = 1  # type: ignore[attr-defined]
    assert Power(2.0) != changed
    assert Slope(torch.ones(2)) == Slope(torch.ones(2))
    assert Slope(torch.ones(2)) != Slope(torch.zeros(2))
    assert Times(0.5).parameters == {}


@pytest.mark.parametrize("name", PARTS)
def test_every_engine_computes_it_or_says_why_not(name: str) -> None:
    argument, make, _ = PARTS[name]
    spec: Any = {argument: make()}
    doubles = [tensor.double() for tensor in INPUTS]
    truth, plain = (attend(*inputs, engine="reference", **spec) for inputs in (doubles, INPUTS))
    for engine in ("auto", "auto", "tiled"):  # twice: a call seen before must not take the short way
        assert_within(attend(*INPUTS, engine=engine, **spec), plain, truth)
    for engine in ("native", "flex", "sdpa"):
        try:
            found = attend(*INPUTS, engine=engine, **spec)
        except ValueError as error:
            refused = str(error)
        else:
            refused = f"engine '{engine}' cannot do this"
            assert_within(found, plain, truth)
        assert refused.startswith(f"engine '{engine}' cannot do this")
    weights = torch.from_numpy(np.asarray(matrix(*INPUTS[:2], **spec)[:]))
    assert_within(weights @ INPUTS[2], plain, truth)
    assert plan(*INPUTS, **spec).engine in ("tiled", "native")
    if name != "derived bias":  # it has two heads
        query, key, value = (tensor[:, :1] for tensor in INPUTS)
        assert explain(query, key, value, **spec).text()


@pytest.mark.parametrize("name", PARTS)
def test_gradients(name: str) -> None:
    argument, make, _ = PARTS[name]

    def gradients(inputs: list[Tensor], engine: str) -> Tensor:
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        attend(*leaves, engine=engine, **{argument: make()}).square().sum().backward()
        return torch.cat([leaf.grad for leaf in leaves])  # type: ignore[misc]

    truth = gradients([tensor.double() for tensor in INPUTS], "reference")
    for engine in ("auto", "tiled"):
        assert_within(gradients(INPUTS, engine), gradients(INPUTS, "reference"), truth)


def test_a_tensor_in_a_bias_of_ones_own_gets_its_gradient() -> None:
    found = []
    for engine in ("reference", "tiled", "auto"):
        slope = torch.tensor(0.5, requires_grad=True)
        attend(*INPUTS, bias=Slope(slope), engine=engine).square().sum().backward()
        assert slope.grad is not None
        found.append(float(slope.grad))
    assert found[1] == found[2] == pytest.approx(found[0], rel=1e-5)


def test_a_bias_of_ones_own_may_hide_all() -> None:
    class Nowhere(biases.Bias):
        def values(self, pairs: Pairs) -> Tensor:
            return torch.where(pairs.i > 2, -torch.inf, 0.0)

    for engine in ("reference", "tiled", "auto"):
        out = attend(*INPUTS, bias=Nowhere(), engine=engine)
        assert torch.equal(out[:, :, 3:], torch.zeros(1, 2, 2, 4))
        assert out[:, :, :3].isfinite().all()


@pytest.mark.parametrize("engine", ["reference", "tiled", "auto"])
def test_weights_is_never_asked_without_keys(engine: str) -> None:
    query, key, value = INPUTS
    hidden = masks.Window(-10, 10)
    empty = key[:, :, :0], value[:, :, :0]
    for normalizer in (Power(), normalizers.Hard(), normalizers.Sparsemax()):
        out = attend(query, *empty, normalizer=normalizer, query_start=0, engine=engine)
        assert torch.equal(out, torch.zeros(1, 2, 5, 4))
        assert torch.equal(attend(query, key, value, normalizer=normalizer, mask=hidden, engine=engine), out)
        assert torch.equal(
            matrix(query, empty[0], normalizer=normalizer, query_start=0).entropy(), torch.zeros(1, 2, 5)
        )


@pytest.mark.parametrize(
    "answer, kind, text",
    [
        (lambda x: x, TypeError, "Wrong.weights must return two tensors, the weights and the row state, got Tensor"),
        (lambda x: (x, None), TypeError, "must return two tensors"),
        (lambda x: (x[..., :1], x.amax(-1)), ValueError, "must return weights of the logits' shape, (1, 2, 1, 5, 5)"),
        (lambda x: (x, x.amax(-1, keepdim=True)), ValueError, "and one state for each row, got (1, 2, 1, 5, "),
    ],
)
@pytest.mark.parametrize("engine", ["reference", "tiled"])
def test_weights_of_a_wrong_kind(
    answer: Callable[[Tensor], Any], kind: type[Exception], text: str, engine: str
) -> None:
    class Wrong(normalizers.Normalizer):
        def weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
            found: tuple[Tensor, Tensor] = answer(logits)
            return found

    with pytest.raises(kind, match=re.escape(text)):
        attend(*INPUTS, normalizer=Wrong(), engine=engine)


@pytest.mark.parametrize("name", PARTS)
def test_layers_captures_and_files(name: str, tmp_path: Path) -> None:
    argument, make, _ = PARTS[name]
    layer = nn.MultiHeadAttention(8, 2, **{argument: make()})
    assert len(capture(layer, torch.randn(1, 5, 8))) == 1
    found = matrix(*INPUTS[:2], **{argument: make()})
    if argument in ("score", "normalizer"):
        with pytest.raises(ValueError, match="save its numbers instead"):
            found.save(tmp_path / "a.safetensors")
    else:
        found.save(tmp_path / "a.safetensors")
    with pytest.raises(Exception, match=r"regard's own parts|FlexAttention|compile"):
        torch.compile(lambda *inputs: attend(*inputs, **{argument: make()}), backend="eager", fullgraph=True)(*INPUTS)
