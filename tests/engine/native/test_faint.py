"""ALiBi: keys too far away to count are left out in whole tiles, and no bit shows it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend, biases, masks
from regard.spec.masks import Mask

N = 1100
MASKS: dict[str, Mask] = {"causal": masks.Causal(), "full": masks.Full(), "window": masks.Window(700, 40)}


def inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = torch.randn(3, 1, 4, N, 32, generator=torch.Generator().manual_seed(seed))
    return query, key, value


def row(at: int, query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
    """One query by itself: the way of decoding, which computes every segment."""
    return attend(
        query[:, :, at : at + 1], key, value, mask=mask, bias=biases.ALiBi(4), query_start=at, engine="native"
    )


@pytest.mark.parametrize("name", MASKS)
def test_a_row_by_itself_has_the_same_bits(name: str) -> None:
    query, key, value = inputs()
    value[:, :, N - 300 :] = 0.0  # late rows have nothing but faint weights to show
    whole = attend(query, key, value, mask=MASKS[name], bias=biases.ALiBi(4), query_start=0, engine="native")
    for at in (0, 255, 600, 899, 1000, N - 1):
        assert torch.equal(whole[:, :, at : at + 1], row(at, query, key, value, MASKS[name]))


def test_a_far_key_that_is_large_enough_counts() -> None:
    query, key, value = inputs()
    key[:, :, 3] = 60 * query[:, :, -1]  # its score outweighs a thousand steps of the steepest slope
    spec: dict[str, Any] = {"mask": "causal", "bias": biases.ALiBi(4), "aux": ("peak_at",)}
    _, found = attend(query, key, value, **spec, engine="native")
    _, wanted = attend(query.double(), key.double(), value.double(), **spec, engine="reference")
    assert torch.equal(found.peak_at, wanted.peak_at)
    assert (found.peak_at[0, :, -1] == 3).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_far_value_that_is_not_finite_shows(bad: float) -> None:
    query, key, value = inputs()
    value[:, :, 5, 7] = bad
    out = attend(query, key, value, mask="causal", bias=biases.ALiBi(4), engine="native")
    assert torch.equal(out.isfinite().all(-1)[0, 0], torch.arange(N) < 5)
    assert out[..., :7].isfinite().all()


def test_gradients_of_what_is_left_out_are_zero() -> None:
    query, key, value = (tensor.requires_grad_() for tensor in inputs())
    out = attend(query, key, value, mask="causal", bias=biases.ALiBi(4), engine="native")
    _, d_key, d_value = torch.autograd.grad(out[:, :, -200:].sum(), (query, key, value))
    steep = slice(0, 1)  # slope 1/4: 700 keys away a logit is 175 lower
    assert (d_key[:, steep, :200] == 0).all()
    assert (d_value[:, steep, :200] == 0).all()
    assert (d_value[:, 3:] != 0).any(-1).all()
