"""Markdown: headings, tables with as many cells as columns, code for arithmetic; tokens are never markup."""

import re

from regard.inspection.explain import Explanation, explain


def example(tokens: list[str]) -> Explanation:
    rows = [[1.0, 0.0], [0.0, 1.0]]
    return explain(rows, rows, rows, query_tokens=tokens, key_tokens=tokens, mask="causal")


def test_tables_are_rectangular() -> None:
    text = example(["a|b", "c\n|---|"]).markdown()
    tables = re.findall(r"(?:^\|.*\|\n)+", text + "\n", re.MULTILINE)
    assert len(tables) >= 7
    for table in tables:
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(bars) == 1, table


def test_hostile_tokens() -> None:
    text = example(["<img src=x onerror=alert(1)>", "[a](javascript:b) `x` **y**"]).markdown()
    assert r"\<img src=x onerror=alert(1)\>" in text
    assert r"\[a\](javascript\:b) \`x\` \*\*y\*\*" in text
    assert not re.search(r"(?<!\\)<img", text)


def test_shape() -> None:
    text = example(["one", "two"]).markdown()
    assert text.startswith("## Attention step by step: 2 queries, 2 keys\n\n- score ScaledDot()")
    assert "### 4. Mask\n\n`j ≤ i`\n\nCausal() shows a pair where this holds;" in text
    assert "| one | 0.7071 | hidden |" in text
    assert "- one → one: `1/√2 = 0.7071`" in text
