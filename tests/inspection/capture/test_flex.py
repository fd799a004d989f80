"""Capture of models that call FlexAttention."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing import assert_close

from regard.inspection.capture import capture

N = 16


class Flexible(nn.Module):
    """Four heads over two of keys."""

    def __init__(self, score: bool, mask: bool) -> None:
        super().__init__()
        self.slopes = slopes = torch.tensor([0.1, 0.2, 0.4, 0.8]) if score else torch.zeros(4)
        self.window = window = torch.tensor(5)

        def sloped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score - slopes[h] * (i - j)

        def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (i >= j) & (i - j < window)

        block_mask = create_block_mask(seen, None, None, N, N, device="cpu") if mask else None
        self.options: dict[str, Any] = {"score_mod": sloped if score else None, "block_mask": block_mask}

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        out = flex_attention(q, k, k, enable_gqa=True, scale=0.6, **self.options)
        assert isinstance(out, Tensor)
        return out


@pytest.mark.filterwarnings("ignore:regard runs this on 'tiled'")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("score, mask", [(False, False), (True, False), (False, True), (True, True)])
def test_weights_are_those_of_the_functions(score: bool, mask: bool) -> None:
    torch.manual_seed(0)
    model, q, k = Flexible(score, mask), torch.randn(2, 4, N, 8), torch.randn(2, 2, N, 8)
    want = model(q, k)
    c = capture(model, q, k)
    assert torch.equal(c.output, want)
    assert c.layers == ("Flexible",)
    away = torch.arange(N).view(-1, 1) - torch.arange(N)
    logits = 0.6 * q @ k.repeat_interleave(2, 1).mT - model.slopes.view(-1, 1, 1) * away
    if mask:
        logits = logits.masked_fill((away < 0) | (away >= 5), -torch.inf)
    model.slopes.zero_(), model.window.zero_()
    assert_close(c[0].dense(), logits.softmax(-1), atol=1e-6, rtol=1e-5)
