"""Nothing that a file, a name or an argument holds reaches the terminal as a command to it."""

import json
import re
from pathlib import Path

import pytest
import torch

from regard import AttentionMatrix
from regard.cli import main
from regard.inspection.text import json_shown

ESCAPE = "no\x1b[31m\x9b1m\x07file"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def told(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    text = found.out + found.err
    assert OBEYED.search(text) is None, repr(text)
    return text


@pytest.mark.parametrize(
    "arguments",
    [
        ["map", "--file", ESCAPE],
        ["map", f"{ESCAPE}.safetensors"],
        ["map", "text", "--model", ESCAPE],
        ["see", "--file", ESCAPE],
        ["see", "text", "--model", f"./{ESCAPE}"],
        ["heads", "text", "--model", ESCAPE],
        ["heads", "--file", ESCAPE],
        ["explain", f"{ESCAPE}.json"],
        ["models", "get", ESCAPE],
        ["lab", ESCAPE],
        ["exercise", ESCAPE],
    ],
)
def test_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert r"no\x1b[31m\x9b1m\x07file" in told(capsys)


@pytest.mark.parametrize("arguments", [["map", "--port", ESCAPE], ["see", "text", f"--{ESCAPE}"], [ESCAPE]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert r"\x1b[31m" in told(capsys)


@pytest.mark.parametrize(
    "record",
    [
        {"query": [[1, 0]], "key": [[1, 0]], "value": [[1]], "mask": ESCAPE},
        {"query": [[1, 0]], "key": [[1, 0]], "value": [[1]], ESCAPE: 1},
        {"query": [[1, 0]], "key": [[1, 0]], "value": [[1]], "mask": {"name": "Window", ESCAPE: 1}},
    ],
)
def test_files_with_mistakes(record: object, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(record))
    assert main(["explain", str(path)]) == 1
    assert r"\x1b[31m" in told(capsys).replace("\\\\", "\\").replace("u001b", "x1b")


@pytest.mark.parametrize("more", [[], ["--format", "json"]])
def test_tokens_of_a_file(more: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    record = {"query": [[1, 0]], "key": [[1, 0]], "value": [[1]], "query_tokens": [ESCAPE], "key_tokens": [ESCAPE]}
    path.write_text(json.dumps(record))
    assert main(["explain", str(path), *more]) == 0
    assert "31m" in told(capsys)


def test_json_means_the_same() -> None:
    text = json.dumps([ESCAPE, "é"], ensure_ascii=False)
    assert json.loads(json_shown(text)) == [ESCAPE, "é"]
    assert OBEYED.search(json_shown(text)) is None


def test_a_matrix_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    AttentionMatrix.from_weights(torch.eye(2), [ESCAPE, "b"], [ESCAPE, "b"]).show()
    assert "31m" in told(capsys)
