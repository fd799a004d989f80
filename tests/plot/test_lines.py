"""Lines between tokens: exactly the weights above the threshold, and a note that tells the rest."""

from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.plot.lines import TokenLink, draw_links, links_of


def causal(heads: int, size: int, tokens: list[str] | None = None) -> regard.AttentionMatrix:
    torch.manual_seed(size)
    q, k = torch.randn(1, heads, size, 8), torch.randn(1, heads, size, 8)
    return regard.matrix(q, k, mask="causal", query_tokens=tokens, key_tokens=tokens)


@pytest.mark.parametrize("heads, size, threshold", [(1, 6, 0.1), (3, 6, 0.1), (2, 25, 0.04), (1, 60, 0.02)])
def test_every_line_is_a_weight_and_every_strong_weight_a_line(heads: int, size: int, threshold: float) -> None:
    matrix = causal(heads, size)
    found = links_of(matrix)
    dense = matrix[0].dense().double().numpy()
    assert found.threshold == pytest.approx(threshold)
    assert {(link.head, link.query, link.key) for link in found.links} == set(
        map(tuple, np.argwhere(dense >= found.threshold).tolist())
    )
    for link in found.links:
        assert link.weight == pytest.approx(dense[link.head, link.query, link.key], rel=1e-6)
    assert [link.weight for link in found.links] == sorted(link.weight for link in found.links)
    seen = heads * size * (size + 1) // 2
    share = 100 * dense[dense >= found.threshold].sum() / dense.sum()
    assert found.note.startswith(f"{len(found.links):,} of {seen:,} visible pairs, {share:.0f}% of the weight; ")


def test_tokens_of_two_texts_and_a_threshold_of_ones_own() -> None:
    weights = torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]])
    matrix = regard.AttentionMatrix.from_weights(weights, ["die", "Katze"], ["the", "cat", "\n"])
    found = links_of(matrix, threshold=0.5, title="two")
    assert found.links == [TokenLink(0, 1, 0, 0.5), TokenLink(0, 0, 1, 0.75)]
    assert (found.queries, found.keys) == (["die", "Katze"], ["the", "cat", "↵"])
    assert found.note == (
        "2 of 6 visible pairs, 62% of the weight; weights below 0.5 are left out. Thicker and darker: more weight"
    )
    assert len(links_of(matrix, threshold=0.0).links) == 5  # a weight of 0 is no line


def test_what_is_drawn_has_a_curve_for_each_line_and_a_text_for_each_token() -> None:
    matrix = causal(2, 6, ["a", "b", "$c$", "猫", "e", "f"])
    found = links_of(matrix)
    axes = draw_links(found).axes[0]
    (curves,) = axes.collections
    assert len(curves.get_paths()) == len(found.links)
    widths = np.ravel(curves.get_linewidth()).tolist()
    assert widths == sorted(widths)
    assert len({tuple(color[:3]) for color in np.asarray(curves.get_edgecolor()).tolist()}) == 2
    texts = [text.get_text() for text in axes.texts]
    assert all(texts.count(token) == 2 for token in ("a", "$c$", "猫"))
    assert {"queries", "keys", "[0, 0]", "[0, 1]"} <= set(texts)


def test_too_many_tokens_or_heads_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'up to 160 tokens at a side, and there are 161 queries .* kind="heatmap"'):
        causal(1, 161).save(tmp_path / "x.svg", kind="lines")
    with pytest.raises(ValueError, match=r"up to 7 heads, and there are 8; choose one: A\[0, 0\], or --head 0"):
        causal(8, 5).save(tmp_path / "x.svg", kind="lines")
    with pytest.raises(ValueError, match=r"kind='lines' is a figure, saved as png, svg, pdf; got 'x.html'"):
        causal(1, 5).save(tmp_path / "x.html", kind="lines")
    with pytest.raises(ValueError, match="kind is one of heatmap, lines, alignment; got 'line'"):
        causal(1, 5).save(tmp_path / "x.svg", kind="line")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_files_repeat(tmp_path: Path, form: str) -> None:
    for name in ("one", "two"):
        causal(2, 6).save(tmp_path / f"{name}.{form}", kind="lines", title="lines")
    assert (tmp_path / f"one.{form}").read_bytes() == (tmp_path / f"two.{form}").read_bytes()
