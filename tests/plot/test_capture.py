"""Captures as files: every kind in every format, and a notebook's frame."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.plot.capture import FORMATS, KINDS, notebook, save_capture

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
    text = notebook(captured([softmax(2, 5)], ["<b>", "a", "b", "c", "d"]))
    assert text.startswith('<iframe sandbox="allow-scripts" ')
    assert "<b>" not in text
    long = regard.matrix(*torch.zeros(2, 1, 1, 40_000, 1))
    given = captured([long])
    assert notebook(given).startswith("<pre>&lt;")
    assert notebook(given).endswith("c.show() and c.save(…) draw it</p>")


def test_a_matrix_of_layers_and_heads_is_drawn_like_a_capture(tmp_path: Path, softmax: Made) -> None:
    from regard.plot.matrix_file import figure_of

    weights = torch.cat([softmax(9, 4, seed=layer) for layer in range(30)])
    figure = figure_of(regard.AttentionMatrix.from_weights(weights))
    assert len(figure.axes[0].images) == 270
    width, height = figure.get_size_inches()
    assert 0.6 < width / height < 2
    assert "first index" in [text.get_text() for text in figure.axes[0].texts]
