"""`regard see` and `regard heads`: a text, a model, a picture or a table; mistakes are one line."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.cli import main

CAT = "The cat sleeps on the mat"
TOKENS = ["[CLS]", "the", "cat", "sleeps", "on", "the", "mat", "[SEP]"]


@pytest.fixture(autouse=True)
def window(monkeypatch: pytest.MonkeyPatch, get_model: Callable[[str], Path]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    get_model("minilm")


@pytest.fixture(scope="module")
def truth(get_model: Callable[[str], Path]) -> torch.Tensor:
    """(layer, head, query, key) of transformers' own eager attention."""
    from transformers import AutoModel, AutoTokenizer

    folder = get_model("minilm")
    model = AutoModel.from_pretrained(folder, attn_implementation="eager")
    with torch.inference_mode():
        out = model(**AutoTokenizer.from_pretrained(folder)(CAT, return_tensors="pt"), output_attentions=True)
    return torch.stack(out.attentions)[:, 0]


def test_one_head_with_its_tokens(capsys: pytest.CaptureFixture[str], truth: torch.Tensor) -> None:
    assert main(["see", CAT, "--layer", "2", "--head", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("minilm, layer 2, head 3: “the cat sleeps on the mat”")
    assert lines[1].split() == TOKENS
    for row, line in enumerate(lines[2:10]):
        assert line.split()[0] == TOKENS[row]
        numbers = [float(part.strip("░▒▓█")) for part in line.split()[1:]]
        assert numbers == pytest.approx(truth[2, 3, row].tolist(), abs=0.0051)


def test_all_heads_and_then_the_most_focused(capsys: pytest.CaptureFixture[str], truth: torch.Tensor) -> None:
    assert main(["see", CAT]) == 0
    out = capsys.readouterr().out
    entropy = -(truth.clamp_min(1e-30).log() * truth).sum(-1).mean(-1)
    best = int(entropy.argmin())
    assert out.startswith("minilm, 6 layers × 12 heads: “the cat sleeps on the mat”")
    after = out[out.index("The most focused head has ") :]
    assert f"minilm, layer {best // 12}, head {best % 12}: “the cat" in after


def test_json_has_every_weight(capsys: pytest.CaptureFixture[str], truth: torch.Tensor) -> None:
    assert main(["see", CAT, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["queries"] == found["keys"] == TOKENS
    assert [(each["layer"], each["head"]) for each in found["heads"]] == [(i, j) for i in range(6) for j in range(12)]
    weights = torch.tensor([each["weights"] for each in found["heads"]]).view(6, 12, 8, 8)
    torch.testing.assert_close(weights, truth, atol=1e-5, rtol=0)
    assert main(["see", CAT, "--json", "--layer", "-1", "--head", "-1"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["heads"]
    assert (one["layer"], one["head"]) == (5, 11)


@pytest.mark.parametrize("suffix", ["svg", "html", "npz", "csv", "safetensors"])
def test_saving_one_head(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"head.{suffix}"
    assert main(["see", CAT, "--layer", "0", "--head", "2", "--save", str(path)]) == 0
    assert path.stat().st_size > 500
    assert capsys.readouterr().out == f"wrote {path}\n"


def test_a_saved_capture_is_seen_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cat.safetensors"
    assert main(["see", CAT, "--save", str(path)]) == 0
    capsys.readouterr()
    assert main(["see", CAT, "--layer", "1"]) == 0
    fresh = capsys.readouterr().out
    assert main(["see", str(path), "--layer", "1"]) == 0
    assert capsys.readouterr().out == fresh


def test_a_file_and_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cat.txt").write_text(CAT)
    assert main(["see", "--file", str(tmp_path / "cat.txt"), "--json"]) == 0
    told = capsys.readouterr().out
    assert main(["see", str(tmp_path / "cat.txt"), "--json"]) == 0
    assert capsys.readouterr().out == told
    monkeypatch.setattr(sys, "stdin", io.StringIO(CAT))
    assert main(["see", "--file", "-", "--json"]) == 0
    assert capsys.readouterr().out == told


def test_progress_of_the_layers() -> None:
    from regard.cli.options import MODELS
    from regard.cli.text import _model, read
    from regard.progress import Progress, reporting

    reports: list[Progress] = []
    with reporting(reports.append):
        read(_model(MODELS[0]), CAT, MODELS[0])
    assert [str(each) for each in reports] == [f"reading 8 tokens: {done} of 6 layers" for done in range(7)]


def test_texts_and_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of a file that is there is a file, with any suffix or none; words with slashes and dots are words."""
    monkeypatch.chdir(tmp_path)
    for name in ("notes", "notes.xyz", "my notes"):
        Path(name).write_text(CAT)
        assert main(["see", name, "--json", "--layer", "0", "--head", "0"]) == 0
        assert json.loads(capsys.readouterr().out)["keys"] == TOKENS
    for words in ("and/or", "What is in weights.npz?", "e.g.", "3.14/2", "a" * 2000, "https://"):
        assert main(["see", words, "--json", "--layer", "0", "--head", "0"]) in (0, 1)
        assert "cannot be read" not in capsys.readouterr().err
    Path("image.bin").write_bytes(b"\x89PNG\xff")
    assert main(["see", "image.bin"]) == 1
    told = capsys.readouterr().err
    assert "image.bin is not a text in UTF-8: byte 0 cannot be read; weights are opened from .npy, .npz, .csv" in told


def test_weights_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "own.npy")
    weights = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
    weights[0, 0, 0, 0] = torch.nan
    np.save(path, weights.numpy())
    assert main(["see", path, "--layer", "1", "--head", "-1"]) == 0
    assert "own.npy, layer 1, head 2" in capsys.readouterr().out
    assert main(["see", path, "--layer", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == weights[1].tolist()
    assert main(["see", path, "--layer", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"][0][0][0] is None
    for wrong, text in (
        (["see", path, "--layer", "2"], "there is no layer 2 in"),
        (["see", path, "--head", "1"], "--head needs --layer"),
        (["heads", path], "own.npy holds weights, not the layers of a model; look at them with: regard map"),
    ):
        assert main(wrong) == 1
        assert text in capsys.readouterr().err


def test_the_sample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["see", "--sample", "7", "--json", "--layer", "0", "--head", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["keys"] == [
        "[CLS]",
        "the",
        "constitution",
        "of",
        "the",
        "united",
        "states",
    ]


def test_heads(tmp_path: Path, capsys: pytest.CaptureFixture[str], truth: torch.Tensor) -> None:
    assert main(["heads", CAT, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 72
    previous = truth.diagonal(-1, -2, -1)
    assert rows[2]["layer"] == 0
    assert rows[2]["head"] == 2
    assert rows[2]["previous"] == pytest.approx(float(previous[0, 2].mean()), abs=1e-3)
    assert main(["heads", CAT, "--sort", "previous", "--top", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[0] == "0"
    assert main(["heads", CAT, "--save", str(tmp_path / "heads.csv")]) == 0
    assert len((tmp_path / "heads.csv").read_text().splitlines()) == 73


@pytest.mark.parametrize(
    "argv, answer",
    [
        ([""], "the text is empty"),
        (["  \n"], "the text is empty"),
        ([], "give a text"),
        (["a", "--file", "b"], "one of them"),
        (["a", "--sample", "9"], "one of them"),
        (["--sample", "0"], "--sample takes 1 to 9,007 tokens for minilm, got 0"),
        (["--sample", "99999"], "for minilm, got 99,999"),
        (["--file", "no/such/file"], "no/such/file cannot be read: No such file or directory; name a file"),
        (["nosuch.txt"], "nosuch.txt cannot be read: No such file or directory; name a file that is there"),
        (["no.safetensors", "--model", "minilm"], "holds what a model attended to; leave --model minilm out"),
        (
            [" ".join(["mat"] * 511)],
            "minilm reads up to 512 tokens, the text has 513; shorten it, or take --model smollm2",
        ),
        (
            ["a", "--model", "nothing"],
            "'nothing' is neither a model that regard knows (minilm, smollm2) nor a folder nor",
        ),
        (["a", "--model", "{tmp}"], "config.json"),
        (["a", "--save", "no/such/folder/x.png"], "there is no folder no/such/folder; make it first"),
        (["a", "--layer", "6"], "there is no layer 6: the model has 6, 0 to 5"),
        (["a", "--layer", "0", "--head", "12"], "there is no head 12 in layer 0: it has 12, 0 to 11"),
        (["a", "--head", "1"], "--head needs --layer"),
        (["a", "--layer", "0", "--save", "x.bmp"], "suffix"),
        (["no.safetensors"], "no.safetensors"),
        (["{tmp}/bad.safetensors"], "bad.safetensors"),
        (["--file", "{tmp}/bad.safetensors"], "is no safetensors file, or a damaged one"),
    ],
)
def test_a_mistake_is_one_line(
    argv: list[str], answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"\xff\x00not a capture" * 99)
    assert main(["see", *(part.replace("{tmp}", str(tmp_path)) for part in argv)]) == 1
    said = capsys.readouterr()
    assert answer in said.err
    lines = [line for line in said.err.splitlines() if not line.startswith("loading ")]  # a slow machine reports it
    assert len(lines) == 1
    assert said.out == ""


def test_one_token(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for text in ("a", "🙂", "\u202e"):
        assert main(["see", text]) == 0
        assert main(["heads", text]) == 0
        assert main(["see", text, "--save", str(tmp_path / "one.html")]) == 0
    assert "nan" not in capsys.readouterr().out.split("[SEP]")[0]


def test_the_compiler_is_not_loaded() -> None:
    """It would take longer than everything else together."""
    script = (
        f"import sys; from regard.cli import main; main(['see', {CAT!r}]); sys.exit('torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ, stdout=subprocess.DEVNULL)


def test_the_table_of_heads_fits_the_window(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["heads", CAT, "--top", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[:2] for line in lines if line.startswith("layer")] == [["layer", "head"]] * 2


def test_layers_are_numbers_and_the_last_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["see", CAT, "--layer", "-1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("minilm, layer 5, 12 heads: “the cat sleeps on the mat”")
    assert "blocks" not in out
    assert "show()" not in out
    assert "Add --head 0 to see one head with its tokens." in " ".join(out.split())


@pytest.mark.parametrize("kind", ["heatmap", "lines", "alignment"])
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_every_kind_of_a_head_is_saved(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    argv = ["see", CAT, "--layer", "2", "--head", "3", "--kind", kind, "--save", str(path), "--hide-special"]
    assert main([*argv, "--tokens", "1:6", "--title", "mine", "--colormap", "viridis"]) == 0
    assert path.stat().st_size > 1000
    if suffix == "svg":
        assert "mine" in path.read_text()
        assert "[CLS]<" not in path.read_text()


@pytest.mark.parametrize("kind", ["overview", "profiles", "statistics"])
def test_every_kind_of_a_model_is_shown_and_saved(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["see", CAT, "--kind", kind]) == 0
    assert capsys.readouterr().out.startswith("minilm, 6 layers × 12 heads: “the cat")
    assert main(["see", CAT, "--kind", kind, "--save", str(tmp_path / "x.svg")]) == 0
    assert "minilm, 6 layers" in (tmp_path / "x.svg").read_text()


@pytest.mark.parametrize(
    "argv, answer",
    [
        (["--kind", "lines"], "--kind lines shows a layer or a head; add --layer N"),
        (["--kind", "profiles", "--layer", "1"], "--kind profiles shows all layers; leave --layer and --head out"),
        (["--save", "x.csv"], "csv holds the weights of a layer or a head; add --layer N, or save as safetensors"),
        (
            ["--kind", "lines", "--layer", "1", "--save", "x.html"],
            "--kind lines is saved as png, svg or pdf; got .html",
        ),
        (["--colormap", "nothing", "--layer", "1"], "there is no colormap 'nothing'"),
        (["--tokens", "90:99", "--layer", "1"], "no token is left: there are 8 queries and 8 keys"),
        (["--renormalize", "--layer", "1"], "renormalize scales the weights that are left"),
    ],
)
def test_options_that_do_not_fit_say_what_to_do(
    argv: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["see", CAT, *argv]) == 1
    assert answer in capsys.readouterr().err


def test_a_range_of_tokens_is_two_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["see", CAT, "--tokens", "3"])
    assert "takes a range such as 3:20, :20 or 3:; got '3'" in capsys.readouterr().err


def test_warnings_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        rare = "\N{LINEAR A SIGN AB001}"
        assert (
            main(["see", CAT, "--layer", "0", "--head", "1", "--title", rare, "--save", str(tmp_path / "x.png")]) == 0
        )
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("regard see: 1 character (")
    assert "apt install fonts-noto-core" in said
