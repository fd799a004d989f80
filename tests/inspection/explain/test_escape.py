"""Escapes: hostile tokens are shown and never obeyed."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.explain.notation import latex_text, markdown_text
from regard.inspection.text import visible

HOSTILE = [
    r"\input{/etc/passwd}",
    "$x$",
    "100%",
    "a&b",
    "#1",
    "{",
    "}",
    "~^_",
    "<script>alert(1)</script>",
    "[a](http://example.org)",
    "![](x)",
    "|",
    "`code`",
    "**bold**",
    "\n\n# title",
    "\x1b[31m",
    "\u202eevil",
    "www.example.org",
    "&lt;",
    "[x]",
    "--",
    "\\",
]


@pytest.mark.parametrize("token", HOSTILE)
def test_markdown_has_no_markup_left(token: str) -> None:
    escaped = markdown_text(token)
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]<>|$&]", escaped), escaped
    assert re.sub(r"\\([\\`*_{}\[\]<>#!|~$&@:.^])", r"\1", escaped) == visible(token)


@pytest.mark.parametrize("token", HOSTILE)
def test_latex_has_no_command_left_but_ours(token: str) -> None:
    escaped = latex_text(token)
    commands = set(re.findall(r"\\([a-zA-Z]+)", escaped))
    assert commands <= {"textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar"}
    assert not re.search(r"(?<!\\)[$&%#_^~]", escaped), escaped


@given(st.text())
def test_latex_is_ascii_with_balanced_braces(text: str) -> None:
    escaped = latex_text(text)
    assert escaped.isascii()
    bare = re.sub(r"\\[{}]", "", escaped)
    depth = 0
    for character in bare:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0


@pytest.mark.parametrize(
    "token, latex",
    [
        ("é", r"\'{e}"),
        (unicodedata.normalize("NFD", "é"), r"\'{e}"),
        ("Ġthe", r"\.{G}the"),
        ("▁the", r"\_the"),
        ("straße", r"stra\ss{}e"),
        ("你", r"\texttt{U+4F60}"),
        ("##ing", r"\#\#ing"),
        ("x → y", r"x $\to$ y"),
        ("[CLS]", "{[}CLS{]}"),
    ],
)
def test_latex_letters(token: str, latex: str) -> None:
    assert latex_text(token) == latex
