"""Local, Longformer and BigBird against what their papers say."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.spec import masks
from regard.spec.masks import Blocks, Mask, bigbird, local, longformer
from regard.spec.plane import Pairs, Plane

Seen = Callable[[Mask, Pairs], Tensor]


def table(mask: Mask, length: int, seen: Seen) -> Tensor:
    return seen(mask, Plane(1, 1, 1, length, length, torch.tensor([0])).all)[0, 0]


def layout(mask: Mask) -> Tensor:
    assert isinstance(mask, Blocks)
    return mask.layout


@pytest.mark.parametrize("width", [1, 3, 7, 99])
def test_local(width: int, seen: Seen) -> None:
    wanted = [[abs(i - j) <= width // 2 for j in range(23)] for i in range(23)]
    assert table(local(width), 23, seen).tolist() == wanted


@pytest.mark.parametrize("step", [1, 3])
def test_longformer(step: int, seen: Seen) -> None:
    wanted = [
        [(abs(i - j) <= 2 * step and (i - j) % step == 0) or i in (0, 11) or j in (0, 11) for j in range(23)]
        for i in range(23)
    ]
    assert table(longformer(5, [0, 11], step), 23, seen).tolist() == wanted


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window, ends, random", [(3, 1, 3), (1, 0, 2), (5, 2, 0), (3, 1, 99)])
def test_bigbird(window: int, ends: int, random: int, causal: bool) -> None:
    """Beside band and ends, every row of blocks has exactly as many more as were asked for, or all there are."""
    count = 16
    mask = bigbird(1000, 64, window=window, ends=ends, random=random, causal=causal)
    if isinstance(mask, masks.And):
        assert causal
        assert mask.right == masks.Causal()
        mask = mask.left
    blocks = layout(mask)
    row, column = torch.arange(count)[:, None], torch.arange(count)
    edge = (row < ends) | (column < ends) | (row >= count - ends) | (column >= count - ends)
    fixed = ((row - column).abs() <= window // 2) | edge
    assert bool(blocks[fixed].all())
    free = ~fixed & (column < row) if causal else ~fixed
    assert not bool((blocks & ~fixed & ~free).any()), "a causal draw is among earlier blocks"
    assert (blocks & free).sum(-1).tolist() == free.sum(-1).clamp(max=random).tolist()


def test_bigbird_is_causal_to_the_pair(seen: Seen) -> None:
    visible = table(bigbird(61, 8, causal=True), 61, seen)
    assert not bool(visible.triu(1).any())
    assert bool(visible.diagonal().all())


def test_bigbird_depends_on_its_seed_alone() -> None:
    state = torch.random.get_rng_state()
    first = bigbird(4096, seed=7)
    torch.rand(3)
    assert bigbird(4096, seed=7) == first
    assert bigbird(4096, seed=8) != first
    torch.random.set_rng_state(state)
    bigbird(4096)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_bigbird_fits_its_length() -> None:
    mask = bigbird(130, 64)
    assert layout(mask).shape == (3, 3)
    assert mask.pairs(130) == 130 * 130
    with pytest.raises(ValueError, match="Blocks covers query positions 0 to 191"):
        mask.pairs(193)


def test_bigbird_work_is_linear() -> None:
    rows = [bigbird(length, 16).pairs(length) / length for length in (1024, 2048, 4096)]
    # 3 blocks of the band, 2 ends and 3 random, less at the borders, and 2 global rows of blocks
    assert max(rows) < 16 * (3 + 2 + 3) + 16 * 2


@pytest.mark.parametrize(
    "make, text",
    [
        (
            lambda: local(4),
            "local's width must be odd, so that the band has a center, got 4; "
            "for the 4 last keys use masks.Window(3, 0)",
        ),
        (lambda: local(0), "local's width must be at least 1, got 0"),
        (lambda: longformer(4, [0], step=2), "Dilated's width must be odd, so that the band has a center, got 4"),
        (
            lambda: bigbird(100, window=2),
            "bigbird's window counts blocks around the diagonal and must be odd, got 2; take 1 or 3",
        ),
        (lambda: bigbird(100, window=-1), "bigbird's window must be at least 1, got -1"),
        (lambda: bigbird(100, random=-1), "bigbird's random must be at least 0, got -1"),
        (lambda: bigbird(100, ends=-1), "bigbird's ends must be at least 0, got -1"),
        (lambda: bigbird(0), "bigbird's length must be at least 1, got 0"),
        (lambda: bigbird(100, 0), "bigbird's size must be at least 1, got 0"),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        make()
