"""Masks in a terminal: every pair where it belongs."""

import pytest

from regard.show.mask import mask_text
from regard.spec import masks
from regard.spec.masks.base import Mask, plane_of


def rows(mask: Mask, queries: int, keys: int | None = None, width: int = 80) -> list[str]:
    return mask_text(mask, plane_of(mask, queries, keys, 1, 1, None), width=width, color="plain").split("\n")


def test_blocks_are_visible_pairs_at_absolute_positions() -> None:
    name, *body = rows(masks.Causal(), 3, 5)
    assert name.strip() == "Causal()"
    assert [line.split() for line in body] == [["2", "######...."], ["3", "########.."], ["4", "##########"]]


def test_a_large_mask_is_gray_where_cells_hide_some() -> None:
    _, *body = rows(masks.Causal(), 100, width=60)
    assert body[-1].strip() == "Each cell is 4 queries by 4 keys."
    assert [line.split()[1] for line in body[:2]] == ["::" + ".." * 24, "##::" + ".." * 23]


def test_show_prints(capsys: pytest.CaptureFixture[str]) -> None:
    masks.Window(1, 0).show(3)
    lines = capsys.readouterr().out.split("\n")
    assert [line.split()[-1] for line in lines[1:4]] == ["██····", "████··", "··████"]
