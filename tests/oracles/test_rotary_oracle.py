"""Rotary positions against the functions of transformers, run in float64."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

from transformers import GPTNeoXConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.cohere import modeling_cohere as cohere
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.roformer import modeling_roformer as roformer

from regard.spec import positions
from regard.spec.positions import NTK, Linear, Llama3, Stretch, YaRN, yarn_scale

BATCH, HEADS, LENGTH, WIDTH = 3, 2, 11, 26
STARTS = torch.tensor([0, 17, 1013])
ROWS = STARTS[:, None] + torch.arange(LENGTH)


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Their code names `torch.float`; while a test runs, that name and the default stand for float64."""
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch, "float32", torch.float64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def draw(seed: int) -> Tensor:
    return torch.randn(BATCH, HEADS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(ours: Tensor, theirs: Tensor) -> None:
    """Equal up to a few roundings of angles of about 1000 radians in float64."""
    assert theirs.dtype == torch.float64, "the oracle fell back to single precision"
    torch.testing.assert_close(ours, theirs, atol=2e-12, rtol=0)


def llama_config(**rope: Any) -> LlamaConfig:
    parameters = {"rope_type": "default", "rope_theta": 10000.0} | rope
    return LlamaConfig(
        hidden_size=WIDTH * HEADS,
        num_attention_heads=HEADS,
        max_position_embeddings=64,
        rope_parameters=parameters,
    )


@pytest.mark.parametrize(
    ("rope", "base", "stretch"),
    [
        ({}, 10000.0, None),
        ({"rope_theta": 500000.0}, 500000.0, None),
        ({"rope_type": "linear", "factor": 4.0}, 10000.0, Linear(4.0)),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256},
            10000.0,
            YaRN(4.0, original_length=256),
        ),
        (
            {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 256,
            },
            500000.0,
            Llama3(8.0, original_length=256),
        ),
    ],
    ids=["plain", "base", "linear", "yarn", "llama3"],
)
def test_llama(rope: dict[str, Any], base: float, stretch: Stretch | None) -> None:
    q, k = draw(0), draw(1)
    cos, sin = llama.LlamaRotaryEmbedding(llama_config(**rope))(q, ROWS)
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    for x, turned in zip((q, k), theirs, strict=True):
        close(positions.rotary(x, STARTS, base=base, stretch=stretch), turned)
        close(positions.rotary(x, positions=ROWS, base=base, stretch=stretch), turned)


@pytest.mark.parametrize("width", [10, WIDTH])
def test_gptj(width: int) -> None:
    x = draw(0)
    table = gptj.create_sinusoidal_positions(2048, width)
    sin, cos = table[ROWS].chunk(2, dim=-1)
    by_row = x.transpose(1, 2)
    turned = gptj.apply_rotary_pos_emb(by_row[..., :width], sin, cos)
    theirs = torch.cat([turned, by_row[..., width:]], dim=-1).transpose(1, 2)
    close(positions.rotary(x, STARTS, width=width, pairing="interleaved"), theirs)


@pytest.mark.parametrize("share", [6 / 26, 14 / 26, 1.0])
def test_gpt_neox_partial(share: float) -> None:
    q, k = draw(0), draw(1)
    config = GPTNeoXConfig(
        hidden_size=WIDTH * HEADS,
        num_attention_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share},
    )
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, ROWS)
    theirs = neox.apply_rotary_pos_emb(q, k, cos, sin)
    for x, turned in zip((q, k), theirs, strict=True):
        close(positions.rotary(x, STARTS, width=round(share * WIDTH)), turned)


def test_roformer() -> None:
    q, k = draw(0), draw(1)
    sinusoids = roformer.RoFormerSinusoidalPositionalEmbedding(LENGTH, WIDTH).create_weight()
    theirs = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings(sinusoids[None, None], q, k)
    for x, turned in zip((q, k), theirs, strict=True):
        # Their sines and cosines pass through float32, whatever the default is: one rounding for each of two terms.
        budget = 2 * 2**-24 * x.abs().max().item()
        torch.testing.assert_close(positions.rotary(x, pairing="interleaved"), turned, atol=budget, rtol=0)


def test_cohere_interleaved() -> None:
    q, k = draw(0), draw(1)
    cos, sin = cohere.CohereRotaryEmbedding(llama_config())(q, ROWS)
    theirs = cohere.apply_rotary_pos_emb(q, k, cos, sin)
    for x, turned in zip((q, k), theirs, strict=True):
        # They round the input to float32 first: one rounding for each of two terms.
        budget = 2 * 2**-24 * x.abs().max().item()
        ours = positions.rotary(x, STARTS, pairing="interleaved")
        torch.testing.assert_close(ours, turned, atol=budget, rtol=0)


def test_deepseek_interleaved_up_to_the_order_of_dimensions() -> None:
    """Theirs leaves the pairs apart after turning them; queries and keys alike, so scores are the same."""
    q, k = draw(0), draw(1)
    cos, sin = llama.LlamaRotaryEmbedding(llama_config())(q, ROWS)
    theirs = deepseek.apply_rotary_pos_emb_interleave(q, k, cos, sin)
    apart = torch.cat([torch.arange(0, WIDTH, 2), torch.arange(1, WIDTH, 2)])
    for x, turned in zip((q, k), theirs, strict=True):
        close(positions.rotary(x, STARTS, pairing="interleaved")[..., apart], turned)


def parameters(kind: str, **rope: Any) -> tuple[Tensor, float]:
    length = rope.pop("length", None)
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](llama_config(rope_type=kind, **rope), device="cpu", seq_len=length)
    assert frequencies.dtype == torch.float64, "the oracle fell back to single precision"
    return frequencies, float(factor)


def agree(stretch: Stretch, base: float, theirs: tuple[Tensor, float]) -> None:
    frequencies, factor = stretch.frequencies(WIDTH, base)
    torch.testing.assert_close(frequencies, theirs[0], atol=0, rtol=1e-14)
    assert factor == pytest.approx(theirs[1], rel=1e-15)


@pytest.mark.parametrize("factor", [1.0, 2.5, 32.0])
@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_linear_and_ntk_frequencies(factor: float, base: float) -> None:
    agree(Linear(factor), base, parameters("linear", rope_theta=base, factor=factor))
    # Their dynamic form computes a factor from the length; with factor 1 it is length / trained length.
    ratio = parameters("dynamic", rope_theta=base, factor=1.0, length=int(64 * factor))
    agree(NTK(factor), base, ratio)
    grown = parameters("dynamic", rope_theta=base, factor=factor, length=3 * 64)
    agree(NTK(factor * 3 - (factor - 1)), base, grown)


Beta = tuple[float, float]


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("beta", [(32.0, 1.0), (5.0, 2.0)])
@pytest.mark.parametrize("length", [31, 256, 4096])
@pytest.mark.parametrize("base", [101.0, 10000.0, 500000.0])
def test_yarn_frequencies(base: float, length: int, beta: Beta, truncate: Literal[True, False]) -> None:
    theirs = parameters(
        "yarn",
        rope_theta=base,
        factor=4.0,
        original_max_position_embeddings=length,
        beta_fast=beta[0],
        beta_slow=beta[1],
        truncate=truncate,
    )
    agree(YaRN(4.0, length, beta_fast=beta[0], beta_slow=beta[1], truncate=truncate), base, theirs)


def test_yarn_ramp_without_width() -> None:
    theirs = parameters("yarn", factor=4.0, original_max_position_embeddings=5)
    agree(YaRN(4.0, original_length=5), 10000.0, theirs)


def test_yarn_attention_factors() -> None:
    common = {"factor": 40.0, "original_max_position_embeddings": 256}
    agree(YaRN(40.0, 256), 10000.0, parameters("yarn", **common))
    agree(YaRN(40.0, 256, attention_factor=0.75), 10000.0, parameters("yarn", attention_factor=0.75, **common))
    ratio = yarn_scale(40.0, 0.9) / yarn_scale(40.0, 0.707)
    theirs = parameters("yarn", mscale=0.9, mscale_all_dim=0.707, **common)
    agree(YaRN(40.0, 256, attention_factor=ratio), 10000.0, theirs)


@pytest.mark.parametrize("length", [31, 256, 8192])
@pytest.mark.parametrize("band", [(1.0, 4.0), (2.0, 7.0)])
@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_frequencies(factor: float, band: Beta, length: int) -> None:
    low, high = band
    theirs = parameters(
        "llama3",
        rope_theta=500000.0,
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=length,
    )
    agree(Llama3(factor, low, high, length), 500000.0, theirs)
