"""Masks in a terminal: every pair where it belongs, exact numbers, and no more lines than a window holds."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.plot import render
from regard.plot.mask import mask_grid, mask_text, print_mask, save_mask
from regard.spec import masks
from regard.spec.masks.base import Mask, plane_of


def lines(mask: Mask, queries: int | None = None, keys: int | None = None, width: int = 80, **lane: int) -> list[str]:
    text = mask_text(mask, plane_of(mask, queries, keys), width=width, color="plain", **lane)
    return [line.rstrip() for line in text.split("\n")]


def test_blocks_are_visible_pairs_at_absolute_positions() -> None:
    assert lines(masks.Causal(), 3, 5) == [
        "Causal()",
        "  0 1 2 3 4",
        "2 ######",
        "3 ########",
        "4 ##########",
        "blank: hidden",
        "3 queries (rows) x 5 keys (columns): 12 of 15 pairs visible (80%)",
    ]


def test_it_is_the_picture_of_its_grid() -> None:
    mask = masks.Causal()
    plane = plane_of(mask, 5, 7)
    for color in ("plain", "shade", "truecolor"):
        assert mask_text(mask, plane, width=60, color=color) == render(mask_grid(mask, plane), width=60, color=color)


def test_terminals_that_can_do_more_show_blocks_and_colors() -> None:
    mask = masks.Window(1, 0)
    text = mask_text(mask, plane_of(mask, 3), width=60, color="shade")
    assert [line.rstrip() for line in text.split("\n")[2:5]] == ["0 ██", "1 ████", "2   ████"]
    assert "3 queries (rows) × 3 keys (columns)" in text
    assert "\x1b[" in mask_text(mask, plane_of(mask, 3), width=60, color="truecolor")


def test_a_large_mask_is_pooled_into_squares() -> None:
    name, ruler, *body, scale, facts, cells = lines(masks.Causal(), 100, width=62)
    assert name == "Causal()"
    assert ruler.split() == [*map(str, range(0, 100, 8))]
    assert [line.split()[1] for line in body[:2]] == ["**", "##**"]
    assert len(body) == 25
    assert scale == "0 .:+*# 1  blank: hidden"
    assert facts == "100 queries (rows) x 100 keys (columns): 5,050 of 10,000 pairs"
    assert cells == "visible (50.5%); each cell: 4 x 4 pairs"


@pytest.mark.parametrize("width", [20, 33, 80, 200])
@pytest.mark.parametrize("queries, keys", [(1, 1), (3, 500), (500, 3), (41, 67), (1000, 1000)])
def test_it_fits(queries: int, keys: int, width: int) -> None:
    mask = masks.Window(7, 5)
    text = mask_text(mask, plane_of(mask, queries, keys, query_start=0), width=width, color="plain")
    assert max(map(len, text.split("\n"))) <= width
    assert text.count("\n") < 80


def test_the_ruler_is_above_its_columns() -> None:
    mask = masks.Prefix(1)
    plane = plane_of(mask, 2, 30)
    grid = mask_grid(mask, plane)
    ruler = lines(mask, 2, 30)[1]
    shown = {place: ruler[2 + 2 * place :].split()[0] for place in range(0, 30, 2)}
    assert shown == {place: grid.column_labels[place] for place in shown}


def test_a_million_positions() -> None:
    """Shares are exact and come from runs: nothing is sampled, and no trillion pairs are visited."""
    mask = masks.Causal() & masks.Window(200_000, 0)
    start = time.process_time()
    facts = " ".join(lines(mask, 1_000_000, width=100)[-2:])
    assert time.process_time() - start < 5
    assert "1,000,000 keys (columns): 180,000,900,000 of 1,000,000,000,000 pairs" in facts
    assert facts.endswith("each cell: 25,000 x 25,000 pairs")


def test_one_batch_row_and_head_of_several() -> None:
    mask = masks.Lengths([1, 3]) & masks.Dense(torch.tensor([True, False])[:, None, None].expand(2, 3, 3))
    name, ruler, *body, note = lines(mask, width=200, batch_row=1)
    assert name == "Lengths([1, 3]) & Dense(<2x3x3 bool>)"
    assert ruler.split() == ["0", "1", "2"]
    assert body == ["0 ######", "1 ######", "2 ######"]
    assert note.split("; ") == [
        "3 queries (rows) x 3 keys (columns): 9 of 9 pairs visible (100%)",
        "shown: batch row 1 (of 0 to 1), head 0 (of 0 to 1)",
        "over all batch rows and heads: 12 of 36 pairs visible (33.3%)",
    ]
    assert lines(mask, batch_row=1, head=1)[2:6] == ["0", "1", "2", "blank: hidden"]


def test_every_batch_row_has_its_own_positions() -> None:
    mask = masks.Causal()
    plane = plane_of(mask, 3, 5, query_start=torch.tensor([0, -2]))
    text = mask_text(mask, plane, batch_row=1, width=60, color="plain")
    assert [line.split() for line in text.split("\n")[2:5]] == [["-2"], ["-1"], ["0", "##"]]


@pytest.mark.parametrize(
    "queries, keys, facts",
    [(0, 5, "0 queries (rows) x 5 keys (columns): 0 of 0 pairs visible"), (3, 0, "3 queries (rows) x 0 keys")],
)
def test_nothing_to_see(queries: int, keys: int, facts: str) -> None:
    name, empty, told = lines(masks.Full(), queries, keys)
    assert name == "Full()"
    assert empty.startswith("(empty: ")
    assert told.startswith(facts)
    assert mask_text(masks.Full(), plane_of(masks.Full(), 2, 2, batch=0), width=60, color="plain")


def note(mask: Mask, queries: int, keys: int | None = None) -> str:
    return mask_grid(mask, plane_of(mask, queries, keys)).note


def test_percent_is_exact_at_the_ends() -> None:
    assert "(less than 100%)" in note(~(masks.Global([0]) & masks.Window(0, 0)), 1000)
    assert "1,000 of 1,000,000,000 pairs visible (0.0001%)" in note(masks.Prefix(1), 1000, 1_000_000)
    assert "(0%)" in note(~masks.Full(), 3)


def test_grid_is_a_record_that_any_picture_can_draw() -> None:
    mask = masks.Causal()
    grid = mask_grid(mask, plane_of(mask, 4, 6), across=3, down=3)
    assert grid.row_labels == ["2", "4"]
    assert grid.column_labels == ["0", "2", "4"]
    assert grid.values == [[1.0, 0.75, None], [1.0, 1.0, 0.75]]
    assert grid.limits == (0.0, 1.0)
    assert grid.title == "Causal()"
    assert grid.note == "4 queries (rows) × 6 keys (columns): 18 of 24 pairs visible (75%); each cell: 2 × 2 pairs"
    assert "Causal()" in render(grid, width=60, color="plain")


@pytest.mark.parametrize("draw", [lambda: lines(masks.Full(), 3, batch_row=1), lambda: lines(masks.Full(), 3, head=-1)])
def test_a_row_or_head_that_is_not_there(draw: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=re.escape("must be one of 0 to 0, got")):
        draw()


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    print_mask(masks.Causal(), plane_of(masks.Causal(), 2))
    assert "2 queries (rows) × 2 keys (columns): 3 of 4 pairs visible (75%)" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["png", "svg", "pdf", "json"])
def test_a_mask_is_saved_by_suffix(tmp_path: Path, form: str) -> None:
    save_mask(masks.Causal() & masks.Window(3, 0), tmp_path / f"mask.{form}", 12)
    assert (tmp_path / f"mask.{form}").stat().st_size > 500


def test_a_saved_mask_is_its_pairs(tmp_path: Path) -> None:
    mask = masks.Causal() & masks.Window(2, 0)
    save_mask(mask, tmp_path / "mask.csv", 5)
    lines = (tmp_path / "mask.csv").read_text(encoding="utf-8").splitlines()
    seen = [[cell == "1.0" for cell in line.split(",")[1:]] for line in lines[1:]]
    assert seen == [[i - 2 <= j <= i for j in range(5)] for i in range(5)]
    save_mask(mask, tmp_path / "long.csv", 5000)
    assert len((tmp_path / "long.csv").read_text(encoding="utf-8").splitlines()) == 126  # 40 × 40 pairs in a cell
