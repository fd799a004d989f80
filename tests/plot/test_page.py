"""The page: exact numbers, no network, and no token that a browser would obey."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.plot.page import FILE, PageLimits, capture_page, notebook, page, second_text

EVIL = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "&lt;b&gt;",
    "\u2028'\"`${x}",
    "https://evil.example/x",
]


def matrix(tokens: list[str] | None = None, size: int = 5, heads: int = 2) -> regard.AttentionMatrix:
    torch.manual_seed(2)
    q, k = torch.randn(1, heads, size, 8), torch.randn(1, heads, size, 8)
    return regard.matrix(q, k, mask="causal", query_tokens=tokens, key_tokens=tokens)


class Parsed(HTMLParser):
    """Every element with its attributes, and the content of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.content: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and data.strip():
            self.content.append((self.elements[-1][0], data))


def data_of(text: str) -> dict[str, Any]:
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert block is not None
    found: dict[str, Any] = json.loads(block[1])
    return found


def cells(text: str, *shape: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text), dtype="<f4").reshape(shape)


def test_tokens_stay_text() -> None:
    text = page(matrix(EVIL), title=EVIL[0])
    parsed = Parsed(text)
    assert [tag for tag, _ in parsed.elements] == [
        *("html", "head", "meta", "meta", "meta", "meta", "title", "style", "body", "script", "script")
    ]
    assert not [
        name for _, given in parsed.elements for name in given if name.startswith("on") or name in ("src", "href")
    ]
    assert text.count("<script") == 2
    assert data_of(text)["texts"][0]["tokens"] == [
        EVIL[0],
        EVIL[1],
        EVIL[2],
        r"\u2028'\"`${x}".replace(r"\"", '"'),
        EVIL[4],
    ]


def test_nothing_is_loaded_and_nothing_else_can_run() -> None:
    text = page(matrix()).replace("http://www.w3.org/2000/svg", "")  # a name, which nobody loads
    assert not re.findall(r"(?:https?:|//[a-z]|url\(|@import|fetch|XMLHttp|WebSocket|import\()", text)
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function"):
        assert unsafe not in text
    text = page(matrix())
    parsed = Parsed(text)
    (policy,) = [
        given["content"] for _, given in parsed.elements if given.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    found = re.findall(r"<(script|style)>(.*?)</\1>", text, re.DOTALL)
    assert [tag for tag, _ in found] == ["style", "script"]
    for tag, content in found:
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_weights_are_exact_and_hidden_ones_marked() -> None:
    given = matrix()
    data = data_of(page(given, title="two\nlines"))
    (view,), (layer,) = data["views"], data["layers"]
    assert view["name"] == "weight"
    found = cells(layer["cells"][0], 2, 5, 5)
    seen = np.tril(np.ones((5, 5), dtype=bool))
    assert (found[:, ~seen] == -np.inf).all()
    np.testing.assert_allclose(found[:, seen], given.dense()[0].numpy()[:, seen], rtol=1e-6)
    assert data["title"] == "two↵lines"
    assert layer["heads"] == ["[0, 0]", "[0, 1]"]
    assert layer["rows"] == [0, 1, 2, 3, 4, 5]
    assert layer["queries"] is None
    assert data["texts"] == []


def test_texts_are_kept_once_with_their_words() -> None:
    tokens = ["un", "##believ", "##able", "<b>", "\n"]
    data = data_of(page(matrix(tokens)))
    assert data["texts"] == [
        {
            "tokens": ["un", "…believ", "…able", "<b>", "↵"],
            "starts": [0, 3, 4, 5],
            "words": ["unbelievable", "<b>", "↵"],
            "special": [3],
            "second": None,
        }
    ]
    assert (data["layers"][0]["queries"], data["layers"][0]["keys"]) == (0, 0)
    assert data_of(page(matrix(["a", "b", "c", "d", "e"])))["texts"][0]["words"] is None


def test_a_long_matrix_has_largest_and_mean() -> None:
    weights = torch.zeros(300, 300)
    weights[7, 250] = 1.0
    data = data_of(page(regard.AttentionMatrix.from_weights(weights), limits=PageLimits(0, 100 * 100, 0)))
    assert [view["name"] for view in data["views"]] == ["largest weight", "mean weight"]
    (layer,) = data["layers"]
    largest, mean = (cells(text, 100, 100) for text in layer["cells"])
    assert largest[2, 83] == 1.0
    assert mean[2, 83] == pytest.approx(1 / 9)
    assert layer["rows"][:3] == [0, 3, 6]
    assert "the largest of up to 3 × 3 weights" in layer["notes"][0]
    assert "the mean of up to 3 × 3 weights" in layer["notes"][1]
    swapped = data_of(
        page(regard.AttentionMatrix.from_weights(weights), how="mean", limits=PageLimits(0, 100 * 100, 0))
    )
    assert [view["name"] for view in swapped["views"]] == ["mean weight", "largest weight"]


def test_a_notebook_gets_the_page_in_a_closed_frame() -> None:
    text = matrix(EVIL)._repr_html_()
    ((tag, given),) = Parsed(text).elements
    assert tag == "iframe"
    assert given["sandbox"] == "allow-scripts allow-downloads"
    assert given["srcdoc"] is not None
    assert given["srcdoc"].startswith("<!DOCTYPE html>")
    assert data_of(given["srcdoc"])["texts"][0]["tokens"][0] == EVIL[0]


def test_a_matrix_too_long_to_draw_unasked_is_named_in_a_notebook() -> None:
    q = torch.zeros(1, 1, 40_000, 1)
    long = regard.matrix(q, q)
    assert notebook(long) == f"<code>{html.escape(repr(long))}</code>; A.show() and A.save() draw it"


def test_the_second_text_of_a_pair_starts_after_the_separator() -> None:
    assert second_text(["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]) == 4
    assert second_text(["<s>", "a", "</s>", "</s>", "b", "</s>"]) == 4
    assert second_text(["[CLS]", "a", "b", "[SEP]"]) is None
    assert second_text(["[SEP]", "a"]) is None
    assert second_text([]) is None


def weights(*pairs: tuple[int, int], size: int = 8) -> torch.Tensor:
    """Rows that attend to these (query, key) pairs, the others evenly."""
    rows = torch.full((size, size), 1 / size)
    for query, key in pairs:
        rows[query] = 0.1 / (size - 1)
        rows[query, key] = 0.9
    return rows


def test_the_page_opens_on_the_head_that_depends_on_the_words(captured: Callable[..., Any]) -> None:
    size, tokens = 8, ["[CLS]", "a", "b", "c", "d", "e", ".", "[SEP]"]
    even, first = weights(), weights(*((n, 0) for n in range(size)))
    previous = weights(*((n, max(n - 1, 0)) for n in range(size)))
    column = weights(*((n, 4) for n in range(size)))
    shifted = weights(*((n, n - 2) for n in range(2, size)))
    separator, full_stop = weights(*((n, 7) for n in range(size))), weights(*((n, 6) for n in range(size)))
    content = weights((1, 4), (2, 5), (3, 1), (4, 1), (5, 3))
    itself = weights(*((n, n) for n in range(size)))
    itself[3] = content[3]
    rest = [even, itself, first, previous, column, shifted, separator, full_stop]
    given = captured([torch.stack(rest)[None], None, torch.stack([*rest, content, even])[None]], tokens)
    data = data_of(capture_page(given))
    assert data["start"] == [2, 8]
    assert data["opened"].startswith("Opened at layer 2, head 8, which depends most on the words: ")
    assert data_of(capture_page(given)) == data
    assert data_of(page(regard.AttentionMatrix.from_weights(torch.stack([even, content]))))["start"] == [0, 1]
    assert data_of(page(regard.AttentionMatrix.from_weights(even)))["start"] == [0, 0]
    refused_first = data_of(capture_page(captured([None, even[None, None]], tokens)))
    assert (refused_first["start"], refused_first["opened"]) == ([1, 0], "")


def test_the_page_names_the_text_and_the_model() -> None:
    tokens = ["[CLS]", "the", "cat", "sleep", "##s", ",", "(", "mostly", ")", ".", "[SEP]"]
    data = data_of(page(matrix(tokens, size=len(tokens))))
    assert data["sentence"] == "the cat sleeps, (mostly)."
    assert data["about"] == "2 heads, 11 tokens"
    assert "<title>the cat sleeps, (mostly).</title>" in page(matrix(tokens, size=len(tokens)))
    capture = regard.capture(torch.nn.MultiheadAttention(8, 2, batch_first=True), *[torch.randn(1, 3, 8)] * 3)
    assert data_of(capture_page(capture))["about"] == "MultiheadAttention, 2 heads, 3 tokens"


def test_layers_are_called_by_number_with_the_module_behind_it() -> None:
    stack = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 4, enable_nested_tensor=False
    )
    layers = data_of(capture_page(regard.capture(stack.eval(), torch.randn(1, 3, 8), layers=[1, 3])))["layers"]
    names = [(layer["name"], layer["path"]) for layer in layers]
    assert names == [("layer 1", "layers.1.self_attn"), ("layer 3", "layers.3.self_attn")]


@pytest.mark.parametrize("heads, size", [(72, 66), (72, 300)])
def test_a_text_of_300_tokens_is_not_pooled(heads: int, size: int) -> None:
    assert FILE.side([(heads, size, size)]) >= size


def test_a_page_of_a_sentence_is_small_and_keeps_queries_and_keys(captured: Callable[..., Any]) -> None:
    """As large as MiniLM: 6 layers of 12 heads of width 32."""
    sizes = []
    for length in (12, 66):
        tokens = [f"word{n}" for n in range(length)]
        layers = [
            regard.matrix(*torch.randn(2, 1, 12, length, 32), query_tokens=tokens, key_tokens=tokens) for _ in range(6)
        ]
        text = capture_page(captured(layers))
        data = data_of(text)
        assert all(layer["exact"] and layer["vectors"] for layer in data["layers"])
        sizes.append(len(text))
    assert sizes[0] < 500_000
    assert sizes[1] < 2_000_000


def test_many_weights_are_stored_in_half_precision() -> None:
    given = matrix(size=300)
    (layer,) = data_of(page(given))["layers"]
    assert layer["half"]
    found = np.frombuffer(base64.b64decode(layer["cells"][0]), dtype="<f2").reshape(2, 300, 300)
    seen = np.tril(np.ones((300, 300), dtype=bool))
    expected = given.dense()[0].numpy()
    assert (found[:, ~seen] == -np.inf).all()
    assert (found[:, seen] == expected[:, seen].astype(np.float16)).all()
    large = regard.AttentionMatrix.from_weights(torch.full((400, 400), 1e6))
    (layer,) = data_of(page(large))["layers"]
    assert not layer["half"]  # float16 ends at 65,504
    assert (cells(layer["cells"][0], 1, 400, 400) == 1e6).all()


def test_vectors_are_left_out_with_the_reason() -> None:
    stored = data_of(page(regard.AttentionMatrix.from_weights(torch.eye(3))))["layers"][0]
    assert stored["vectors"] is None
    assert "queries and keys are not there" in stored["without"]
    few = data_of(page(matrix(), limits=PageLimits(1 << 20, 1 << 20, 10)))["layers"][0]
    assert few["vectors"] is None
    assert "160 numbers, and a page holds 10 of a layer" in few["without"]
    long = data_of(page(matrix(size=40), limits=PageLimits(0, 100, 1 << 20)))["layers"][0]
    assert "left out where cells are pooled" in long["without"]
