"""Answers of the viewer against the matrix itself."""

import math
import struct
import time
from typing import Any

import numpy as np
import pytest
import torch

from regard.inspection.matrix import AttentionMatrix, matrix
from regard.map.jobs import RequestError, Stop
from regard.map.levels import Levels
from regard.map.viewer import Viewer
from regard.map.views import CaptureView, LayerView
from regard.spec import normalizers

from .conftest import place


def ask(viewer: Viewer, name: str, **body: Any) -> Any:
    return viewer.answer(name, body, Stop())


def head(capture_view: CaptureView, number: int = 0) -> torch.Tensor:
    own: AttentionMatrix = capture_view.layers[0].matrix[0, number]
    return own.dense().double()


def test_info_tells_the_sizes(viewer: Viewer) -> None:
    info = ask(viewer, "info")
    assert (info["title"], info["tile"], info["step"]) == ("a small capture view", 256, 1 / 8)
    first, second = info["layers"]
    assert first == {
        "name": "layer 0",
        "queries": 300,
        "keys": 300,
        "heads": 2,
        "batch": 1,
        "levels": 2,
        "estimate_from": 0,
        "hi": 9,
        "causal": True,
        "query_tokens": True,
        "key_tokens": True,
        "same_text": True,
        "query_start": 0,
        "head_names": None,
    }
    assert (second["queries"], second["keys"], second["levels"], second["hi"]) == (20, 33, 1, 6)
    assert (second["causal"], second["query_tokens"], second["query_start"]) == (False, False, 13)


@pytest.mark.parametrize(
    "queries, keys, count, top",
    [(1, 1, 1, 0), (256, 256, 1, 8), (257, 2, 2, 1), (513, 512, 3, 9), (100_000, 100_000, 10, 17), (5, 1025, 4, 11)],
)
def test_levels_and_top(queries: int, keys: int, count: int, top: int) -> None:
    levels = Levels(queries, keys)
    assert (levels.count, levels.top) == (count, top)
    assert levels.count == 1 + max(0, math.ceil(math.log2(max(queries, keys) / 256)))
    assert levels.exact_from == max(0, count - 5)
    assert levels.tiles(0) == (1, 1)
    assert levels.side(count - 1) == 1


def test_a_cell_is_exact(viewer: Viewer, capture_view: CaptureView) -> None:
    weights = head(capture_view, 1)
    found = ask(viewer, "cell", layer=0, head=1, q=200, k=37)
    assert found["weight"] == pytest.approx(float(weights[200, 37]), rel=1e-5)
    assert found["rank"] == int((weights[200] > weights[200, 37]).sum()) + 1
    assert (found["visible"], found["hidden"]) == (201, False)
    assert (found["query_token"], found["key_token"]) == ("w200", "w37")
    hidden = ask(viewer, "cell", layer=0, head=1, q=37, k=200)
    assert (hidden["weight"], hidden["rank"], hidden["hidden"], hidden["visible"]) == (0.0, None, True, 38)
    assert ask(viewer, "cell", layer=1, head=0, q=0, k=0)["query_token"] is None


def test_a_row(viewer: Viewer, capture_view: CaptureView) -> None:
    weights = head(capture_view)[150]
    found = ask(viewer, "row", **place(q=150, bins=7, **{"from": 10, "to": 290}))
    cuts = [10 + 280 * part // 7 for part in range(8)]
    for part in range(7):
        own = weights[cuts[part] : min(cuts[part + 1], 151)] * 151
        if len(own):
            assert found["max"][part] == pytest.approx(float(own.max()), rel=1e-5)
            assert found["mean"][part] == pytest.approx(float(own.mean()), rel=1e-5)
        else:
            assert (found["max"][part], found["mean"][part]) == (None, None)
    order = weights.argsort(descending=True)[:20].tolist()
    assert [cell["k"] for cell in found["top"]] == order
    assert found["top"][0]["weight"] == pytest.approx(float(weights.max()), rel=1e-5)
    assert found["top"][0]["token"] == capture_view.layers[0].word("key", order[0])
    assert found["visible"] == 151
    assert found["sum"] == pytest.approx(1.0, abs=1e-5)
    assert found["entropy"] == pytest.approx(float(-(weights[:151] * weights[:151].log()).sum()), rel=1e-5)
    assert len(ask(viewer, "row", **place(q=0))["max"]) == 300
    assert len(ask(viewer, "row", **place(q=0))["top"]) == 1


def test_a_column(viewer: Viewer, capture_view: CaptureView) -> None:
    weights = head(capture_view)[:, 40]
    found = ask(viewer, "column", **place(k=40, bins=3))
    relative = weights * torch.arange(1, 301)
    assert found["max"] == pytest.approx(
        [float(relative[40:100].max()), float(relative[100:200].max()), float(relative[200:].max())], rel=1e-5
    )
    assert found["mean"][0] == pytest.approx(float(relative[40:100].mean()), rel=1e-5)
    assert found["visible"] == 260
    assert found["sum"] == pytest.approx(float(weights.sum()), rel=1e-5)
    assert [cell["q"] for cell in found["top"]] == weights.argsort(descending=True)[:20].tolist()


def test_tokens_and_where_they_are(viewer: Viewer) -> None:
    found = ask(viewer, "tokens", layer=0, axis="query", **{"from": 298, "to": 300})
    assert found == {"tokens": ["w298", "w299"], "texts": [" w298", " w299"]}
    assert ask(viewer, "tokens", layer=0, axis="key", **{"from": 5, "to": 5}) == {"tokens": [], "texts": []}
    assert ask(viewer, "tokens", layer=1, axis="key", **{"from": 0, "to": 5}) == {"tokens": None, "texts": None}
    found = ask(viewer, "find", layer=0, axis="key", text="W29", limit=3)
    assert found == {"positions": [29, 290, 291], "counts": [1, 1, 1], "total": 11}
    found = ask(viewer, "find", layer=0, axis="key", text="4 w25 w", limit=3)
    assert found == {"positions": [24], "counts": [3], "total": 1}
    nothing = {"positions": [], "counts": [], "total": 0}
    assert ask(viewer, "find", layer=1, axis="key", text="a", limit=3) == nothing


def test_the_strongest_cells(viewer: Viewer, capture_view: CaptureView) -> None:
    relative = head(capture_view) * torch.arange(1, 301).view(-1, 1)
    found = ask(viewer, "strongest", **place(count=12))
    assert found["exact"]
    cells = found["cells"]
    assert len(cells) == 12
    assert len({(cell["q"] // 2, cell["k"] // 2) for cell in cells}) == 12
    best = divmod(int(relative.argmax()), 300)
    assert (cells[0]["q"], cells[0]["k"]) == best
    assert cells[0]["weight"] == pytest.approx(float(head(capture_view)[best]), rel=1e-5)
    values = [cell["weight"] * cell["visible"] for cell in cells]
    assert values == sorted(values, reverse=True)
    pooled = torch.nn.functional.max_pool2d(relative[None], 2)[0].flatten().sort(descending=True)[0]
    assert values[-1] >= float(pooled[11]) * 2 ** (-1 / 8)  # overview cells are chosen by their bytes


def test_thumbnails(viewer: Viewer, capture_view: CaptureView) -> None:
    answer = ask(viewer, "thumbs", layer=0, size=32)
    assert answer[:4] == b"RGH1"
    heads, size = struct.unpack_from("<II", answer, 4)
    assert (heads, size, answer[12:14]) == (2, 32, b"\0\0")
    assert len(answer) == 14 + 2 * 2 * 32 * 32
    mean = np.frombuffer(answer, np.uint8, 32 * 32, 14 + 2 * 32 * 32).reshape(32, 32)
    assert not mean[19:].any()  # 300 rows in cells of 16
    cell = (head(capture_view, 1) * torch.arange(1, 301).view(-1, 1))[64:80, 16:32].mean()
    assert abs(mean[4, 1] - (255 - 8 * (9 - math.log2(cell)))) <= 0.51
    assert mean[1, 4] == 0
    for wrong in (7, 33, 512):
        with pytest.raises(RequestError, match="size must be"):
            ask(viewer, "thumbs", layer=0, size=wrong)


def test_statistics_of_heads(viewer: Viewer, capture_view: CaptureView) -> None:
    found = ask(viewer, "heads", layer=1)
    assert found["columns"] == ["entropy", "relative", "distance", "previous", "first"]
    assert found["sampled"] is None
    own = capture_view.layers[1].matrix[0, 1]
    weights = own.dense().double()
    entropy = -(weights * weights.log()).sum(-1)
    away = (torch.arange(20).view(-1, 1) + 13 - torch.arange(33)).abs()
    wanted = [
        entropy.mean(),
        (entropy / math.log(33)).mean(),
        (weights * away).sum(-1).mean(),
        weights[torch.arange(20), torch.arange(20) + 12].mean(),
        weights[:, 0].mean(),
    ]
    assert found["rows"][1] == pytest.approx([float(part) for part in wanted], rel=1e-4)
    assert ask(viewer, "heads", layer=0)["sampled"] == 64


def test_statistics_of_a_capture_are_its_table() -> None:
    import regard

    model = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 12, 16)
    found = regard.capture(model, x, x, x)
    capture_view = CaptureView.of(found)
    viewer = Viewer(capture_view)
    answer = ask(viewer, "heads", layer=0, batch=1)
    table = found.heads(which=("entropy",), per_batch=True)
    wanted = [row["entropy"] for row in table if row["batch"] == 1]
    assert [row[0] for row in answer["rows"]] == pytest.approx(wanted)
    assert answer["columns"][0] == "entropy"
    info = ask(viewer, "info")["layers"][0]
    assert (info["heads"], info["batch"], info["queries"]) == (4, 2, 12)
    viewer.close()


@pytest.mark.parametrize(
    "name, body, text",
    [
        ("tiles", {"layer": 2}, "layer must be from 0 to 1, got 2"),
        ("tiles", {"layer": True}, "layer must be a whole number, got true or false"),
        ("tiles", {"layer": 0, "batch": 1}, "batch must be from 0 to 0, got 1"),
        ("tiles", place(head=2), "head must be from 0 to 1, got 2"),
        ("tiles", place(), "tiles must be a list of at most 64"),
        ("tiles", place(tiles=[[0, 0, 0]] * 65), "tiles must be a list of at most 64"),
        ("tiles", place(tiles=[[0, 0]]), "three whole numbers"),
        ("tiles", place(tiles=[[0, 0, 0.0]]), "three whole numbers"),
        ("tiles", place(tiles=[[2, 0, 0]]), "no such tile"),
        ("tiles", place(tiles=[[0, 1, 0]]), "no such tile"),
        ("tiles", place(tiles=[[1, -1, 0]]), "no such tile"),
        ("cell", place(q=300, k=0), "q must be from 0 to 299"),
        ("cell", place(q=0), "k must be a whole number, got nothing"),
        ("row", place(q=0, bins=0), "bins must be from 1 to 300"),
        ("row", place(q=0, **{"from": 5, "to": 5}), "to must be from 6 to 300"),
        ("tokens", {"layer": 0, "axis": "x"}, "axis must be one of query, key"),
        ("tokens", {"layer": 0, "axis": "key", "from": 0, "to": 301}, "to must be from 0 to 300"),
        ("find", {"layer": 0, "axis": "key", "text": ""}, "text must be a text of 1 to 200 characters"),
        ("strongest", place(count=1000), "count must be from 1 to 64"),
        ("nothing", {}, "there is no question 'nothing'"),
    ],
)
def test_questions_out_of_range_are_refused(viewer: Viewer, name: str, body: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError, match=text):
        viewer.answer(name, body, Stop())


def test_a_long_matrix_is_looked_at_before_it_is_known() -> None:
    n = 9000  # the levels of cells of 32 and more are not computed at once
    query, key = torch.randn(2, 1, 2, n, 4, generator=torch.Generator().manual_seed(0))
    viewer = Viewer(CaptureView.of(matrix(query, key, mask="causal")))
    answer = ask(viewer, "thumbs", layer=0, size=32)
    assert answer[12:14] == b"\1\1"
    found = ask(viewer, "strongest", **place(count=4))
    assert not found["exact"]
    cell = found["cells"][0]
    assert cell["weight"] == pytest.approx(ask(viewer, "cell", **place(q=cell["q"], k=cell["k"]))["weight"], rel=1e-5)
    told = ask(viewer, "progress", **place())
    assert told["state"] == "waiting"
    until = time.monotonic() + 300
    while ask(viewer, "progress", **place())["state"] != "exact" and time.monotonic() < until:
        time.sleep(0.05)
    assert ask(viewer, "thumbs", layer=0, size=32)[12:14] == b"\0\1"
    assert ask(viewer, "strongest", **place(count=4))["exact"]
    viewer.close()


def test_batch_rows_may_have_words_of_their_own_and_heads_their_numbers() -> None:
    import regard

    model = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 3, 16)
    found = regard.capture(model, x, x, x, tokens=[["a", "b", "c"], ["d", "e", "f"]], heads=[1, 3])
    viewer = Viewer(CaptureView.of(found))
    info = ask(viewer, "info")["layers"][0]
    assert (info["head_names"], info["key_tokens"]) == (["head 1", "head 3"], True)
    for batch, words in ((0, ["a", "b", "c"]), (1, ["d", "e", "f"])):
        assert ask(viewer, "tokens", layer=0, batch=batch, axis="key", **{"from": 0, "to": 3})["tokens"] == words
        cell = ask(viewer, "cell", layer=0, batch=batch, head=1, q=2, k=0)
        assert (cell["query_token"], cell["key_token"]) == (words[2], words[0])
        assert cell["weight"] == pytest.approx(float(found[0, 3][batch, 2, 0]), rel=1e-5)
    assert ask(viewer, "find", layer=0, batch=1, axis="key", text="E")["positions"] == [1]
    viewer.close()


def test_an_atlas_of_anything() -> None:
    one = matrix(*torch.randn(2, 1, 2, 5, 4))
    assert [layer.name for layer in CaptureView.of([one, one]).layers] == ["layer 0", "layer 1"]
    assert CaptureView.of(CaptureView.of(one)).title == "attention"
    assert LayerView("x", AttentionMatrix.from_weights(torch.eye(3))).causal is False
    with pytest.raises(TypeError, match=r"got int; for queries and keys write regard\.matrix"):
        CaptureView.of(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one layer"):
        CaptureView(())
    with pytest.raises(ValueError, match="has no pairs to show"):
        LayerView("x", matrix(torch.randn(1, 2, 0, 4), torch.randn(1, 2, 3, 4)))


def test_stored_weights_of_causal_attention() -> None:
    """Zeros behind the query are hidden, so that 1 is uniform over the keys that it sees; so is NaN."""
    weights = torch.randn(2, 40, 48, generator=torch.Generator().manual_seed(0)).softmax(-1).tril(8)
    weights /= weights.sum(-1, keepdim=True)
    weights[1] = torch.eye(48)[8:]
    weights[0, 30, 3] = torch.nan
    viewer = Viewer(CaptureView.of(AttentionMatrix.from_weights(weights.half())))
    ask = {"layer": 0, "head": 0, "q": 20, "k": 5}
    assert viewer.answer("info", {}, Stop())["layers"][0]["causal"]  # type: ignore[call-overload]
    cell = viewer.answer("cell", ask, Stop())
    assert (cell["visible"], cell["hidden"]) == (29, False)  # type: ignore[call-overload]
    assert cell["weight"] == float(weights[0, 20, 5].half())  # type: ignore[call-overload]
    assert viewer.answer("cell", ask | {"k": 29}, Stop())["hidden"]  # type: ignore[call-overload]
    assert viewer.answer("cell", ask | {"q": 30, "k": 3}, Stop())["hidden"]  # type: ignore[call-overload]
    assert viewer.answer("cell", ask | {"head": 1}, Stop())["visible"] == 48  # type: ignore[call-overload]
    viewer.close()


@pytest.mark.parametrize("low", [-1e4, float(torch.finfo(torch.float32).min), -math.inf])
@pytest.mark.parametrize("normalizer", [normalizers.Softmax(), normalizers.Sparsemax()], ids=["native", "tiled"])
def test_pairs_that_a_model_hides_by_a_low_number_are_hidden(low: float, normalizer: normalizers.Normalizer) -> None:
    """As transformers' models do: a table that is added to the logits. A row of nothing else keeps its weights."""
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 2, 30, 8, generator=draw)
    table = torch.zeros(30, 30).masked_fill(~torch.ones(30, 30).tril().bool(), low)
    if math.isfinite(low):
        table[7] = low
    own = matrix(query, key, bias=table, normalizer=normalizer)
    viewer = Viewer(CaptureView.of(own))
    for q in (0, 3, 29):
        row = ask(viewer, "row", layer=0, head=1, q=q)
        assert (row["visible"], [value is None for value in row["max"]]) == (q + 1, [k > q for k in range(30)])
        expected = (own[0, 1, q, :] * (q + 1)).tolist()[: q + 1]
        assert row["max"][: q + 1] == pytest.approx(expected, rel=1e-5)
    if math.isfinite(low):
        assert ask(viewer, "row", layer=0, head=1, q=7)["visible"] == 30
    viewer.close()
