"""Sinusoidal tables against those of transformers."""

import pytest
import torch

pytest.importorskip("transformers")

from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.roformer.modeling_roformer import RoFormerSinusoidalPositionalEmbedding
from transformers.models.xglm.modeling_xglm import XGLMSinusoidalPositionalEmbedding

from regard.spec import positions

LENGTH = 1021


@pytest.mark.parametrize("kind", [MarianSinusoidalPositionalEmbedding, RoFormerSinusoidalPositionalEmbedding])
@pytest.mark.parametrize("width", [13, 26])
def test_marian_and_roformer_are_halves(kind: type[MarianSinusoidalPositionalEmbedding], width: int) -> None:
    """Both work in float64 and round once, so no more than the last bit of float32 can differ."""
    theirs = kind(LENGTH, width).create_weight()
    ours = positions.sinusoidal(LENGTH, width, layout="halves")
    assert (ours - theirs).abs().max() <= 2**-24


@pytest.mark.parametrize("kind", [M2M100SinusoidalPositionalEmbedding, XGLMSinusoidalPositionalEmbedding])
def test_tensor2tensor_is_halves_with_another_base(kind: type[M2M100SinusoidalPositionalEmbedding]) -> None:
    """Their slowest frequency is exactly 1/10000, so the base of the ladder is 10000^(width / (width - 2))."""
    width = 26
    theirs = kind.get_embedding(LENGTH, width)
    ours = positions.sinusoidal(LENGTH, width, base=10000.0 ** (width / (width - 2)), layout="halves")
    # Their angles are float32: frequency and product are rounded, each by 2^-24 of an angle below LENGTH,
    # and the exponent of the frequency, at most ln 10000 = 9.2, is off by another 2 roundings of itself.
    budget = (2 + 2 * 9.22) * LENGTH * 2**-24
    assert (ours - theirs).abs().max() <= budget
    assert (ours - positions.sinusoidal(LENGTH, width, layout="halves")).abs().max() > 0.1
    torch.testing.assert_close(ours[:7], theirs[:7], atol=1e-6, rtol=0)
