"""The page: exact numbers, no network, and no token that a browser would obey."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.plot.page import notebook, page

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
    text = page(matrix())
    assert not re.findall(r"(?:https?:|//[a-z]|url\(|@import|fetch|XMLHttp|WebSocket|import\()", text)
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function"):
        assert unsafe not in text
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
        }
    ]
    assert (data["layers"][0]["queries"], data["layers"][0]["keys"]) == (0, 0)
    assert data_of(page(matrix(["a", "b", "c", "d", "e"])))["texts"][0]["words"] is None


def test_a_long_matrix_has_largest_and_mean() -> None:
    weights = torch.zeros(300, 300)
    weights[7, 250] = 1.0
    data = data_of(page(regard.AttentionMatrix.from_weights(weights), cells=100 * 100))
    assert [view["name"] for view in data["views"]] == ["largest weight", "mean weight"]
    (layer,) = data["layers"]
    largest, mean = (cells(text, 100, 100) for text in layer["cells"])
    assert largest[2, 83] == 1.0
    assert mean[2, 83] == pytest.approx(1 / 9)
    assert layer["rows"][:3] == [0, 3, 6]
    assert "the largest of up to 3 × 3 weights" in layer["notes"][0]
    assert "the mean of up to 3 × 3 weights" in layer["notes"][1]
    swapped = data_of(page(regard.AttentionMatrix.from_weights(weights), how="mean", cells=100 * 100))
    assert [view["name"] for view in swapped["views"]] == ["mean weight", "largest weight"]


def test_a_notebook_gets_the_page_in_a_closed_frame() -> None:
    text = matrix(EVIL)._repr_html_()
    ((tag, given),) = Parsed(text).elements
    assert tag == "iframe"
    assert given["sandbox"] == "allow-scripts"
    assert given["srcdoc"] is not None
    assert given["srcdoc"].startswith("<!DOCTYPE html>")
    assert data_of(given["srcdoc"])["texts"][0]["tokens"][0] == EVIL[0]


def test_a_matrix_too_long_to_draw_unasked_is_named_in_a_notebook() -> None:
    q = torch.zeros(1, 1, 40_000, 1)
    long = regard.matrix(q, q)
    assert notebook(long) == f"<code>{html.escape(repr(long))}</code>; A.show() and A.save() draw it"
