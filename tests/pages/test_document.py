"""Documents: every inserted text is escaped, and only the document's own script and style may run."""

import base64
import hashlib
import json
import re
from html import unescape
from pathlib import Path

import pytest

import regard.pages
from regard.pages.document import attention_document, content_hash, framed, from_template

EVIL = "</title></script><script>alert(1)</script><!-- \u2028 & \" '"


def test_titles_and_data_cannot_end_their_elements() -> None:
    text = attention_document({"title": EVIL}, EVIL)
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    title = re.search(r"<title>(.*)</title>", text)
    assert title is not None
    assert unescape(title[1]) == EVIL
    data = re.search(r'id="data">(.*)</script>', text)
    assert data is not None
    assert json.loads(data[1]) == {"title": EVIL}


def test_the_policy_names_the_hashes_of_what_the_document_holds() -> None:
    text = attention_document({}, "title")
    style, script = re.search(r"<style>(.*?)</style>", text, re.S), re.search(r"<script>(.*?)</script>", text, re.S)
    assert style is not None
    assert script is not None
    for source, own in (("style-src", style[1]), ("script-src", script[1])):
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert content_hash(own) == f"sha256-{digest}"
        assert f"{source} 'sha256-{digest}'" in text


def test_a_frame_holds_the_document_as_one_attribute() -> None:
    text = framed(f"<p>{EVIL}</p>")
    assert re.fullmatch(
        r'<iframe sandbox="allow-scripts allow-downloads" allow="clipboard-write" style="[^"]*" '
        r'srcdoc="[^"<>]*"></iframe>',
        text,
    )


def test_a_value_that_a_template_needs_is_not_left_out() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError, match="token"):
        from_template("map.html")
    assert 'content="&lt;&#34;"' in from_template("map.html", token='<"')


def test_templates_and_assets_are_inside_the_package() -> None:
    folder = Path(regard.pages.__file__).parent
    assert sorted(path.name for path in (folder / "templates").iterdir()) == [
        "attention.html",
        "frame.html",
        "map.html",
        "play.html",
        "refusal.html",
        "saved_map.html",
    ]
    assert {"page.css", "main.js", "pair.js"} <= {path.name for path in (folder / "static").iterdir()}
    assert {"colors.js", "dom.js", "lines.js"} <= {path.name for path in (folder / "shared").iterdir()}
