"""`regard explain`: the example, files, formats, and what the documentation shows."""

import io
import json
import re
import string
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard import models
from regard.cli import main
from regard.cli.explain import made_up
from regard.cli.text import read

PAGE = Path(__file__).parents[2] / "docs" / "explain.md"


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--example"]) == 0
    text = capsys.readouterr().out
    assert "Word 1 → Word 3  q·k = 1·1 + 0·1 = 1" in text
    assert "Word 3  0.2483  0.2483  0.5035" in text


@pytest.mark.parametrize(
    "form, start",
    [
        ("text", "Attention"),
        ("markdown", "## Attention"),
        ("latex", "\\documentclass"),
        ("html", "<!doctype html>"),
        ("json", '{\n "title"'),
    ],
)
def test_formats(form: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--example", "--format", form]) == 0
    assert capsys.readouterr().out.startswith(start)


def test_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "--example", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert found["steps"][4]["tables"][0]["values"] == [[1, 0, 1], [0, 1, 1], [1, 1, 2]]


def test_row_and_digits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--example", "--row", "2", "--digits", "2"]) == 0
    assert "Word 3 → Word 3  2/√2 = 1.41" in capsys.readouterr().out


def test_out_replaces_the_file_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "steps.md"
    out.write_text("old", encoding="utf-8")
    assert main(["explain", "--example", "--format", "markdown", "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert out.read_text(encoding="utf-8").startswith("## Attention step by step")
    assert [path.name for path in tmp_path.iterdir()] == ["steps.md"]


@pytest.mark.parametrize(
    "content, message",
    [
        (
            '{"query": [[1, 0], [1]], "key": [[1, 0]], "value": [[1]]}',
            "query must have rows of one length: row 0 has 2",
        ),
        ('{"query": [[1]], "key": [[1]]}', "value is missing"),
        ('{"query": [[1]], "key": [[1]], "value": [[1]], "mask": "Casual"}', "did you mean Causal?"),
        ('{"query": [[1]], "key": [[1]], "value": [[1]], "temperature": 0}', "temperature must be above 0, got 0"),
        ('{"query": [[1]], "key": [[1]], "value": [[1]], "temperature": null}', "temperature must be a number"),
        ('{"query": [[1]], "key": [[1]], "value": [[1]], "dropout": "x"}', "dropout must be a float or Dropout"),
        ('{"query": [[NaN]], "key": [[1]], "value": [[1]]}', "explain needs finite numbers, got nan in query"),
        ("{", "is not JSON"),
    ],
)
def test_a_mistake_is_one_line(content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "spec.json"
    file.write_text(content, encoding="utf-8")
    assert main(["explain", str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("regard explain: ")
    assert message in error
    assert error.count("\n") == 1


def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--example", "--row", "3"]) == 1
    assert capsys.readouterr().err == "regard explain: row must be 0 to 2, got 3\n"
    assert main(["explain", "--example", "--out", str(tmp_path / "no" / "file")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert main(["explain", "--example", "--out", str(tmp_path)]) == 1
    assert "it is a folder; name a file in it" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["explain"])


def test_the_page_shows_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    file = tmp_path / "spec.json"
    file.write_text(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0], encoding="utf-8")
    assert main(["explain", str(file), "--row", "1"]) == 0
    assert capsys.readouterr().out in page


def test_a_sentence_gets_made_up_vectors_that_never_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "The cat sleeps."]) == 0
    out = capsys.readouterr().out
    assert "The vectors of the words are made up" in out
    assert "   X\n   The      1  1   0\n   cat      1  0   1\n   sleeps  −1  0  −1\n" in out
    assert made_up("CAT") == made_up("cat") == [1, 0, 1]
    assert all(any(made_up(word)) for word in string.ascii_lowercase)


def test_logit_and_lse_are_introduced_where_they_appear(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "the cat sleeps"])
    out = " ".join(capsys.readouterr().out.split())
    assert out.index("logit") == out.index(
        "logits: numbers of any sign and size, which the next steps turn into weights"
    )
    assert out.index("lse") == out.index("lse (log-sum-exp) is the natural logarithm of that sum")


@pytest.mark.parametrize(
    "piped, text", [("the cat sleeps", "sleeps"), ('{"query": [[1]], "key": [[2]], "value": [[3]]}', "1·2 = 2")]
)
def test_standard_input(
    piped: str, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(piped))
    assert main(["explain", "-"]) == 0
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("given", ["", "   ", "word " * 33])
def test_what_is_no_sentence(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", given]) == 1
    assert "a sentence has 1 to 32 words" in capsys.readouterr().err


@pytest.mark.parametrize(
    "ending, start", [(".html", "<!doctype"), (".md", "##"), (".tex", "\\documentclass"), (".txt", "Att")]
)
def test_the_ending_decides_the_format(ending: str, start: str, tmp_path: Path) -> None:
    out = tmp_path / f"steps{ending}"
    assert main(["explain", "the cat sleeps", "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith(start)


def test_a_head_of_a_model(get_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(get_model("minilm"))
    assert (
        main(["explain", "the cat sleeps", "--model", folder, "--layer", "2", "--head", "9", "--format", "json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    model = models.load(folder)
    expected = read(model, "the cat sleeps", "minilm")[2, 9][0].dense()
    assert torch.tensor(found["weights"]["values"]).sub(expected).abs().max() < 1e-6
    assert found["weights"]["rows"] == ["[CLS]", "the", "cat", "sleeps", "[SEP]"]
    assert "Each token has a query and a key of 32 numbers" in found["steps"][0]["sentence"]
    assert main(["explain", "the cat sleeps", "--model", folder, "--layer", "2", "--head", "12"]) == 1
    assert "there is no head 12" in capsys.readouterr().err
