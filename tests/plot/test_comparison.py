"""Two matrices side by side: one scale, both kinds of tokens, and the difference where there is one."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.plot import compare


def head(tokens: list[str], seed: int, heads: int = 1) -> regard.AttentionMatrix:
    torch.manual_seed(seed)
    matrix = regard.matrix(*torch.randn(2, heads, len(tokens), 4), query_tokens=tokens, key_tokens=tokens)
    return matrix[0] if heads == 1 else matrix


A, B, C = head(["a", "cat", "sat"], 1), head(["a", "dog", "sat"], 2), head(["a", "big", "dog", "sat"], 3)


def test_both_and_their_difference_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    compare(A, B, names=("one", "two")).show(color="plain")
    text = capsys.readouterr().out
    for part in ("one", "two", "difference", "cat / dog", f"{float(A[1, 1]):.2f}", f"{float(B[1, 1]):.2f}"):
        assert part in text
    compare(A, C).show(color="plain")
    text = capsys.readouterr().out
    assert "big" in text
    assert "difference" not in text
    long = head([f"w{n}" for n in range(50)], 4)
    compare(long, A, names=("long", "short")).show(color="plain")
    assert {"long", "short"} <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "npz"])
@pytest.mark.parametrize("other", [B, C], ids=["same shape", "another shape"])
def test_files(tmp_path: Path, suffix: str, other: regard.AttentionMatrix) -> None:
    path = tmp_path / f"both.{suffix}"
    assert compare(A, other, names=("one", "two"), title="both").save(str(path)) == path
    if suffix == "npz":
        with np.load(path) as file:
            np.testing.assert_array_equal(file["first"], A.dense().numpy())
            np.testing.assert_array_equal(file["second"], other.dense().numpy())
            assert ("difference" in file) == (other is B)
            assert file["second_key_tokens"].tolist() == list(other.key_tokens or ())
    if suffix == "html":
        block = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
        assert block is not None
        data = json.loads(block[1])
        assert [layer["name"] for layer in data["layers"]][:2] == ["A one", "B two"]
        assert [layer["signed"] for layer in data["layers"]] == [False, False, True][: 3 if other is B else 2]
        assert data["start"][0] == (2 if other is B else data["start"][0])


def test_layers_of_several_heads(tmp_path: Path) -> None:
    first, second, other = head(["a", "b"], 1, heads=3), head(["a", "b"], 2, heads=3), head(["a"], 3, heads=3)
    compare(first, second).save(tmp_path / "heads.png")
    assert len(compare(first, second).figure().axes) >= 6
    assert (tmp_path / "heads.png").stat().st_size > 1000
    compare(first, other).save(tmp_path / "heads.html")
    with pytest.raises(
        ValueError, match=r"several heads needs one shape, got \(3, 2, 2\) and \(3, 1, 1\); choose a head"
    ):
        compare(first, other).save(tmp_path / "heads.svg")


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="compare takes two attention matrices, got Tensor as the second"):
        compare(A, torch.eye(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the first matrix is empty"):
        compare(regard.matrix(torch.zeros(0, 2), torch.zeros(3, 2), query_start=0), A)
    with pytest.raises(ValueError, match="csv"):
        compare(A, B).save(tmp_path / "both.csv")
    assert "<iframe" in compare(A, B)._repr_html_()
