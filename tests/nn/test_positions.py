"""Rotary with rounded angles turns by transformers' own cosines and sines."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from regard.nn import Rotary


@pytest.mark.parametrize("base", [10000.0, 100000.0, 500.0])
@pytest.mark.parametrize("start", [0, 2000])
def test_rounded_angles_are_transformers(base: float, start: int) -> None:
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=1, rope_parameters={"rope_type": "default", "rope_theta": base}
    )
    x, positions = torch.randn(1, 1, 48, 64), torch.arange(start, start + 48)[None]
    cos, sin = LlamaRotaryEmbedding(config)(x, positions)
    right, _ = apply_rotary_pos_emb(x, x, cos, sin)
    torch.testing.assert_close(Rotary(64, base=base, angles=torch.float32)(x, start), right, rtol=1e-6, atol=1e-6)
    exact = Rotary(64, base=base)(x.double(), start)
    ours = (Rotary(64, base=base)(x, start) - exact).abs().max()
    assert ours <= 1e-6
    if start:
        assert ours < (right - exact).abs().max() / 10


def test_other_angles_are_refused() -> None:
    with pytest.raises(ValueError, match=r"float64 \(exact\) or torch.float32"):
        Rotary(8, angles=torch.bfloat16)
