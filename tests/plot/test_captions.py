"""Captions: titles say model, layer, head and text; hints run; unknown words and parts of a text are said once."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import regard
from regard.inspection.capture import capture
from regard.plot.attention import AttentionPicture, figure_of
from regard.plot.attention_text import attention_text
from regard.plot.captions import head_hint, quoted, title_of
from regard.plot.capture import CapturePicture, capture_text
from regard.plot.overview import overview

TOKENS = ["[CLS]", "the", "sleep", "##ing", "[UNK]", "[SEP]"]


class Stack(nn.Module):
    """Layers of attention, one after the other."""

    def __init__(self, layers: int, heads: int) -> None:
        super().__init__()
        self.name = "small"
        self.layers = nn.ModuleList(nn.MultiheadAttention(12, heads, batch_first=True) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, x, x, need_weights=False)[0]
        return x


def captured(layers: int = 2, heads: int = 3, tokens: Any = TOKENS, batch: int = 1, **options: Any) -> regard.Capture:
    return capture(Stack(layers, heads).eval(), torch.randn(batch, 6, 12), tokens=tokens, **options)


def test_titles() -> None:
    c = captured()
    assert title_of(c[1, 2]) == "small, layer 1, head 2: “the sleeping [UNK]”"
    assert title_of(c[-1]) == "small, layer 1, heads 0, 1, 2: “the sleeping [UNK]”"
    assert title_of(captured(heads=6)[0]) == "small, layer 0, 6 heads: “the sleeping [UNK]”"
    assert title_of(captured(heads=6, tokens=None)[0, 4]) == "small, layer 0, head 4"
    assert title_of(captured(heads=6)[0, [1, 5]]).startswith("small, layer 0, heads 1, 5")
    two = captured(batch=2, tokens=[TOKENS, ["a", "b", "c", "d", "e", "f"]])
    assert title_of(two[0, 1][1]) == "small, layer 0, text 1, head 1: “a b c d e f”"
    assert title_of(two[0, 1]) == "small, layer 0, head 1"
    chosen = capture(Stack(1, 6), torch.randn(1, 6, 12), heads=[2, 4])
    assert title_of(chosen[0, 4]) == "small, layer 0, head 4"
    assert title_of(regard.matrix(*torch.randn(2, 1, 1, 3, 4))) == ""


def test_a_part_of_the_layers_keeps_the_numbers_of_the_model(tmp_path: Path) -> None:
    c = capture(Stack(3, 3).eval(), torch.randn(1, 6, 12), tokens=TOKENS, layers=[2])
    assert title_of(c[0]) == title_of(captured(3)[2])
    assert "layer 2" in title_of(c[0])
    assert "c[0, " in head_hint(c[0], command=False)  # an index of the capture
    c.save(tmp_path / "part.safetensors")
    assert title_of(regard.load(tmp_path / "part.safetensors")[0]) == title_of(c[0])
    assert [layer.number for layer in overview(c).layers] == [2]
    assert c.explain(0, 1).title.startswith(title_of(c[0, 1]).split(":")[0])


def test_patches_of_an_image_are_a_grid() -> None:
    assert quoted(["[CLS]", "[1]", "0,0", "0,1", "1,0", "1,1", "2,0", "2,1"]) == "3 × 2 patches of an image"
    assert quoted(["[CLS]"]) == ""
    assert quoted(["1,5", "apples"]) == "“1,5 apples”"


def test_a_long_text_is_shortened() -> None:
    words = [f"word{n}" for n in range(6)]
    long = captured(tokens=[each * 6 for each in words])
    title = title_of(long[0, 0])
    assert title.endswith("…”")
    assert len(title) < 100


def test_figures_name_axes_colors_and_themselves(tmp_path: Path) -> None:
    captured()[1, 2].save(tmp_path / "head.svg")
    texts = {element.text for element in ElementTree.parse(tmp_path / "head.svg").iter() if element.text}
    assert {"query", "key", "…ing"} <= texts
    assert any(text.startswith("attention weight") for text in texts)
    assert any(text.startswith("small, layer 1, head 2") for text in texts)
    axes = figure_of(regard.matrix(*torch.randn(2, 1, 1, 3, 4))).axes[0]
    assert axes.get_title() == "Attention weights"
    assert figure_of(captured()[0, 0], AttentionPicture(title="")).axes[0].get_title() == ""


def test_unknown_words_are_said_once() -> None:
    said = " ".join(attention_text(captured()[0, 0], width=100, color="shade").split())
    assert said.count("[UNK]: text that the tokenizer does not know") == 1
    overview = " ".join(capture_text(captured(), width=100, color="shade").split())
    assert overview.count("text that the tokenizer does not know") == 1
    known = attention_text(captured(tokens=list("abcdef"))[0, 0], width=100, color="shade")
    assert "does not know" not in known


@pytest.mark.parametrize("layers, heads, batch", [(1, 1, 1), (1, 3, 1), (5, 2, 1), (2, 3, 2)])
def test_every_hint_of_a_capture_runs(
    layers: int, heads: int, batch: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    c = captured(layers, heads, tokens=None, batch=batch)
    c.show()
    for layer in range(layers):
        c[layer].show()
    printed = " ".join(capsys.readouterr().out.split())
    hints = set(re.findall(r"[cA]\[[^ ]*(?: \d+\])?[^ ]*\.show\(\)", printed))
    assert any(hint.startswith("c[") for hint in hints)
    for hint in hints:
        exec(hint, {"c": c})
    assert "“" not in capsys.readouterr().out


def test_hints_of_a_command_are_options() -> None:
    c = captured()
    printed = " ".join(capture_text(c, CapturePicture(), width=100, command=True).split())
    assert "Add --layer 1 to see a layer, --layer 1 --head 0 to see one head with its tokens." in printed
    assert "show()" not in printed
    heads = " ".join(attention_text(c[0], width=100, color="shade", command=True).split())
    assert "Add --head 0 to see one head with its tokens." in heads


def test_hints_name_a_layer_that_is_there() -> None:
    chosen = capture(Stack(1, 4), torch.randn(1, 6, 12), heads=[2, 3])
    assert "c[0, 2].show() one head" in " ".join(capture_text(chosen, width=100).split())
    assert "c[0, 2].show() shows one" in " ".join(attention_text(chosen[0], width=100).split())


def test_kinds_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    c = captured(tokens=list("abcdef"))
    c[0, 1].show(kind="lines", color="plain")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("small, layer 0, head 1")
    assert re.match(r"a -> [a-f] 0\.\d+", lines[1])
    c[0, 1].show(kind="alignment", color="shade")
    best = c[0, 1][0].peak().key.tolist()
    assert f"the strongest key of each row: a→{'abcdef'[best[0]]}" in " ".join(capsys.readouterr().out.split())
    c.show(kind="profiles", color="plain")
    assert "entropy, nats" in capsys.readouterr().out
    c.show(kind="statistics", color="plain")
    assert "entropy" in capsys.readouterr().out
    with pytest.raises(
        ValueError, match=r"lines shows a layer or a head, not a whole capture; choose one, as in c\[0, 0\]"
    ):
        c.show(kind="lines")


def test_numbers_of_a_capture_need_a_layer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"npz holds the weights of a layer or a head; choose one, as in c\[0\]\.save"):
        captured().save(tmp_path / "x.npz")


def test_colormaps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    c = captured(tokens=list("abcdef"))
    c[0, 0].show(colormap="viridis", color="truecolor")
    assert "48;2;68;1;84" in capsys.readouterr().out or "48;2;" in capsys.readouterr().out
    image = figure_of(c[0, 0], AttentionPicture(colormap="gray")).axes[0].images[0]
    assert image.get_cmap()(0.0)[:3] == (0.0, 0.0, 0.0)
    c[0, 0].save(tmp_path / "x.html", colormap="viridis")
    with pytest.raises(ValueError, match="there is no colormap 'viridi'; take one of matplotlib's, such as viridis"):
        c[0, 0].show(colormap="viridi")
