"""Chapter 12: what is kept after a tile is regard's over the keys read so far; the cache changes no output."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard
from regard import masks

SCORES, WEIGHTS = "Scores of the keys, tile by tile", "Weights of the keys read so far"
WITHOUT, WITH = "Keys and values computed without a cache", "Keys and values computed with the cache"
ROUNDED = 5e-5  # readings have four decimals


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def vector(text: str) -> list[float]:
    return [number(part) for part in text.strip("[]").split(", ")]


def table(chapter: Any, label: str) -> list[list[str]]:
    lines = chapter.page.locator(f'.matrix[aria-label="{label}"] tr').all()[1:]
    return [line.locator("td").all_inner_texts() for line in lines]


def so_far(scores: list[float], stop: int) -> tuple[float, float, float]:
    """Of the first keys: the largest score, the sum relative to it, and regard's attention; key j has the value j."""
    logits = torch.tensor(scores[:stop], dtype=torch.float64)
    value = torch.arange(1, stop + 1, dtype=torch.float64)[:, None]
    query = torch.ones(1, 1, dtype=torch.float64)
    output = regard.attend(query, logits[:, None], value, score=regard.scores.Dot()).item()
    return logits.max().item(), (logits - logits.max()).exp().sum().item(), output


def kept(chapter: Any) -> tuple[float, float, float]:
    return (
        number(chapter.reading("m, largest so far")),
        number(chapter.reading("l, sum so far")),
        number(chapter.reading("o / l")),
    )


def wait_for_tiles(chapter: Any, tiles: int) -> None:
    for _ in range(500):
        if chapter.state["tiles"] >= tiles:
            return
        chapter.page.wait_for_timeout(20)
    raise TimeoutError("it does not play")


def press(chapter: Any, name: str, nth: int = 0) -> None:
    chapter.page.get_by_role("button", name=name, exact=True).nth(nth).click()
    chapter.settle()


@pytest.mark.parametrize("tile", [1, 2, 3, 8])
def test_each_tile_keeps_what_regard_computes(open_chapter: Callable[..., Any], tile: int) -> None:
    chapter = open_chapter("tricks", f"&tile={tile}&tiles=0")
    scores = chapter.state["scores"]
    assert chapter.reading("m, largest so far") == "−∞"
    for stop in range(tile, 8 + tile, tile):
        press(chapter, "next tile")
        assert kept(chapter) == pytest.approx(so_far(scores, min(stop, 8)), abs=ROUNDED)
    assert chapter.page.get_by_role("button", name="next tile").is_disabled()
    assert number(chapter.reading("output over all keys at once")) == pytest.approx(so_far(scores, 8)[2], abs=ROUNDED)
    roundings = 4 * 8 * 8 * torch.finfo(torch.float64).eps  # e^x, factor, product and sum of 8 keys with values up to 8
    assert number(chapter.reading("difference")) <= roundings
    press(chapter, "back")
    assert chapter.state["tiles"] == -(-8 // tile) - 1
    press(chapter, "next tile")
    press(chapter, "start over")
    assert chapter.state["tiles"] == 0


def test_a_larger_score_rescales(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("tricks", "&tiles=4")
    factors = [row[1] for row in table(chapter, "What is kept after every tile")]
    assert factors == ["–", "0.223", "1", "0.223"]  # e^(2 − 3.5), none, e^(3.5 − 5)
    press(chapter, "largest first")
    assert [row[1] for row in table(chapter, "What is kept after every tile")] == ["–", "1", "1", "1"]
    press(chapter, "rising")
    assert all(float(row[1]) < 1 for row in table(chapter, "What is kept after every tile")[1:])


def test_a_score_can_be_dragged(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("tricks", "&tiles=2")
    before = chapter.state["scores"]
    chapter.drag("3,", 0, -100)
    after = chapter.state["scores"]
    assert after[2] > before[2] + 2
    assert kept(chapter) == pytest.approx(so_far(after, 4), abs=ROUNDED)
    assert "has a larger score" in chapter.page.locator(".tricks-said").inner_text()
    assert chapter.colors(SCORES) >= 5  # background, tile in memory, read before, not yet read, handle
    shown = chapter.page.locator(f'svg[aria-label="{WEIGHTS}"] .numbers text').all_text_contents()
    assert [bool(text) for text in shown] == [True] * 4 + [False] * 4


def test_it_plays_and_pauses(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("tricks", "&tile=1&tiles=0")
    press(chapter, "play")
    wait_for_tiles(chapter, 2)
    press(chapter, "pause")
    stopped = chapter.state["tiles"]
    chapter.page.wait_for_timeout(1500)  # a step takes 1.1 s
    assert chapter.state["tiles"] == stopped
    chapter.set(tiles=7)
    press(chapter, "play")
    wait_for_tiles(chapter, 8)
    assert chapter.page.get_by_role("button", name="play", exact=True).count() == 2  # stopped by itself


def test_nothing_moves_by_itself_where_motion_is_unwanted(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("tricks", reduced_motion="reduce")
    assert chapter.page.get_by_role("button", name="play", exact=True).count() == 0
    before = chapter.state["tiles"]
    press(chapter, "next tile")
    assert chapter.state["tiles"] == before + 1
    moving = f"getComputedStyle(document.querySelector('svg[aria-label=\"{WEIGHTS}\"] .fills rect')).transitionDuration"
    assert chapter.page.evaluate(moving) == "0s"


def test_the_meter_grows_with_the_square(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("tricks", "&n=1000")

    def meter() -> list[str]:
        texts: list[str] = chapter.page.locator(
            'svg[aria-label="Memory of both ways"] .numbers text'
        ).all_text_contents()
        return texts

    assert meter() == [
        "1.02 MB",
        "4 MB",
        "33.3 kB",
    ]  # 4 · 1000 · 64 numbers; 1000²; 64 · 64 + 64 · (2 + 64); 4 bytes each
    chapter.set(n=2000)
    assert meter() == ["2.05 MB", "16 MB", "33.3 kB"]


def test_the_cache_gives_the_output_of_regard(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("tricks", "&written=1")
    for token in range(2, 11):
        press(chapter, "next token")
        cache = [[number(cell) for cell in row] for row in table(chapter, "What the cache holds")]
        assert len(cache) == token
        key, value = torch.tensor(cache, dtype=torch.float64).split(2, dim=1)
        query = torch.tensor([vector(chapter.reading("query of the newest token"))], dtype=torch.float64)
        expected = regard.attend(query, key, value, mask=masks.Causal())[0].tolist()
        assert vector(chapter.reading("output with the cache")) == pytest.approx(expected, abs=ROUNDED)
        assert vector(chapter.reading("output, all computed anew")) == pytest.approx(expected, abs=ROUNDED)
        work = [[int(cell) for cell in row] for row in table(chapter, "Work with and without the cache")]
        pairs = [n * (n + 1) // 2 for n in range(1, token + 1)]
        assert work == [[token, 1], [pairs[-1], token], [pairs[-1], token], [sum(pairs), pairs[-1]], [0, 4 * token]]


def test_what_is_computed_anew_is_seen(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("tricks", "&written=6")

    def fills(label: str) -> list[str]:
        script = """label => [...document.querySelectorAll(`svg[aria-label="${label}"] .cells rect`)]
          .map((rect) => rect.getAttribute("fill"))"""
        found: list[str] = chapter.page.evaluate(script, label)
        return found

    fresh, *_ = fills(WITHOUT)
    assert fills(WITHOUT).count(fresh) == 21
    assert fills(WITH).count(fresh) == 6
    seen = [fill for fill in fills(WITH) if not fill.startswith("url")]
    assert len(seen) == 21
    assert len(set(seen)) == 2
