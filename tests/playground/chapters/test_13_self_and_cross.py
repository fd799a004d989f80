"""Chapter 13: the printed map, set by hand; the trained model's maps are the model's; masks, crossings, shapes."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard import masks
from regard.lab.maps import TRANSLATION
from regard.lab.translation import grammar
from regard.lab.translation.task import CROSS, DECODER, ENCODER, attention_maps
from regard.playground import baked

PICTURE, SET, RECEIVED = "Weights: who asks whom", "Weights of the chosen French word, as set", "Weight received"
NAMES = {"encoder": ENCODER.name, "decoder": DECODER.name, "cross": CROSS.name}


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(baked.TRANSLATED.read_text(encoding="utf-8"))
    return found


def rows(text: str, width: int) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float16).double().view(-1, width)


def weights_of(sentence: str, kind: str, **spec: Any) -> Tensor:
    """`regard`'s weights of the stored queries and keys."""
    data = stored()[sentence]
    query, key = (rows(data["attentions"][kind][name], data["width"]) for name in "qk")
    found: Tensor = regard.attend(
        query, key, torch.eye(len(key), dtype=torch.float64), query_start=0, engine="reference", **spec
    )
    return found


def cells(chapter: Any) -> list[float]:
    texts: list[str] = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .inks text').all_text_contents()
    return [float(text) for text in texts]


def test_the_printed_map(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("self-and-cross")
    assert cells(chapter) == [weight for row in TRANSLATION.weights for weight in row]
    assert chapter.reading("queries × keys") == "7 × 6"
    assert chapter.numbers(RECEIVED) == pytest.approx(TRANSLATION.tensor().sum(0).tolist(), abs=0.005)
    assert chapter.colors(PICTURE) >= 6
    names = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .rows text').all_text_contents()
    assert tuple(names) == TRANSLATION.rows


def test_a_row_is_dragged_and_still_sums_to_1(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("self-and-cross", "&row=2")
    chapter.drag("on, arrow", 0, -60)
    amounts = torch.tensor(chapter.state["map"], dtype=torch.float64).view(7, 6)
    assert amounts[2, 3] > 0.5
    changed = amounts != TRANSLATION.tensor()
    assert changed.sum() == 1
    shown = torch.tensor(cells(chapter), dtype=torch.float64).view(7, 6)
    assert float((shown - amounts / amounts.sum(1, keepdim=True)).abs().max()) <= 0.00501
    chapter.page.get_by_role("button", name="as printed").click()
    chapter.settle()
    assert cells(chapter) == [weight for row in TRANSLATION.weights for weight in row]
    box = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .cells rect').nth(6 * 5 + 2).bounding_box()
    chapter.page.mouse.click(box["x"] + 8, box["y"] + 8)
    chapter.settle()
    assert chapter.state["row"] == 5


@pytest.mark.parametrize("sentence", ["cat", "friends"])
def test_the_page_computes_the_weights_of_the_trained_model(open_chapter: Callable[..., Any], sentence: str) -> None:
    chapter = open_chapter("self-and-cross", f"&source={sentence}", width=1800)
    for kind in ("encoder", "cross", "decoder"):
        chapter.set(kind=kind, tau=1)
        expected = weights_of(sentence, kind, mask=masks.Causal() if kind == "decoder" else None)
        assert chapter.reading("queries × keys") == f"{len(expected)} × {expected.shape[1]}"
        for row in range(0, len(expected), 3):
            chapter.set(row=row)
            texts = chapter.page.locator(
                'svg[aria-label="Weights of the chosen word"] .numbers text'
            ).all_text_contents()
            shown = torch.tensor([0.0 if text == "hidden" else float(text) for text in texts], dtype=torch.float64)
            assert float((shown - expected[row]).abs().max()) <= 0.000501
        chapter.set(tau=3)
        warmer = weights_of(sentence, kind, temperature=3.0, mask=masks.Causal() if kind == "decoder" else None)
        assert chapter.numbers(RECEIVED) == pytest.approx(warmer.sum(0).tolist(), abs=0.00501)


def test_the_stored_numbers_are_those_of_the_experiment() -> None:
    """Trained again, from nothing if the cache has it not: the weights of the file are the model's."""
    model, data = baked.translator(), stored()
    pairs = {"cat": grammar.cat(), "friends": grammar.friends().pair()}
    for sentence, pair in pairs.items():
        assert [data[sentence]["english"], data[sentence]["french"]] == list(grammar.labels(pair))
        maps = attention_maps(model, [pair])
        for kind, name in NAMES.items():
            found = weights_of(sentence, kind, mask=masks.Causal() if kind == "decoder" else None)
            assert float((found - maps[name][0]).abs().max()) < 1e-3
    assert baked.translated(model)["cat"]["written"] == data["cat"]["written"]


def test_crossings_and_a_mask_that_hides_what_is_needed(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("self-and-cross")
    assert chapter.reading("links that cross") == "0 of 21"
    chapter.page.get_by_label("put a causal mask on it").check()
    chapter.settle()
    printed = TRANSLATION.tensor()
    behind = float(printed.triu(1).sum() / printed.sum())
    assert chapter.reading("behind the mask") == f"{round(100 * behind)} %"
    masked = printed.tril() / printed.tril().sum(1, keepdim=True)
    assert cells(chapter) == pytest.approx(
        [float(masked[i, j]) for i in range(7) for j in range(6) if j <= i], abs=0.00501
    )
    chapter.set(causal=False, source="friends")
    links = weights_of("friends", "cross").argmax(1).tolist()
    crossed = sum(one > other for n, one in enumerate(links) for other in links[n + 1 :])
    assert crossed >= 1
    assert chapter.reading("links that cross") == f"{crossed} of 55"


def test_self_attention_leaves_the_printed_map_and_comes_back(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("self-and-cross")
    chapter.page.get_by_role("button", name="self, encoder").click()
    chapter.settle()
    assert (chapter.state["source"], chapter.reading("queries × keys")) == ("cat", "6 × 6")
    assert chapter.reading("keys and values from") == chapter.reading("queries from") == "English"
    chapter.page.get_by_role("button", name="the mini-course's map").click()
    chapter.settle()
    assert (chapter.state["kind"], chapter.reading("queries × keys")) == ("cross", "7 × 6")
    chapter.slide("temperature τ", 0.0)
    assert max(cells(chapter)) == 1.0
