"""Chapter 10: weights in the page are the model's to 1e-3; heads are chosen, changed and switched off through W_O."""

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard
from regard import capture, models
from regard.playground import baked

LAYER_HEADS = [(0, 2), (0, 4), (1, 8), (1, 1), (5, 7), (5, 11)]
ROW = "The word's weights in the first sentence"


@pytest.fixture(scope="module")
def encoder(get_model: Callable[[str], Any]) -> models.TextEncoder:
    get_model("minilm")
    return models.minilm()


def decoded(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float16).double()


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(baked.FILE.read_text(encoding="utf-8"))
    return found


def test_the_file_holds_what_the_command_computes(encoder: models.TextEncoder) -> None:
    before, now = stored(), baked.heads()
    assert [(each["text"], each["tokens"], each["word"]) for each in before["sentences"]] == [
        (each["text"], each["tokens"], each["word"]) for each in now["sentences"]
    ]
    for old, new in zip(before["sentences"], now["sentences"], strict=True):
        for layer in map(str, baked.LAYERS):
            for name in ("q", "k", "v"):
                close = torch.isclose(
                    decoded(old["layers"][layer][name]), decoded(new["layers"][layer][name]), rtol=2**-9, atol=1e-4
                )
                assert close.all()
    assert before["projections"] == now["projections"]


@pytest.mark.parametrize("sentence", range(len(baked.SENTENCES)))
def test_weights_in_the_page_are_those_of_the_model(
    open_chapter: Callable[..., Any], encoder: models.TextEncoder, sentence: int
) -> None:
    """All heads of the layers that come with the page."""
    chapter = open_chapter("heads", f"&sentence={sentence}")
    script = """([q, k, heads]) => { const A = window.regardPlay.attention; return q.map((_, h) =>
      A.attend({ query: q[h], key: k[h] }).weights); }"""
    found = capture(encoder, baked.SENTENCES[sentence][0])
    given = stored()["sentences"][sentence]["layers"]
    for layer in baked.LAYERS:
        q, k = (decoded(given[str(layer)][name]).reshape(-1, 12, 32).movedim(1, 0).tolist() for name in ("q", "k"))
        weights = torch.tensor(chapter.page.evaluate(script, [q, k, 12]))
        assert (weights - found[layer].dense()[0]).abs().max() < 1e-3


@pytest.mark.parametrize(("layer", "head"), LAYER_HEADS)
def test_the_words_row_is_that_of_the_model(
    open_chapter: Callable[..., Any], encoder: models.TextEncoder, layer: int, head: int
) -> None:
    chapter = open_chapter("heads", f"&layer={layer}&head={head}")
    found = capture(encoder, baked.SENTENCES[0][0])
    expected = found[layer].dense()[0, head, list(found.tokens).index("bank")].tolist()
    assert chapter.numbers(ROW) == pytest.approx(expected, abs=1.5e-3)


def test_temperature_mask_and_score_are_those_of_regard(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("heads", "&layer=5&head=7&tau=0.5&mask=causal&score=cosine")
    given = stored()["sentences"][0]
    q, k = (decoded(given["layers"]["5"][name]).reshape(-1, 12, 32)[:, 7] for name in ("q", "k"))
    eye = torch.eye(len(q), dtype=torch.float64)
    score = regard.scores.Cosine(scale=10.0)
    expected = regard.attend(q, k, eye, score=score, mask="causal", temperature=0.5)[given["word"]]
    assert chapter.numbers(ROW) == pytest.approx(expected.tolist(), abs=5e-4)
    chapter.slide("temperature τ", 0.95)
    assert chapter.state["tau"] > 5
    assert max(chapter.numbers(ROW)) < max(expected.tolist())


def test_a_head_is_chosen_and_switched_off(open_chapter: Callable[..., Any], encoder: models.TextEncoder) -> None:
    chapter = open_chapter("heads")
    chapter.page.locator(".heads-one").nth(5).click()
    chapter.settle()
    assert chapter.state["head"] == 5
    assert "Layer 0, head 5" in chapter.page.locator(".stage").inner_text()
    assert "word before" in chapter.page.locator(".heads-one").nth(2).inner_text()
    assert "word before" in chapter.page.locator(".heads-one").nth(12).inner_text()  # the wide one follows head 2
    assert chapter.reading("change of the output") == "0 %"
    chapter.page.locator(".heads-switches").get_by_role("button", name="head 2", exact=True).click()
    chapter.settle()
    assert chapter.state["off"] == [2]
    # The same by the model itself: its output projection, with the head's part of its input set to 0.
    attention: Any = encoder.model.encoder.blocks[0].attention
    seen: list[torch.Tensor] = []
    hook = attention.out_proj.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        capture(encoder, baked.SENTENCES[0][0])
    finally:
        hook.remove()
    side_by_side = seen[0].detach().reshape(-1, 384)[5]  # "bank"
    without = side_by_side.clone()
    without[64:96] = 0
    full, less = attention.out_proj(side_by_side).detach(), attention.out_proj(without).detach()
    share = float((full - less).norm() / full.norm())
    assert chapter.reading("change of the output") == f"{round(100 * share)} %"
    cosine = float(torch.cosine_similarity(full, less, dim=0))
    assert float(chapter.reading("cosine to the full output")) == pytest.approx(cosine, abs=2e-3)
    assert "off" in chapter.page.locator('svg[aria-label^="Length of each head"]').inner_html()
    chapter.page.get_by_role("button", name="all on").click()
    chapter.settle()
    assert chapter.state["off"] == []


def test_one_word_in_two_sentences(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("heads", "&layer=5&head=7")
    assert "“bank” in two sentences" in chapter.page.locator(".stage").inner_text()
    first, other = chapter.numbers(ROW), chapter.numbers("The word's weights in the other sentence")
    words = [each["tokens"] for each in stored()["sentences"][:2]]
    for weights, tokens, sense in ((first, words[0], "river"), (other, words[1], "loan")):
        content = [w for w, token in zip(weights, tokens, strict=True) if token not in ("[CLS]", "[SEP]", "bank")]
        assert max(content) == weights[tokens.index(sense)]
    hidden = [decoded(each["hidden"]).reshape(7, 384) for each in stored()["sentences"][:2]]
    cosines = torch.cosine_similarity(hidden[0], hidden[1], dim=1).tolist()
    assert cosines[0] > 0.95 > cosines[-1]
    text = chapter.page.locator(".stage").inner_text()
    assert f"{math.floor(1000 * cosines[-1] + 0.5) / 1000:g}" in text
    chapter.page.get_by_role("button", name="He hit the ball with the bat.").click()
    chapter.settle()
    assert "“bat” in two sentences" in chapter.page.locator(".stage").inner_text()


def test_pictures_show_the_weights(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("heads")
    script = """label => { const canvas = document.querySelector(`canvas[aria-label="${label}"]`);
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, seen = [];
      for (let n = 0; n < data.length; n += 4) seen.push(data.slice(n, n + 3).join());
      return seen; }"""
    pixels = chapter.page.evaluate(script, "Weights of head 2")
    n = round(len(pixels) ** 0.5)
    assert n == 11
    before = {pixels[n * i + i - 1] for i in range(1, n)}  # all weight on the word before
    assert len(before) == 1
    assert not before & {pixels[n * i + i] for i in range(1, n)}
    assert len(set(chapter.page.evaluate(script, "Output of the layer for the word"))) > 50
