"""`regard map`: what it shows, what it says, and how it ends."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.cli import main
from regard.map import CaptureView


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[CaptureView, dict[str, Any]]]:
    """What would be served."""
    found: list[tuple[CaptureView, dict[str, Any]]] = []

    def serve(capture_view: CaptureView, port: int, open_browser: bool | None, **more: Any) -> None:
        found.append((capture_view, {"port": port, "open_browser": open_browser, **more}))

    monkeypatch.setattr("regard.cli.map.serve", serve)
    return found


def test_the_demo(shown: list[tuple[CaptureView, dict[str, Any]]]) -> None:
    assert main(["map", "--demo", "64", "--port", "8999", "--no-browser", "--head", "-1"]) == 0
    ((capture_view, options),) = shown
    assert capture_view.title == "demo, 64 tokens"
    assert (options["port"], options["open_browser"], options["first"]) == (8999, False, (0, 7))


def test_a_saved_capture_and_a_saved_matrix(shown: list[tuple[CaptureView, dict[str, Any]]], tmp_path: Path) -> None:
    model = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(1, 12, 16)
    found = regard.capture(model, x, x, x)
    found.save(tmp_path / "run.safetensors")
    found[0].save(tmp_path / "layer.safetensors")
    for name in ("run", "layer"):
        assert main(["map", str(tmp_path / f"{name}.safetensors")]) == 0
        capture_view, options = shown[-1]
        assert capture_view.title == f"{name}.safetensors"
        assert capture_view.folder == tmp_path / f"{name}.safetensors.map"
        assert (capture_view.layers[0].heads, capture_view.layers[0].keys) == (4, 12)
        assert options["open_browser"] is None


def test_files_of_weights(shown: list[tuple[CaptureView, dict[str, Any]]], tmp_path: Path) -> None:
    weights = torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(0)).softmax(-1).numpy()
    for shape, layers, heads in ((weights[0, 0], 1, 1), (weights[0], 1, 3), (weights, 2, 3)):
        np.save(tmp_path / "own.npy", shape)
        assert main(["map", str(tmp_path / "own.npy"), "--layer", "-1", "--head", "-1"]) == 0
        capture_view, options = shown[-1]
        assert capture_view.title == "own.npy"
        assert len(capture_view.layers) == layers
        assert (capture_view.layers[0].heads, capture_view.layers[0].queries, capture_view.layers[0].keys) == (
            heads,
            6,
            8,
        )
        assert options["first"] == (layers - 1, heads - 1)
    np.savez(tmp_path / "two.npz", a=weights[0, 0], b=weights[0] * 2)
    assert main(["map", str(tmp_path / "two.npz"), "--array", "b"]) == 0
    assert shown[-1][0].title == "two.npz: b"
    assert "18 of 18 rows do not sum to 1 but to 2" in shown[-1][0].notes[0]
    assert main(["map", "--file", str(tmp_path / "own.npy")]) == 0


def test_a_text_and_a_file_that_a_model_reads(
    shown: list[tuple[CaptureView, dict[str, Any]]],
    tmp_path: Path,
    get_model: Callable[[str], Path],
) -> None:
    (tmp_path / "models").symlink_to(get_model("minilm").parent, target_is_directory=True)
    file = tmp_path / "cat.txt"
    file.write_text("The cat sleeps on the mat")
    for words, title in ((["The cat sleeps"], "minilm: The cat sleeps"), ([str(file)], "minilm: cat.txt")):
        assert main(["map", *words, "--layer", "2", "--head", "3"]) == 0
        capture_view, options = shown[-1]
        assert capture_view.title == title
        assert len(capture_view.layers) == 6
        assert capture_view.layers[0].word("key", 2) == "cat"
        assert options["first"] == (2, 3)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ([], "say what to show"),
        (["--demo", "3"], "the demo has 16 to 1,048,576 tokens, got 3"),
        (["--demo", "64", "text"], "leave the text out"),
        (["--demo", "64", "--model", "minilm"], "leave --model minilm out"),
        (["--demo", "64", "--head", "8"], "there is no head 8 in layer 0: it has 8, 0 to 7"),
        (["--demo", "64", "--layer", "1"], "there is no layer 1: there are 1, 0 to 0"),
        (["none.safetensors"], "none.safetensors"),
        (["none.safetensors", "--model", "minilm"], "leave --model minilm out"),
        (["nosuch.txt"], "nosuch.txt cannot be read"),
        (["own.npy"], "there is no file own.npy; name a file that is there (or, if these are the words to read, pipe"),
        (["my folder/OWN.NPZ"], "there is no file my folder/OWN.NPZ"),
        (["attention.pt", "--model", "minilm"], "leave --model minilm out"),
        (["runs/own.xyz"], "runs/own.xyz cannot be read: No such file or directory"),
        (["./own"], "./own cannot be read: No such file or directory"),
        (["own.h5"], "own.h5 cannot be read: No such file or directory"),
        (["a text", "--array", "b"], "leave --array b out"),
        (["--demo", "64", "--new-token"], "--new-token replaces the stored token of a port; it needs --port"),
        (["--file", "nosuch"], "nosuch cannot be read"),
        (["/"], "/ is a folder; name a file of text"),
    ],
)
def test_mistakes_are_one_line(
    shown: list[tuple[CaptureView, dict[str, Any]]], capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(["map", *arguments]) == 1
    told = capsys.readouterr().err
    assert told.startswith("regard map: ")
    assert text in told
    assert told.count("\n") == 1
    assert shown == []


def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    """The address is printed once, opens the page, and Ctrl-C ends it quietly."""
    source = Path(regard.__file__).parents[1]
    env = os.environ | {"PYTHONPATH": str(source), "REGARD_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard", "map", "--demo", "64", "--no-browser", "--head", "2"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = line.removeprefix("the map is at ").strip()
            assert address.startswith("http://127.0.0.1:")
            assert address.endswith("#head=2")
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            page = opener.open(address.partition("#")[0], timeout=120).read()
            assert b"<!doctype html" in page.lower()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert process.stdout.read() == "(Ctrl-C stops it)\n"
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_a_browser_is_opened_only_if_asked_or_someone_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.map import server
    from regard.map.demo import view
    from regard.map.serve import serve

    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address))
    monkeypatch.setattr(server.MapServer, "run", lambda self: None)
    addresses: list[str] = []
    for asked in (False, None, True):
        serve(view(16), 0, asked, announce=addresses.append)
    assert len(addresses) == 3
    (entry,) = opened
    assert entry.startswith(addresses[-1].partition("?")[0] + "?once=")
    assert addresses[-1].partition("token=")[2] not in entry  # others can read a browser's command line


def test_addresses_of_a_chosen_port_last(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.map import server
    from regard.map.demo import view
    from regard.map.serve import listening, serve

    monkeypatch.setattr(server.MapServer, "run", lambda self: None)
    with listening(0) as sock:
        port = sock.getsockname()[1]
    addresses: list[str] = []
    for options in ({}, {}, {"new_token": True}, {}):
        serve(view(16), port, False, announce=addresses.append, **options)  # type: ignore[arg-type]
    first, again, fresh, last = addresses
    assert first == again
    assert fresh not in (first, again)
    assert last == fresh
    serve(view(16), 0, False, announce=addresses.append)
    serve(view(16), 0, False, announce=addresses.append)
    assert len({address.partition("token=")[2] for address in addresses[3:]}) == 3


def test_two_heads_of_one_view(shown: list[tuple[CaptureView, dict[str, Any]]]) -> None:
    assert main(["map", "--demo", "64", "--head", "1", "--compare", "0:-1"]) == 0
    assert (shown[-1][1]["first"], shown[-1][1]["compare"]) == ((0, 1), (0, 7))
    assert main(["map", "--demo", "64"]) == 0
    assert shown[-1][1]["compare"] is None


def test_two_files_of_weights(
    shown: list[tuple[CaptureView, dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are in one view, the second behind the first, and open beside each other."""
    draw = torch.Generator().manual_seed(0)
    for name, shape in (("a", (2, 3, 8, 8)), ("b", (2, 3, 8, 8)), ("c", (2, 3, 9, 9))):
        np.save(tmp_path / f"{name}.npy", torch.randn(shape, generator=draw).softmax(-1).numpy())
    a, b, c = (str(tmp_path / f"{name}.npy") for name in "abc")
    assert main(["map", a, "--compare-text", b, "--layer", "1", "--head", "2"]) == 0
    capture_view, options = shown[-1]
    assert [layer.name for layer in capture_view.layers] == [
        f"{file} · layer {number}" for file in ("a.npy", "b.npy") for number in (0, 1)
    ]
    assert (options["first"], options["compare"]) == ((1, 2), (3, 2))
    assert torch.equal(capture_view.layers[3].head(0, 2).dense(), torch.from_numpy(np.load(b)[1, 2]))
    assert main(["map", a, "--compare-text", b, "--compare", "0:1"]) == 0
    assert shown[-1][1]["compare"] == (2, 1)
    assert main(["map", a, "--compare-text", c]) == 1
    assert "heads of one size, got 8 × 8 and 9 × 9" in capsys.readouterr().err
    assert main(["map", a, "--compare", "7"]) == 1
    assert main(["map", a, "--compare", "1", "--save", str(tmp_path / "v.html")]) == 1
    assert "leave the comparison out" in capsys.readouterr().err
