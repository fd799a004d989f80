"""Overviews: every head of every layer in its place, whatever the layers are like."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.plot.overview import LayerMaps, bands_of, draw_overview, layer_names, overview, values_of

Made = Callable[..., Any]


def test_small_layers_are_their_weights(captured: Made, softmax: Made) -> None:
    given = [softmax(3, 6, seed=1), softmax(3, 6, seed=2)]
    found = overview(captured(given), title="two layers")
    assert [(layer.number, layer.name, layer.heads) for layer in found.layers] == [
        (0, "blocks.0.attention", (0, 1, 2)),
        (1, "blocks.1.attention", (0, 1, 2)),
    ]
    for layer, weights in zip(found.layers, given, strict=True):
        np.testing.assert_allclose(values_of(layer, "max"), weights[0], rtol=1e-6)
    assert found.note == "each map: queries (rows) × keys (columns), 6 × 6"


@pytest.mark.parametrize("how", ["max", "mean"])
def test_long_layers_are_pooled_over_what_is_visible(captured: Made, how: str) -> None:
    torch.manual_seed(0)
    matrix = regard.matrix(*torch.randn(2, 1, 2, 200, 8), mask="causal")
    found = overview(captured([matrix]), how=how, side=20)
    dense = matrix[0].dense().double().numpy()
    seen = np.tril(np.ones((200, 200), dtype=bool))
    for head, values in enumerate(values_of(found.layers[0], how)):
        for row in range(20):
            for column in range(20):
                part = np.s_[10 * row : 10 * row + 10, 10 * column : 10 * column + 10]
                cell = dense[head][part][seen[part]]
                if cell.size:
                    assert values[row, column] == pytest.approx(getattr(cell, how)(), rel=1e-4)
                else:
                    assert math.isnan(values[row, column])
    word = "largest" if how == "max" else "mean"
    assert found.note.endswith(f"200 × 200; each cell: the {word} of up to 10 × 10 weights")


def test_layers_that_differ_or_are_refused_stay_in_their_rows(captured: Made, softmax: Made) -> None:
    given = captured([softmax(2, 5), None, softmax(4, 3, 7), softmax(1, 1)])
    found = overview(given)
    assert [len(layer.heads) for layer in found.layers] == [2, 0, 4, 1]
    assert found.layers[1].reason == "its weights cannot be computed again"
    assert found.heads == [0, 1, 2, 3]
    assert found.note == "each map: queries (rows) × keys (columns), 1 × 1, 3 × 7, 5 × 5; 1 layer refused: left blank"
    axes = draw_overview(found).axes[0]
    assert len(axes.images) == 7
    assert "refused: its weights cannot be computed again" in [text.get_text() for text in axes.texts]


def test_a_row_of_the_batch_can_be_chosen(captured: Made, softmax: Made) -> None:
    weights = softmax(2, 4, batch=3)
    for batch in (0, 2):
        (layer,) = overview(captured([weights]), batch=batch).layers
        np.testing.assert_allclose(values_of(layer, "max"), weights[batch], rtol=1e-6)
    with pytest.raises(ValueError, match="batch is a row of the batch, one of 0 to 2; got 3"):
        overview(captured([weights]), batch=3)


def test_chosen_heads_keep_their_numbers(captured: Made, softmax: Made) -> None:
    found = overview(captured([softmax(2, 4), softmax(2, 4)], heads=(3, 7)))
    assert found.heads == [3, 7]
    axes = draw_overview(found).axes[0]
    assert {"3", "7"} <= {text.get_text() for text in axes.texts}
    assert len({tuple(image.get_extent()) for image in axes.images}) == 4


def test_too_many_heads_say_what_to_do(captured: Made) -> None:
    with pytest.raises(
        ValueError, match=r"at most 4,096 heads, and this capture has 5,000; save its layers one by one"
    ):
        overview(captured([torch.ones(1, 5000, 1, 1)]))


@pytest.mark.parametrize(
    "layers, heads, bands", [(6, 12, 1), (12, 12, 1), (30, 9, 2), (1, 8, 1), (32, 32, 1), (48, 4, 4), (80, 8, 4)]
)
def test_many_layers_stand_in_bands_like_a_page(layers: int, heads: int, bands: int) -> None:
    assert bands_of(layers, heads) == bands


@pytest.mark.parametrize("layers, heads", [(6, 12), (12, 12), (30, 9), (3, 2), (24, 16)])
def test_figures_have_the_shape_of_a_page_and_maps_their_own_places(
    captured: Made, softmax: Made, layers: int, heads: int
) -> None:
    given = [softmax(heads, 4, seed=layer) for layer in range(layers)]
    figure = draw_overview(overview(captured(given)))
    width, height = figure.get_size_inches()
    assert 0.6 < width / height < 2.4
    assert width <= 12
    axes = figure.axes[0]
    assert len(axes.images) == layers * heads
    places = [tuple(image.get_extent()) for image in axes.images]
    assert len(set(places)) == len(places)
    for left, right, bottom, top in places:
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    shown = [np.asarray(image.get_array()) for image in axes.images]
    np.testing.assert_allclose(np.stack(shown), torch.cat(given, 0).flatten(0, 1), rtol=1e-6)
    assert len({image.norm.vmax for image in axes.images}) == 1


def test_a_scale_of_its_own_for_each_map_is_said(captured: Made, softmax: Made) -> None:
    figure = draw_overview(overview(captured([softmax(3, 4)])), "own")
    axes = figure.axes[0]
    assert len({image.norm.vmax for image in axes.images}) == 3
    for image in axes.images:
        assert image.norm.vmax == pytest.approx(float(np.asarray(image.get_array()).max()))
    assert "each map has a scale of its own" in " ".join(text.get_text() for text in axes.texts)
    assert len(figure.axes) == 1  # no scale beside


def test_names_are_numbers_where_they_differ_in_a_number_only() -> None:
    alike = [LayerMaps(n, f"model.layers.{n}.attn", None) for n in range(3)]
    assert layer_names(alike) == ["0", "1", "2"]
    mixed = [LayerMaps(0, "encoder.0.self", None), LayerMaps(1, "decoder.layers.0.a_very_long_name.cross", None)]
    assert layer_names(mixed) == ["0 encoder.0.self", "1 …yers.0.a_very_long_name.cross"]
    kinds = [LayerMaps(0, "a.0", None, kind="encoder"), LayerMaps(1, "b", None, kind="cross")]
    assert layer_names(kinds) == ["0 encoder", "1 cross"]
