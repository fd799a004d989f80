"""Attention in a terminal: never wider or higher than the window, and nothing strong pooled away."""

import os
import re

import pytest
import torch

import regard
from regard.inspection.text import display_width
from regard.plot.window import attention_text, print_attention

WORDS = ["The", "cat", "##s", "▁sleep", "猫", "שלום", "😀", "\n", "end"]


def matrix(queries: int, keys: int, heads: int = 1, tokens: bool = False) -> regard.AttentionMatrix:
    torch.manual_seed(0)
    names = [(WORDS * count)[:count] if tokens else None for count in (queries, keys)]
    q, k = torch.randn(1, heads, queries, 8), torch.randn(1, heads, keys, 8)
    return regard.matrix(q, k, mask="causal", query_start=0, query_tokens=names[0], key_tokens=names[1])


def lines(found: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", found).split("\n")


@pytest.mark.parametrize("color", ["truecolor", "256", "shade", "plain"])
@pytest.mark.parametrize("width, height", [(80, 24), (200, 60), (40, 16), (33, 12)])
@pytest.mark.parametrize("queries, keys", [(1, 1), (9, 9), (3, 70), (30, 5), (64, 64), (300, 300)])
@pytest.mark.parametrize("heads", [1, 7])
def test_it_fits(color: str, width: int, height: int, queries: int, keys: int, heads: int) -> None:
    for tokens in (False, True):
        found = lines(attention_text(matrix(queries, keys, heads, tokens), width=width, height=height, color=color))
        assert len(found) <= height
        assert max(map(display_width, found)) <= width


def test_a_small_head_has_its_tokens_and_numbers() -> None:
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    found = regard.AttentionMatrix.from_weights(weights, ["a", "\n"], ["x", "猫"])
    assert [line.rstrip() for line in lines(attention_text(found, width=60, color="shade", title="head"))] == [
        "head",
        "     x    猫",
        "a █1.00█ 0.00",
        "␊ ░0.25░▓0.75▓",
        "0 ·░▒▓█ 1",
        "2 queries (rows) × 2 keys (columns)",
    ]


def test_a_spike_is_the_darkest_cell_of_a_long_picture() -> None:
    weights = torch.zeros(2000, 2000)
    weights[1500, 100] = 1.0
    found = lines(attention_text(regard.AttentionMatrix.from_weights(weights), width=80, height=30, color="shade"))
    (row,) = [line for line in found[1:-3] if "█" in line]
    first = int(row.split()[0])
    assert first <= 1500 < first + 100
    assert "each cell: the largest of" in " ".join(found)


def test_numbers_at_the_rows_of_a_pooled_picture_are_the_first_of_each_line() -> None:
    found = lines(attention_text(matrix(1000, 1000), width=60, height=30, color="truecolor"))
    firsts = [int(line.split()[0]) for line in found[1:] if line[:4].strip().isdecimal() and "▀" in line]
    assert firsts[0] == 0
    assert firsts == sorted(firsts)
    assert firsts[-1] > 900


def test_heads_stand_side_by_side_under_their_index_with_one_scale() -> None:
    found = lines(attention_text(matrix(6, 6, heads=4), width=80, height=24, color="shade"))
    assert found[0].split() == ["0,0", "0,1", "0,2", "0,3"]
    assert sum("blank: hidden" in line for line in found) == 1
    assert "A[0, 0].show() shows one" in " ".join(found)


def test_heads_that_have_no_room_are_counted() -> None:
    found = attention_text(matrix(20, 20, heads=200), width=60, height=24, color="shade")
    (shown,) = re.findall(r"These are (\d+) of 200 heads", " ".join(lines(found)))
    names = [name for line in lines(found) for name in re.findall(r"\b0,\d+", line)]
    assert len(names) == int(shown) < 200


def test_a_window_too_small_is_named() -> None:
    with pytest.raises(ValueError, match="20 columns and 8 lines at least, got 80 columns and 3 lines"):
        attention_text(matrix(3, 3), width=80, height=3)


def test_show_prints_at_the_size_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((50, 10)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    matrix(100, 100).show(color="shade")
    found = capsys.readouterr().out.rstrip("\n").split("\n")
    assert len(found) < 10
    assert max(map(display_width, found)) <= 50
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    print_attention(matrix(60, 20), color="shade")
    assert capsys.readouterr().out.count("\n") > 60


def test_an_empty_matrix_says_so() -> None:
    empty = regard.AttentionMatrix.from_weights(torch.ones(3, 0))
    assert "(empty: 3 rows, 0 columns)" in attention_text(empty, width=40, color="plain")
