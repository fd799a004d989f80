"""Captures as files: every kind in every format, and a notebook's frame; in a terminal, as much as the window holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.inspection.text import display_width
from regard.plot.capture import FORMATS, KINDS, capture_text, print_capture, save_capture
from regard.plot.page import capture_notebook

Made = Callable[..., Any]
STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!DOCTYPE html>"}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_and_its_bytes_repeat(
    tmp_path: Path, captured: Made, softmax: Made, kind: str, form: str
) -> None:
    given = captured([softmax(2, 5, seed=1), None, softmax(3, 4, 6, seed=2)], list("abcde"))
    paths = tmp_path / f"one.{form}", tmp_path / f"two.{form.upper()}"
    if form == "html" and kind != "overview":
        with pytest.raises(ValueError, match=f"kind='{kind}' is a figure, saved as png, svg, pdf; got .*one.html"):
            save_capture(given, paths[0], kind=kind)
        return
    for path in paths:
        save_capture(given, path, kind=kind, title="all of it")
    assert paths[0].read_bytes().startswith(STARTS[form])
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)


def test_a_table_that_exists_is_not_computed_again(tmp_path: Path, captured: Made, softmax: Made) -> None:
    given = captured([softmax(2, 5)])
    table = given.heads()
    given.heads = None
    save_capture(given, tmp_path / "x.svg", kind="profiles", table=table)
    assert (tmp_path / "x.svg").exists()


def test_wrong_words_say_which_are_right(tmp_path: Path, captured: Made, softmax: Made) -> None:
    given = captured([softmax(2, 5)])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kind": "heads"}, "kind is one of overview, profiles, statistics; got 'heads'"),
        ({"scale": "log"}, "scale is one of shared, own; got 'log'"),
        ({"how": "sum"}, "max or mean; got 'sum'"),
    ]
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            save_capture(given, tmp_path / "x.png", **options)
    with pytest.raises(ValueError, match=r"one of png, svg, pdf, html; got 'x\.gif'"):
        save_capture(given, tmp_path / "x.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_gets_the_page_in_a_closed_frame_or_a_table(captured: Made, softmax: Made) -> None:
    text = capture_notebook(captured([softmax(2, 5)], ["<b>", "a", "b", "c", "d"]))
    assert text.startswith('<iframe sandbox="allow-scripts allow-downloads" ')
    assert "<b>" not in text
    long = regard.matrix(*torch.zeros(2, 1, 1, 40_000, 1))
    given = captured([long])
    assert capture_notebook(given).startswith("<pre>&lt;")
    assert capture_notebook(given).endswith("c.show() and c.save(…) draw it</p>")


def test_a_matrix_of_layers_and_heads_is_drawn_like_a_capture(tmp_path: Path, softmax: Made) -> None:
    from regard.plot.attention import figure_of

    weights = torch.cat([softmax(9, 4, seed=layer) for layer in range(30)])
    figure = figure_of(regard.AttentionMatrix.from_weights(weights))
    assert len(figure.axes[0].images) == 270
    width, height = figure.get_size_inches()
    assert 0.6 < width / height < 2
    assert "first index" in [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("color", ["truecolor", "256", "shade", "plain"])
@pytest.mark.parametrize("width, height", [(80, 24), (120, 50), (40, 12), (100, None)])
@pytest.mark.parametrize("layers, heads, size", [(6, 12, 7), (30, 5, 40), (2, 3, 3)])
def test_it_fits_the_window(
    captured: Made, softmax: Made, color: str, width: int, height: int | None, layers: int, heads: int, size: int
) -> None:
    given = captured([softmax(heads, size, seed=layer) for layer in range(layers)])
    text = capture_text(given, width=width, height=height, color=color)
    lines = text.split("\n")
    assert height is None or len(lines) <= height
    if color in ("shade", "plain"):
        assert max(map(display_width, lines)) <= width
    assert text.isascii() or color != "plain"


def test_each_map_is_where_its_layer_and_head_are(captured: Made) -> None:
    weights = torch.zeros(2, 1, 3, 2, 2)
    weights[1, 0, 2, 1, 1] = 1.0
    text = capture_text(captured(list(weights)), width=60, color="plain")
    assert [line.rstrip() for line in text.split("\n")[:7]] == [
        "  0    1    2",
        "0 ..   ..   ..",
        "  ..   ..   ..",
        "",
        "1 ..   ..   ..",
        "  ..   ..   .#",
        "",
    ]


def test_layers_without_room_are_counted_and_the_ends_are_shown(captured: Made, softmax: Made) -> None:
    given = captured([softmax(9, 20, seed=layer) for layer in range(30)])
    text = capture_text(given, width=80, height=24, color="shade")
    shown = [line.split()[0] for line in text.split("\n") if line[:2].strip().isdigit() and line[2] == " "]
    assert (shown[0], shown[-1]) == ("0", "29")
    assert f"These are {len(shown)} of 30 layers." in " ".join(text.split())
    narrow = capture_text(captured([softmax(64, 8)]), width=60, color="shade")
    assert "These are 11 of 64 heads." in " ".join(narrow.split())


def test_refused_layers_say_why(captured: Made, softmax: Made) -> None:
    text = capture_text(captured([softmax(2, 4), None]), width=60, color="shade")
    assert "1 refused: its weights cannot be computed again" in text
    assert "1 layer refused" in text


def test_one_layer_is_printed_larger(captured: Made, softmax: Made, capsys: pytest.CaptureFixture[str]) -> None:
    given = captured([softmax(2, 4), None])
    print_capture(given, layer=0, color="plain")
    assert "layer 0: blocks.0.attention" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"blocks\.1\.attention cannot be shown: its weights cannot be computed"):
        print_capture(given, layer=1)
    for layer, text in ((2, "there is no layer 2: there are 2, 0 to 1"), ("x", r"no layer 'x'; there are blocks\.0")):
        with pytest.raises(ValueError, match=text):
            print_capture(given, layer=layer)
    print_capture(given, layer="blocks.0.attention", color="plain")
    assert "layer 0: blocks.0.attention" in capsys.readouterr().out
    print_capture(given, color="plain", title="all")
    assert capsys.readouterr().out.startswith("all")


def test_a_window_too_small_says_so(captured: Made, softmax: Made) -> None:
    with pytest.raises(ValueError, match="20 columns and 8 lines at least, got 10 columns and None lines"):
        capture_text(captured([softmax(1, 2)]), width=10)
