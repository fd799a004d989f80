"""LaTeX: plain ASCII, environments and braces that close, array rows as long as their head says."""

import re

from regard.inspection.explain import Explanation, explain


def example(tokens: list[str], width: int = 2) -> Explanation:
    rows = [[1.0] * width, [0.5] * width]
    return explain(rows, rows, rows, query_tokens=tokens, key_tokens=tokens, mask="causal")


def check(text: str) -> None:
    """What a LaTeX run would stumble over first."""
    assert text.isascii()
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert len(re.findall(r"\\left", text)) == len(re.findall(r"\\right", text))
    for columns, body in re.findall(r"\\begin\{array\}\{(\S+)\}\n(.*?)\\end\{array\}", text, re.DOTALL):
        for line in body.strip().splitlines():
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns.replace("|", "")) - 1, line
            assert line.removesuffix(r" \hline").endswith(r"\\")


def test_a_document_is_sound() -> None:
    text = example(["one", "two"]).latex()
    check(text)
    assert text.startswith("\\documentclass{article}\n\\usepackage{amsmath}\n\\begin{document}\n")
    assert text.endswith("\n\\end{document}\n")
    assert r"\item one $\to$ one: $\frac{2}{\sqrt{2}} = 1.4142$" in text
    assert r"\[ S = \frac{Q K^{\top}}{\sqrt{d}} \]" in text
    assert r"\text{one} & 1.4142 & \text{hidden} \\" in text


def test_hostile_tokens() -> None:
    text = example([r"\end{document}\input{x}", "%&$#_{}~^ 你é"]).latex()
    check(text)
    assert text.count(r"\end{document}") == 1
    assert r"\textbackslash{}end\{document\}\textbackslash{}input\{x\}" in text
    assert r"\%\&\$\#\_\{\}\textasciitilde{}\textasciicircum{} \texttt{U+4F60}\'{e}" in text


def test_the_part_to_include() -> None:
    part = example(["one", "two"]).latex(document=False)
    assert "documentclass" not in part
    assert part in example(["one", "two"]).latex()


def test_wide_tables_are_cut() -> None:
    check(example(["one", "two"], width=16).latex())
