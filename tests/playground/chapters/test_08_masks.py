"""Chapter 8: masks are regard's; cells are drawn on; pairs are counted; a query without keys gives 0."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard
from regard import masks
from regard.spec.masks import Mask

PICTURE, ROW = "The mask, drawn on with pointer or keys", "Weights of the chosen query"
N = 10
OWN: dict[str, tuple[str, Mask]] = {
    "full": ("", masks.Full()),
    "causal": ("", masks.Causal()),
    "window": ("&side=2", masks.Window(2, 2)),
    "dilated": ("&side=1&gap=3", masks.Dilated(3, 3)),
    "global": ("&side=1&globals=2", masks.Window(1, 1) | masks.Global((0, 1))),
    "document": ("&texts=3", masks.Documents([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])),
}


def allowed(mask: Mask, length: int) -> list[list[bool]]:
    """Where even scores get a weight."""
    zeros, eye = torch.zeros(length, 1), torch.eye(length)
    found: list[list[bool]] = (regard.attend(zeros, zeros, eye, mask=mask) > 0).tolist()
    return found


def shown(chapter: Any) -> list[list[bool]]:
    """Which cells of the picture are visible: the others are hatched."""
    script = """label => [...document.querySelectorAll(`svg[aria-label="${label}"] .cells rect`)]
      .map((rect) => !rect.getAttribute("fill").startsWith("url"))"""
    cells = chapter.page.evaluate(script, PICTURE)
    n = round(len(cells) ** 0.5)
    return [cells[n * i : n * i + n] for i in range(n)]


def place(chapter: Any, row: int, column: int) -> tuple[float, float]:
    """Where a cell of the picture is on the screen."""
    cell = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .cells rect').nth(row * chapter.state["n"] + column)
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("kind", OWN)
def test_masks_are_those_of_regard(open_chapter: Callable[..., Any], kind: str, past: bool) -> None:
    settings, mask = OWN[kind]
    chapter = open_chapter("masks", f"&kind={kind}&n={N}{settings}&past={int(past)}")
    if past and kind != "full":
        mask = mask & masks.Causal()
    expected = allowed(mask, N)
    assert shown(chapter) == expected
    count = sum(map(sum, expected))
    assert chapter.reading("visible pairs").startswith(f"{count} of {N * N}")
    assert chapter.reading("work") == f"{count * 256 / 1000:.3g} kFLOP"


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("kind", OWN)
def test_the_line_of_the_chart_counts_pairs(open_chapter: Callable[..., Any], kind: str, past: int) -> None:
    """Its first point is at 16 tokens, where the reading counts them one by one."""
    chapter = open_chapter("masks", f"&kind={kind}&n=16&past={past}&side=3&gap=4&globals=3&texts=5")
    pairs = int(chapter.reading("visible pairs").split(" of ")[0])
    script = """() => document.querySelectorAll('svg[aria-label^="Visible pairs"] .lines path')[2].getAttribute("d")
      .match(/^M[\\d.]+ ([\\d.]+)/)[1]"""
    top, bottom, height = 14, 250 - 34, 8.0  # px, px, powers of ten
    assert 10 ** ((bottom - float(chapter.page.evaluate(script))) / (bottom - top) * height) == pytest.approx(
        pairs, rel=0.01
    )


def test_weights_are_those_of_regard(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("masks", "&kind=window&side=1&n=6&row=2&step=1")

    def table() -> torch.Tensor:
        lines = chapter.page.locator(".step .matrix").first.locator("tr").all()[1:]
        rows = [[float(cell.replace("−", "-")) for cell in line.locator("td").all_inner_texts()] for line in lines]
        return torch.tensor(rows, dtype=torch.float64)

    query = table()
    chapter.set(step=2)
    key = table()
    eye = torch.eye(6, dtype=torch.float64)
    expected = regard.attend(query, key, eye, mask=masks.Window(1, 1))[2].tolist()
    texts = chapter.page.locator(f'svg[aria-label="{ROW}"] .numbers text').all_text_contents()
    assert [0 if text == "hidden" else float(text) for text in texts] == pytest.approx(expected, abs=5e-4)
    assert [text == "hidden" for text in texts] == [weight == 0 for weight in expected]


def test_cells_are_drawn_with_the_pointer(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("masks", "&kind=full&n=8")
    (x, y), (end, _) = place(chapter, 3, 0), place(chapter, 3, 7)
    chapter.page.mouse.move(x, y)
    chapter.page.mouse.down()
    chapter.page.mouse.move(end, y)  # in one jump: the cells between are painted too
    chapter.page.mouse.up()
    chapter.settle()
    expected = [[i != 3] * 8 for i in range(8)]
    assert shown(chapter) == expected
    assert chapter.reading("visible pairs").startswith("56 of 64")
    assert chapter.reading("sum of the row") == "0"  # no key is visible: weights and output are 0, nothing is NaN
    assert chapter.reading("output") == "[0, 0]"
    again = open_chapter("masks", chapter.page.evaluate("location.hash").removeprefix("#chapter=masks"))
    assert shown(again) == expected
    again.page.get_by_role("button", name="clear what was drawn").click()
    again.settle()
    assert all(map(all, shown(again)))


def test_cells_are_drawn_with_keys(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("masks", "&kind=causal&n=5")
    chapter.page.locator(f'svg[aria-label="{PICTURE}"]').focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter", "ArrowDown", "ArrowLeft", " "):
        chapter.page.keyboard.press(key)
    chapter.settle()
    expected = allowed(masks.Causal(), 5)
    expected[0][2], expected[1][1] = True, False
    assert shown(chapter) == expected
    chapter.page.get_by_role("button", name="window", exact=True).click()
    chapter.settle()
    assert chapter.state["flips"] == []


def test_layers_carry_information_further(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("masks", "&kind=window&side=1&n=12&row=11&layers=5")
    known = chapter.page.locator('svg[aria-label^="What the chosen query"] circle.known')
    assert known.count() == 2 + 3 + 4 + 5 + 6
    assert "can know of 6 of 12" in chapter.page.locator(".masks-lower").inner_text()
    chapter.page.get_by_role("button", name="global", exact=True).click()
    chapter.set(layers=2)
    assert "can know of 12 of 12" in chapter.page.locator(".masks-lower").inner_text()


def test_layers_do_not_fill_the_gaps_of_a_dilated_mask(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("masks", "&kind=dilated&side=2&gap=2&n=12&row=6&layers=6")
    assert "can know of 6 of 12" in chapter.page.locator(".masks-lower").inner_text()
