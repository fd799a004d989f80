"""`regard see --compare`: heads, layers, models and texts, subtracted or side by side; mistakes are one line."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard.cli import main

CAT, DOG, LONGER = "The cat sleeps on the mat", "The dog sleeps on the mat", "The big dog sleeps on the mat"


@pytest.fixture(autouse=True)
def window(monkeypatch: pytest.MonkeyPatch, get_model: Callable[[str], Path]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    get_model("minilm")


def weights(capsys: pytest.CaptureFixture[str], text: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """(layer, head, query, key)."""
    assert main(["see", text, "--json"]) == 0
    heads = json.loads(capsys.readouterr().out)["heads"]
    return np.array([head["weights"] for head in heads]).reshape(6, 12, len(heads[0]["weights"]), -1)


def test_two_heads_two_layers_and_two_texts(capsys: pytest.CaptureFixture[str]) -> None:
    cat, dog = weights(capsys, CAT), weights(capsys, DOG)
    for options, expected, name in (
        (["--layer", "2", "--head", "8", "--compare", "3:1"], cat[2, 8] - cat[3, 1], "layer 3, head 1"),
        (["--layer", "2", "--head", "8", "--compare=-1"], cat[2, 8] - cat[5, 8], "layer 5, head 8"),
        (["--layer", "2", "--compare", "3"], cat[2] - cat[3], "layer 3"),
        (["--layer", "2", "--head", "8", "--compare-text", DOG], cat[2, 8] - dog[2, 8], f"“{DOG}”, layer 2, head 8"),
        (["--layer", "2", "--head", "8", "--compare-text", DOG, "--compare", "0:0"], cat[2, 8] - dog[0, 0], "head 0"),
    ):
        assert main(["see", CAT, *options, "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        np.testing.assert_array_equal(
            np.array(record["difference"], dtype=np.float32), expected.astype(np.float32), strict=True
        )
        assert record["second"]["name"].endswith(name)
        assert main(["see", CAT, *options]) == 0
        assert "less" in capsys.readouterr().out


def test_of_two_texts_the_head_that_differs_most(capsys: pytest.CaptureFixture[str]) -> None:
    cat, dog = weights(capsys, CAT), weights(capsys, DOG)
    layer, head = divmod(int(np.abs(cat - dog).sum((-1, -2)).argmax()), 12)
    assert main(["see", CAT, "--compare-text", DOG]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"layer {layer}, head {head} (of all heads, the rows of this one differ most)" in text
    assert "cat / dog" in text


def test_other_lengths_stand_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--layer", "1", "--head", "7", "--compare-text", LONGER]
    assert main(["see", CAT, *options]) == 0
    text = capsys.readouterr().out
    assert "side by side, because the shapes differ: (8, 8) and (9, 9)" in text
    assert "big" in text
    for name in ("both.png", "both.html", "both.npz"):
        assert main(["see", CAT, *options, "--save", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 500
        assert "wrote" in capsys.readouterr().out


def test_files_and_saved_captures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = str(tmp_path / "dog.safetensors")
    assert main(["see", DOG, "--save", saved]) == 0
    options = ["--layer", "1", "--head", "7", "--compare-text", saved]
    for name in ("difference.svg", "difference.html", "difference.csv"):
        assert main(["see", CAT, *options, "--save", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 500
    assert main(["see", CAT, *options, "--side-by-side", "--save", str(tmp_path / "both.npz")]) == 0
    with np.load(tmp_path / "both.npz") as file:
        assert file["first"].shape == file["second"].shape == (8, 8)


def test_two_models(capsys: pytest.CaptureFixture[str], get_model: Callable[[str], Path]) -> None:
    options = ["--layer", "1", "--head", "7", "--compare-model", str(get_model("minilm"))]
    assert main(["see", CAT, *options, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert np.abs(record["difference"]).max() == 0
    assert record["first"]["name"] == "minilm, layer 1, head 7"


@pytest.mark.parametrize(
    "options, message",
    [
        (["--compare", "3"], "--compare needs --layer"),
        (["--layer", "1", "--compare", "3:1"], "--compare 3:1 names a head; name the one it is compared with too"),
        (["--layer", "1", "--compare", "x"], "--compare takes LAYER or LAYER:HEAD, as in 3 or 3:1; got 'x'"),
        (["--layer", "1", "--compare", "9"], "there is no layer 9: the model has 6, 0 to 5"),
        (["--layer", "1", "--head", "1", "--compare", "2:99"], "there is no head 99 in layer 2: it has 12, 0 to 11"),
        (["--head", "1", "--compare", "2"], "--head needs --layer"),
        (["--side-by-side"], "--side-by-side needs something to compare"),
        (["--compare-text", LONGER], "so no head differs most: choose one with --layer and --head"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    assert main(["see", CAT, *options]) != 0
    assert message in capsys.readouterr().err
