"""Numbers that a spec holds: within 64 bits and the range of the logits, and exact in the precision of the call."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import Dropout, attend, biases, masks, matrix, nn, normalizers, positions, scores

QUERY, KEY, VALUE = torch.randn(3, 2, 2, 6, 4, generator=torch.Generator().manual_seed(0))
BEYOND = (2**70, -(2**70), 2**63, 10**5000)
ONE = torch.ones(1, 1, dtype=torch.bool)

WHOLE: dict[str, Callable[[int], object]] = {
    "Prefix": masks.Prefix,
    "Prefix of each row": lambda n: masks.Prefix([n, 1]),
    "Window before": lambda n: masks.Window(n, 0),
    "Window after": lambda n: masks.Window(None, n),
    "Dilated width": lambda n: masks.Dilated(n, 1),
    "Dilated step": lambda n: masks.Dilated(3, n),
    "Global": lambda n: masks.Global([n]),
    "Lengths": lambda n: masks.Lengths([n, 1]),
    "Documents": lambda n: masks.Documents([n] * 6),
    "Blocks": lambda n: masks.Blocks(n, ONE),
    "local": masks.local,
    "longformer": lambda n: masks.longformer(3, [n]),
    "bigbird length": masks.bigbird,
    "bigbird size": lambda n: masks.bigbird(64, n),
    "bigbird seed": lambda n: masks.bigbird(64, 16, seed=2 * n),
    "pairs": lambda n: masks.Causal().pairs(n),
    "ALiBi": biases.ALiBi,
    "T5": lambda n: biases.T5(torch.zeros(8, 2), True, n),
    "seed": lambda n: Dropout(0.1, 2 * n),
    "query_start": lambda n: attend(QUERY, KEY, VALUE, mask="causal", query_start=n),
    "rotary": lambda n: positions.rotary(QUERY, start=n),
    "rotary base": lambda n: positions.rotary(QUERY, base=n * 10**400),
    "sinusoidal": lambda n: positions.sinusoidal(4, 4, start=n),
    "YaRN": lambda n: positions.YaRN(4.0, n),
    "NTK": lambda n: positions.NTK(n * 10**400),
    "heads of a layer": lambda n: nn.MultiHeadAttention(8, n),
}


@pytest.mark.parametrize("number", BEYOND, ids=("2**70", "-2**70", "2**63", "10**5000"))
@pytest.mark.parametrize("name", WHOLE)
def test_integers_beyond_64_bits(name: str, number: int) -> None:
    with pytest.raises(ValueError, match=r"must |wants ") as caught:
        WHOLE[name](number)
    assert "Exceeds the limit" not in str(caught.value)


@pytest.mark.parametrize("number", [2**62 + 1, -(2**62) - 1, 2**63 - 1, -(2**63)])
def test_positions_whose_differences_would_overflow(number: int) -> None:
    start = torch.tensor([number, 0])
    for call in (
        lambda: masks.Prefix(number),
        lambda: masks.Prefix(start),
        lambda: masks.Global(start),
        lambda: attend(QUERY, KEY, VALUE, mask="causal", query_start=start),
    ):
        with pytest.raises(ValueError, match=re.escape(f"must lie within ±2**62, got {number}")):
            call()


@pytest.mark.parametrize("number", [2**62, -(2**62)])
@pytest.mark.parametrize("engine", ["native", "tiled"])
def test_the_farthest_positions_are_right(number: int, engine: str) -> None:
    for mask in (masks.Prefix(number), masks.Global([number]) | masks.Prefix(3), masks.Blocks(2**62, ONE)):
        found = attend(QUERY, KEY, VALUE, mask=mask, engine=engine)
        assert torch.allclose(found, attend(QUERY, KEY, VALUE, mask=mask, engine="reference"), atol=1e-6)


SCALES: dict[str, Callable[[float], scores.Score]] = {
    "ScaledDot's scale": scores.ScaledDot,
    "Cosine's scale": scores.Cosine,
    "SoftCapped's cap": lambda x: scores.SoftCapped(scores.Dot(), x),
    "Relative's scale": lambda x: scores.Relative(torch.ones(3, 4), scale=x),
}


@pytest.mark.parametrize("value", [1e300, 3.5e38, 10**200])
@pytest.mark.parametrize("name", SCALES)
def test_a_factor_must_exist_in_the_precision_of_the_logits(name: str, value: float) -> None:
    score = SCALES[name](value)
    text = re.escape(f"{name} must be at most 3.4e+38 either way, as logits are float32, got ")
    for wrong in (score, scores.SoftCapped(score, 2.0), scores.Modified(score, lambda s, b, h, i, j: s)):
        for engine in ("auto", "reference", "tiled"):
            with pytest.raises(ValueError, match=text):
                attend(QUERY, KEY, VALUE, score=wrong, engine=engine)
        with pytest.raises(ValueError, match=text):
            matrix(QUERY, KEY, score=wrong)
    if not isinstance(score, scores.Relative):
        doubles = [tensor.double() for tensor in (QUERY, KEY, VALUE)]
        for engine in ("auto", "reference", "tiled"):
            assert attend(*doubles, score=score, engine=engine).isfinite().all()


def test_a_cap_that_has_no_inverse_is_refused() -> None:
    """A score of 0 under such a cap was 0 / 0."""
    zeros = torch.zeros_like(QUERY)
    score = scores.SoftCapped(scores.Dot(), 1e-300)
    with pytest.raises(
        ValueError, match=r"SoftCapped's cap must be at least 1\.18e-38, as logits are float32, got 1e-300"
    ):
        attend(zeros, KEY, VALUE, score=score)
    assert attend(zeros.double(), KEY.double(), VALUE.double(), score=score).isfinite().all()


@pytest.mark.parametrize("engine", ["reference", "tiled", "native"])
def test_a_sink_that_is_a_number_keeps_its_digits(engine: str) -> None:
    """0.1 in a float64 call is 0.1, not the nearest float32; an int may be beyond 64 bits."""
    doubles = [tensor.double() for tensor in (QUERY, KEY, VALUE)]
    for number in (0.1, 1, 2**70, -(2**70)):
        given = normalizers.Softmax(number)
        exact = normalizers.Softmax(torch.tensor(float(number), dtype=torch.float64))
        found, wanted = (attend(*doubles, normalizer=one, engine=engine) for one in (given, exact))
        assert torch.equal(found, wanted)


def test_a_cache_in_pieces_counts_the_same_sink() -> None:
    torch.manual_seed(0)
    layers: list[Any] = []
    for sink in (0.1, torch.tensor(0.1, dtype=torch.float64)):
        torch.manual_seed(0)
        layers.append(nn.MultiHeadAttention(8, 2, normalizer=normalizers.Softmax(sink), mask="causal").double())
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    found: list[Tensor] = []
    for layer in layers:
        cache = nn.KVCache(window=3, sinks=1)
        found.append(torch.cat([layer(x[:, at : at + 1], cache=cache) for at in range(9)], 1))
    assert torch.equal(*found)
