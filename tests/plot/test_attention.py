"""Attention in a terminal, never wider or higher than the window; and in files, valid, whole, with the same numbers."""

import csv
import io
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import regard
from regard.inspection.text import display_width
from regard.plot.attention import AttentionPicture, figure_of, print_attention
from regard.plot.attention_file import MOST_LINES, as_csv
from regard.plot.attention_text import attention_text

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
        "↵ ░0.25░▓0.75▓",
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
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((50, 10)))
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


TOKENS = ["The", "猫", "\n", "שלום", '"a", b']
STARTS = {
    "png": b"\x89PNG",
    "svg": b"<?xml",
    "pdf": b"%PDF",
    "html": b"<!DOCTYPE html>",
    "npz": b"PK",
    "csv": b"axis_0,",
}


def heads(count: int = 3, tokens: list[str] | None = None) -> regard.AttentionMatrix:
    torch.manual_seed(1)
    q, k = torch.randn(1, count, 5, 8), torch.randn(1, count, 5, 8)
    return regard.matrix(q, k, mask="causal", query_tokens=tokens, key_tokens=tokens)


@pytest.mark.parametrize("form", STARTS)
def test_every_suffix_writes_its_format_and_the_bytes_repeat(tmp_path: Path, form: str) -> None:
    for matrix in (heads(), heads()[0, 1]):
        paths = tmp_path / f"one.{form}", tmp_path / f"two.{form.upper()}"
        matrix.save(paths[0], title="head")
        matrix.save(str(paths[1]), title="head")
        start = STARTS[form] if matrix.ndim > 2 or form != "csv" else b"query,key"
        assert paths[0].read_bytes().startswith(start)
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)


@pytest.mark.parametrize("name", ["head.gif", "head", "head.svg.gz"])
def test_an_unknown_suffix_names_those_that_are_known(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"one of png, svg, pdf, html, npz, csv; got '{name}'"):
        heads().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", STARTS)
def test_a_failure_while_writing_leaves_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    path = tmp_path / f"head.{form}"
    path.write_text("older", encoding="utf-8")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        heads().save(path)
    assert path.read_text(encoding="utf-8") == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_tokens_are_text_in_svg(tmp_path: Path) -> None:
    tokens = ["<b>", "猫", "\n", "שלום", "$x$"]
    heads(1, tokens)[0, 0].save(tmp_path / "head.svg", title="a < b")
    texts = {element.text for element in ElementTree.parse(tmp_path / "head.svg").iter() if element.text}
    assert {"<b>", "猫", "↵", "שלום", "$x$", "a < b"} <= texts


def test_npz_holds_weights_and_tokens(tmp_path: Path) -> None:
    matrix = heads(3, TOKENS)
    matrix.save(tmp_path / "all.npz")
    with np.load(tmp_path / "all.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["weights"], matrix.dense().numpy())
        assert found["query_tokens"].tolist() == TOKENS
        assert found["key_tokens"].tolist() == TOKENS
    heads().save(tmp_path / "bare.npz")
    with np.load(tmp_path / "bare.npz", allow_pickle=False) as found:
        assert found.files == ["weights"]


def test_npz_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    q = torch.zeros(1, 1, 8193, 1)
    with pytest.raises(ValueError, match=r"67,125,249 weights, more than 67,108,864"):
        regard.matrix(q, q).save(tmp_path / "all.npz")
    with pytest.raises(ValueError, match="ends in a NUL character, as one of query_tokens does"):
        heads(1, ["a", "b", "c", "d", "\0"]).save(tmp_path / "all.npz")
    assert list(tmp_path.iterdir()) == []


def test_csv_has_a_line_for_each_visible_pair() -> None:
    matrix = heads(2, TOKENS)
    rows = list(csv.DictReader(io.StringIO(as_csv(matrix).decode(), newline="")))
    assert len(rows) == 2 * 15
    assert list(rows[0]) == ["axis_0", "axis_1", "query", "key", "query_token", "key_token", "weight"]
    weights = matrix.dense()
    for row in rows:
        place = tuple(int(row[name]) for name in ("axis_0", "axis_1", "query", "key"))
        assert place[3] <= place[2]
        assert float(row["weight"]) == pytest.approx(float(weights[place]), rel=1e-6)
        assert (row["query_token"], row["key_token"]) == (TOKENS[place[2]], TOKENS[place[3]])


def test_csv_refuses_more_lines_than_anyone_reads() -> None:
    q = torch.zeros(1, 1, 2049, 1)
    with pytest.raises(ValueError, match=rf"4,198,401 are more than {MOST_LINES:,}; save one head"):
        as_csv(regard.matrix(q, q))


def test_a_figure_of_heads_has_one_scale_and_labels_at_its_edges() -> None:
    figure = figure_of(heads(6, TOKENS), AttentionPicture(title="all"))
    *maps, scale = figure.axes
    assert [axes.get_xlabel() for axes in maps] == [f"[0, {head}]" for head in range(6)]
    assert [text.get_text() for text in maps[0].get_yticklabels()] == ["The", "猫", "↵", "שלום", '"a", b']
    assert not maps[1].get_yticklabels()
    assert len({axes.images[0].norm for axes in maps}) == 1
    assert scale.get_ylim()[1] == pytest.approx(1.0)


def test_layers_and_heads_are_rows_and_columns() -> None:
    weights = torch.rand(2, 1, 3, 4, 4)
    *maps, _ = figure_of(regard.AttentionMatrix.from_weights(weights)).axes
    assert [axes.get_xlabel() for axes in maps[:4]] == ["[0, 0, 0]", "[0, 0, 1]", "[0, 0, 2]", "[1, 0, 0]"]
    specification = maps[3].get_subplotspec()
    assert specification is not None
    assert (specification.rowspan.start, specification.colspan.start) == (1, 0)


@pytest.mark.parametrize("count, step", [(61, 1), (160, 1), (256, 3)])
def test_tokens_are_written_where_they_can_be_read_and_all_in_vector_files(count: int, step: int) -> None:
    tokens = [f"token {n}" for n in range(count)]
    given = regard.AttentionMatrix.from_weights(torch.rand(count, count).softmax(-1), tokens, tokens)
    for every, wanted in ((False, tokens[::step]), (True, tokens)):
        axes = figure_of(given, every=every).axes[0]
        assert [text.get_text() for text in axes.get_yticklabels()] == wanted
        assert [text.get_text() for text in axes.get_xticklabels()] == wanted


def test_very_many_heads_have_only_their_names() -> None:
    *maps, _ = figure_of(regard.AttentionMatrix.from_weights(torch.rand(100, 2, 2))).axes
    named = [axes for axes in maps if axes.get_xlabel()]
    assert len(named) == 100
    assert not [text for axes in named for text in axes.get_yticklabels()]
