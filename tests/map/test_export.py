"""A saved view: what is inside, how large it may be, and what is refused."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.cli import main
from regard.inspection.matrix import matrix
from regard.map import CaptureView, demo, save
from regard.pages.document import content_hash

from .test_tiles import decoded


def data_of(path: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


def unpacked(text: str) -> bytes:
    return gzip.decompress(base64.b64decode(text))


def test_a_small_head_is_inside_whole(tmp_path: Path, capture_view: CaptureView) -> None:
    saved = save(capture_view, tmp_path / "view.html", head=1)
    assert (saved.side, saved.exact, saved.size) == (1, True, (tmp_path / "view.html").stat().st_size)
    data, own = data_of(saved.path), capture_view.layers[0].head(0, 1).dense()
    (layer,) = data["info"]["layers"]
    assert (layer["heads"], layer["head_names"], layer["finest"], layer["levels"]) == (1, ["head 1"], 1, 2)
    assert "down to single weights, with the exact weights" in data["info"]["notes"][-1]
    weights = np.frombuffer(unpacked(data["weights"]), "<f4").reshape(300, 300)
    seen = np.tri(300, dtype=bool)
    assert (weights[~seen] == -1).all()
    np.testing.assert_allclose(weights[seen], own.numpy()[seen], rtol=1e-5, atol=1e-9)
    assert np.frombuffer(unpacked(data["visible"]), "<u4").tolist() == list(range(1, 301))
    tokens = json.loads(unpacked(data["tokens"]["query"]))
    assert tokens["labels"][7] == '<img src=x onerror="alert(1)">'
    assert "key" not in data["tokens"]  # the same words
    top = data["strongest"][0]
    assert float(own[top["q"], top["k"]]) == pytest.approx(top["weight"], rel=1e-4)


def test_the_policy_allows_the_script_and_the_style_and_no_more(tmp_path: Path, capture_view: CaptureView) -> None:
    text = save(capture_view, tmp_path / "view.html").path.read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL)
    assert policy
    assert style
    assert script
    assert policy[1] == (
        f"default-src 'none'; script-src '{content_hash(script[1])}'; style-src '{content_hash(style[1])}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert "<img" not in text.replace(script[1], "")
    assert not re.search(r"(?:src|href)=[\"']?http", text)


def test_a_long_head_has_the_levels_that_have_room(tmp_path: Path) -> None:
    view, limit = demo.view(9_000), 3_000_000
    saved = save(view, tmp_path / "view.html", head=1, limit=limit)
    data, levels = data_of(saved.path), view.layers[0].levels
    assert saved.size <= limit
    assert not saved.exact
    assert saved.side == levels.side(len(data["levels"]) - 1)
    assert 1 < saved.side < levels.side(0)
    assert f"down to {saved.side} × {saved.side} weights; single weights are not" in data["info"]["notes"][-1]
    for z, text in enumerate(data["levels"]):
        tiles = decoded(unpacked(text))
        assert {place.z for place in tiles} == {z}
        assert len(tiles) == np.prod(levels.tiles(z))
        assert {flags for flags, *_ in tiles.values()} <= {0, 1}  # exact ones only
    again = save(view, tmp_path / "again.html", head=1, limit=limit)
    assert again.path.read_bytes() == saved.path.read_bytes()
    larger = save(view, tmp_path / "larger.html", head=1, limit=4 * limit)
    assert larger.side < saved.side


def test_what_is_refused(tmp_path: Path) -> None:
    own = matrix(*torch.randn(2, 1, 2, 8, 4))
    for options, text in (
        ({"head": 2}, "there is no head 2: there are 2, 0 to 1"),
        ({"layer": 1}, "there is no layer 1"),
        ({"batch": -2}, "there is no batch -2"),
        ({"limit": 10_000}, "a larger limit"),
    ):
        with pytest.raises(ValueError, match=text):
            save(own, tmp_path / "view.html", **options)
    with pytest.raises(ValueError, match=r"name it view.html, got view.png"):
        save(own, tmp_path / "view.png")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        save(own, tmp_path / "nowhere" / "view.html")
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "own.npy", torch.randn(2, 3, 20, 20).softmax(-1).numpy())
    path = tmp_path / "view.html"
    assert main(["map", str(tmp_path / "own.npy"), "--layer", "-1", "--head", "2", "--save", str(path)]) == 0
    out = capsys.readouterr().out
    inside = "the whole matrix down to single weights, with their values"
    assert re.fullmatch(rf"wrote .*view\.html: \d\.\d MB, {inside}\n", out)
    (layer,) = data_of(path)["info"]["layers"]
    assert (layer["name"], layer["head_names"]) == ("layer 1", ["head 2"])
