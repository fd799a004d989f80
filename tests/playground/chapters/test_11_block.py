"""Chapter 11: the block is `regard.nn.Block`; attention moves other positions, feed-forward none; norm, add, costs."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import masks, nn
from regard.lab.ffn import BlockCost, crossing

PICTURE, NUMBERS = "The block, and how far each position moved after each part", "Numbers after the chosen part"
WORK, ALIKE = "Operations of the parts", "How much positions differ, against the number of blocks"
WORDS, WIDTH, HIDDEN, SEED = 5, 4, 16, 5


def normals(seed: int) -> Iterator[float]:
    """random.js: mulberry32, and Box and Muller."""

    def times(a: int, b: int) -> int:
        return a * b & 0xFFFFFFFF

    def uniform() -> float:
        nonlocal seed
        seed = (seed + 0x6D2B79F5) & 0xFFFFFFFF
        x = times(seed ^ seed >> 15, seed | 1)
        x ^= (x + times(x ^ x >> 7, x | 61)) & 0xFFFFFFFF
        return (x ^ x >> 14) / 2**32

    while True:
        radius, angle = math.sqrt(-2 * math.log(1 - uniform())), 2 * math.pi * uniform()
        yield radius * math.cos(angle)
        yield radius * math.sin(angle)


def model(order: str, *, causal: bool = False) -> tuple[Tensor, nn.Block]:
    """The chapter's input and its first block."""
    numbers = normals(SEED)

    def drawn(rows: int, width: int, scale: float) -> Tensor:
        table = [[scale * next(numbers) for _ in range(width)] for _ in range(rows)]
        return torch.tensor(table, dtype=torch.float64)

    x = drawn(WORDS, WIDTH, 1).mul(10).round().div(10)
    mask = masks.Causal() if causal else None
    block = nn.Block(WIDTH, 1, d_ff=HIDDEN, order=order, mask=mask, engine="reference").double().eval()
    attention, feed = block.attention, block.feed_forward
    assert attention is not None
    sizes = [(WIDTH, WIDTH, 0.7)] * 2 + [(WIDTH, WIDTH, 0.5)] * 2 + [(HIDDEN, WIDTH, 0.32), (WIDTH, HIDDEN, 0.32)]
    layers = (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj, feed.up, feed.down)
    with torch.no_grad():
        for layer, size in zip(layers, sizes, strict=True):
            layer.weight.copy_(drawn(*size))
            if layer.bias is not None:
                layer.bias.zero_()
    return x, block


def cells(chapter: Any, picture: str) -> list[float]:
    texts = chapter.page.locator(f'svg[aria-label="{picture}"] .inks text').all_text_contents()
    return [float(text.replace("−", "-")) for text in texts]


def moves(chapter: Any) -> dict[str, list[float]]:
    """How far each position moved after each part; of two parts of one name the last."""
    names = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .boxes text').all_text_contents()
    numbers = cells(chapter, PICTURE)
    return {name: numbers[WORDS * n : WORDS * n + WORDS] for n, name in enumerate(names)}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("norm", "order", "last"), [("after", "post", 4), ("before", "pre", 6)])
def test_it_is_the_block_of_regard(
    open_chapter: Callable[..., Any], norm: str, order: str, last: int, causal: bool
) -> None:
    chapter = open_chapter("block", f"&norm={norm}&causal={int(causal)}&part={last}&change=0.5,-1.2,0,2")
    x, block = model(order, causal=causal)
    changed = x.clone()
    changed[1] += torch.tensor([0.5, -1.2, 0, 2])
    with torch.no_grad():
        before, after = block(x[None])[0], block(changed[None])[0]
    shown = torch.tensor(cells(chapter, NUMBERS), dtype=torch.float64).view(WORDS, WIDTH)
    assert float((shown - after).abs().max()) <= 0.00501
    found = torch.tensor(cells(chapter, PICTURE)[-WORDS:], dtype=torch.float64)
    assert float((found - (after - before).norm(dim=-1)).abs().max()) <= 0.00501
    assert (found[0] == 0) == causal  # an earlier word


def test_dragging_moves_others_after_attention_and_none_by_feed_forward(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("block", "&change=0,0,0,0")
    assert set(cells(chapter, PICTURE)) == {0.0}
    chapter.drag("x₂", 0, -40)
    assert chapter.state["change"][1] > 0.3
    first = moves(chapter)
    assert [move > 0 for move in first["input"]] == [False, True, False, False, False]
    assert all(move > 0 for move in first["attention"])
    chapter.page.get_by_role("button", name="feed-forward", exact=True).first.click()
    chapter.settle()
    assert chapter.state["where"] == "feed"
    second = moves(chapter)
    assert set(second["attention"]) == {0.0}
    for part in ("change", "feed-forward", "add & norm"):
        assert [move > 0 for move in second[part]] == [False, True, False, False, False]
    assert "After feed-forward no other positions moved." in chapter.page.locator(".stage").inner_text()
    chapter.set(where="block", attention=False)
    assert all(
        [move > 0 for move in part] in ([False, True, False, False, False], [False] * 5)
        for part in moves(chapter).values()
    )
    assert chapter.colors(PICTURE) >= 3


def test_norm_keeps_mean_and_spread(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("block", "&change=2,-2,1,2")
    for name in ("add & norm", "input"):
        box = chapter.page.get_by_role("button", name=f"{name}: show its numbers").first
        box.focus()
        chapter.page.keyboard.press("Enter")
        chapter.settle()
        same = (chapter.reading("mean of each row"), chapter.reading("spread of each row")) == ("0.00", "1.00")
        assert same == (name == "add & norm")
    chapter.set(norm="before", change=[1, 1, 1, 1])
    assert [move > 0 for move in moves(chapter)["add"]] == [False, True, False, False, False]


def test_without_add_positions_become_alike(open_chapter: Callable[..., Any]) -> None:
    """Against the formula in torch, after the first block; and the end of both lines."""
    chapter = open_chapter("block")
    paths = chapter.page.locator(f'svg[aria-label="{ALIKE}"] .line').all()
    with_add, without = ([float(pair.split()[1]) for pair in path.get_attribute("d")[1:].split("L")] for path in paths)
    x, block = model("post")
    with torch.no_grad():
        after = block(x[None])[0]

    def share(rows: Tensor) -> float:
        return float((rows - rows.mean(0)).norm() / rows.norm())

    zero, start = without[-1], with_add[0]  # px of 0, and of the input's
    assert (zero - with_add[1]) / (zero - start) == pytest.approx(share(after) / share(x), abs=0.01)
    assert (zero - with_add[-1]) / (zero - start) > 0.5
    assert zero - without[3] < 0.02 * (zero - start)


def test_costs_are_those_of_the_experiment(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("block", "&length=3000&width=4096")
    cost = BlockCost(4096, 3000)
    texts = chapter.page.locator(f'svg[aria-label="{WORK}"] .numbers text').all_text_contents()
    shown = [float(text.split()[0]) * {"G": 1e9, "T": 1e12}[text.split()[1]] for text in texts]
    assert shown == pytest.approx([cost.projections, cost.pairs, cost.feed], rel=0.005)
    chapter.set(width=768)
    assert chapter.reading("attention costs as much").replace("\u202f", "") == str(crossing(768) - 1)
    chapter.slide("tokens n", 0.9)
    assert chapter.state["length"] > 20_000
