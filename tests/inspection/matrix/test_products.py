"""Products: dimension by dimension they add up to the score, and with the lse give the weight."""

from typing import Any

import pytest
import torch

import regard
from regard import biases, masks, normalizers, scores
from regard.inspection.matrix.products import NoProductsError, products


def inputs(heads: int = 4, kv_heads: int = 2, batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    q, k = torch.randn(batch, heads, 5, 7, dtype=torch.float64), torch.randn(batch, kv_heads, 6, 7, dtype=torch.float64)
    return q, k


@pytest.mark.parametrize(
    "score", [scores.ScaledDot(), scores.Dot(), scores.ScaledDot(0.3), scores.Cosine(5.0), "general"], ids=str
)
def test_scores_and_weights_follow_from_the_products(score: Any) -> None:
    q, k = inputs()
    if score == "general":
        score = scores.General(torch.randn(7, 7, dtype=torch.float64))
    matrix = regard.matrix(q, k, score=score, mask=masks.Window(2, 2), query_start=0)
    for part in (matrix, matrix[1], matrix[0, 3], matrix[:, 1]):
        own = products(part)
        logits = torch.einsum("hid,hjd->hij", own.query, own.key[list(own.kv_head)]) * own.scale
        assert own.lse is not None
        assert own.width == 7
        expected = part.dense().reshape(-1, 5, 6)
        weights = (logits - own.lse.unsqueeze(-1)).exp()
        torch.testing.assert_close(torch.where(expected > 0, weights, 0.0), expected)


def test_what_follows_the_score_is_named() -> None:
    q, k = inputs()
    assert products(regard.matrix(q, k)).then == ()
    spec: dict[str, Any] = {"score": scores.SoftCapped(scores.ScaledDot(), 20.0), "bias": biases.ALiBi(4)}
    matrix = regard.matrix(q, k, temperature=0.5, normalizer=normalizers.Sparsemax(), query_start=0, **spec)
    assert products(matrix).then == ("cap 20", "plus ALiBi", "divided by the temperature", "sparsemax")
    assert products(matrix).lse is None


def test_weights_without_products_say_why() -> None:
    with pytest.raises(NoProductsError, match="stored as they are: queries and keys are not there"):
        products(regard.AttentionMatrix.from_weights(torch.eye(3)))
    q, k = torch.randn(2, 1, 2, 5, 4)
    additive = scores.Additive(torch.randn(3, 4), torch.randn(3, 4), torch.randn(3))
    with pytest.raises(NoProductsError, match=r"Additive\(.*\) is not a product of q and k"):
        products(regard.matrix(q, k, score=additive))
