"""Parts of a matrix by tokens: exact weights, hidden pairs stay hidden, captions say what is left out."""

from pathlib import Path

import pytest
import torch

import regard
from regard.plot.attention_text import attention_text
from regard.plot.selection import TokenSelection

TOKENS = ["[CLS]", "un", "##able", "cat", "[SEP]", "[PAD]"]


def matrix(mask: str | None = "causal") -> regard.AttentionMatrix:
    q, k = torch.randn(2, 1, 2, 6, 4, dtype=torch.float64)
    return regard.matrix(q, k, mask=mask, query_tokens=TOKENS, key_tokens=TOKENS)


def test_a_range_has_the_weights_of_the_whole() -> None:
    given = matrix()
    part = TokenSelection(slice(1, 4)).of(given)
    assert part.query_tokens == ("un", "##able", "cat")
    torch.testing.assert_close(part.dense(), given.dense()[..., 1:4, 1:4], atol=0, rtol=0)
    hidden = [[value is None for value in row] for row in _cells(part[0, 0])]
    assert hidden == [[False, True, True], [False, False, True], [False, False, False]]
    left = 1 - float(given.dense()[..., 1:4, 1:4].sum(-1).mean())
    assert (
        part.origin.remark
        == f"tokens 1 to 3 of 6; {100 * left:.0f}% of the weight is on keys left out, rows are not scaled"
    )


def _cells(part: regard.AttentionMatrix) -> list[list[float | None]]:
    from regard.plot.pooling import pool

    return pool(part, 9, 9).cells("max")[0]


def test_special_tokens_are_left_out_and_rows_scaled() -> None:
    given = matrix(None)
    part = TokenSelection(hide_special=True).of(given)
    assert part.key_tokens == ("un", "##able", "cat")
    assert "without [CLS], [SEP], [PAD]; " in part.origin.remark
    scaled = TokenSelection(hide_special=True, renormalize=True).of(given)
    torch.testing.assert_close(scaled.rowsum(), torch.ones(1, 2, 3, dtype=torch.float64))
    assert scaled.origin.remark.endswith("rows are scaled to a sum of 1")
    assert "…able" in attention_text(part[0, 0], width=80, color="shade")


def test_padding_is_left_out_by_default() -> None:
    part = TokenSelection().of(matrix(None))
    assert part.key_tokens == tuple(TOKENS[:5])
    assert part.origin.remark.startswith("without 1 tokens of padding")


def test_without_tokens_everything_stays() -> None:
    plain = regard.matrix(*torch.randn(2, 1, 2, 6, 4))
    assert TokenSelection(hide_special=True).of(plain) is plain
    assert TokenSelection(slice(None)).of(plain) is plain


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no token is left: there are 6 queries and 6 keys"):
        TokenSelection(slice(40, 50)).of(matrix())
    with pytest.raises(TypeError, match=r"tokens must be a range of them, slice\(3, 20\), got 3"):
        TokenSelection(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="renormalize scales the weights that are left; choose tokens"):
        TokenSelection(renormalize=True)
    big = regard.matrix(*torch.randn(2, 1, 1, 10_000, 2))
    with pytest.raises(ValueError, match="this part has 99,980,001 weights, more than 67,108,864; choose fewer tokens"):
        TokenSelection(slice(1, None)).of(big)


def test_a_picture_says_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = matrix()
    given[0, 0].show(tokens=slice(1, 4), color="shade")
    assert "tokens 1 to 3 of 6" in capsys.readouterr().out
    for name in ("x.png", "x.svg", "x.html", "x.csv", "x.npz"):
        given[0, 0].save(tmp_path / name, hide_special=True)
    assert "tokens 1 to" not in (tmp_path / "x.svg").read_text()
    assert "without [CLS], [SEP], [PAD]" in (tmp_path / "x.svg").read_text()
    assert "cat" in (tmp_path / "x.csv").read_text()
    assert "[CLS]" not in (tmp_path / "x.csv").read_text()
