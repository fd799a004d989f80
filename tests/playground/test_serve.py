"""The playground on a local server: the page and its modules behind the guard, refused requests, the command."""

import base64
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.cli.main import main
from regard.map.jobs import RequestError, Stop, Stopped
from regard.map.serve import listening
from regard.map.server import PageServer
from regard.playground.document import files
from regard.playground.live import LETTERS, Live
from regard.playground.serve import Playground, server


@pytest.fixture(scope="module")
def running() -> Iterator[PageServer]:
    served = server(listening(0))
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    while not served.started:
        time.sleep(0.01)
    yield served
    served.stop()
    thread.join(20)


def ask(served: PageServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    sent = None if body is None else json.dumps(body)
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)) as connection:
        connection.request(method, path, sent, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.read()


def test_the_page_and_its_modules_are_behind_the_token(running: PageServer) -> None:
    cookie = f"regard-map-{running.port}={running.token.text}"
    assert ask(running, "GET", "/")[0] == 401
    status, page = ask(running, "GET", "/", cookie=cookie)
    assert status == 200
    assert b'src="main.js"' in page
    for name in files():
        assert ask(running, "GET", f"/{name}", cookie=cookie)[0] == 200, name
    assert ask(running, "GET", "/chapters/../main.js", cookie=cookie)[0] == 404


def test_requests_without_sense_are_refused(running: PageServer) -> None:
    token = {"x-regard-token": running.token.text}
    assert ask(running, "POST", "/api/next", {"text": "a"})[0] == 401
    bodies: list[Any] = [
        {},
        {"text": ""},
        {"text": "a" * (LETTERS + 1)},
        {"text": 5},
        [],
        {"text": "a", "temperature": 0},
    ]
    for body in bodies:
        status, said = ask(running, "POST", "/api/next", body, **token)
        assert status == 400, said
    assert ask(running, "POST", "/api/other", {}, **token)[0] == 404
    assert ask(running, "POST", "/api/models", {}, **token) == (200, b'{"loaded": []}')


def test_a_request_that_waits_is_given_up_when_its_page_goes_on() -> None:
    live, stop = Live(), Stop()
    with live._lock:
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                live.answer("heads", {"text": "a cat"}, stop)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        stop.set()
        thread.join(20)
    assert [type(error) for error in failed] == [Stopped]


def test_heads_are_those_of_see(get_model: Callable[[str], Path]) -> None:
    get_model("minilm")
    text = "The cat sat on the mat"
    answer = Live().answer("heads", {"text": text, "layer": 2}, Stop())
    own = regard.see(text, show=False)[2]
    weights = np.frombuffer(base64.b64decode(answer["weights"]), "<f2").reshape(12, 8, 8)
    assert np.abs(weights - np.asarray(own[0])).max() < 1e-3
    assert answer["tokens"][0] == "[CLS]"
    with pytest.raises(RequestError, match="64 fit here"):
        Live().answer("heads", {"text": "a " * 100, "layer": 0}, Stop())


def test_next_tokens_and_heads_that_are_off(get_model: Callable[[str], Path]) -> None:
    get_model("smollm2")
    live, body = (
        Live(),
        {"text": "The capital of Italy is", "temperature": 50, "top_k": 5, "off": [[0, 1, 0], [7, 2, 0]]},
    )
    answer = live.answer("next", body, Stop())
    model: Any = regard.models.load("smollm2")
    ids = model.tokens(body["text"])
    with torch.no_grad():
        before = model(ids)[0, -1].float() / 0.5
        ablate = regard.interventions.Ablate()
        with regard.intervene(model, ablate, layers=0, heads=1), regard.intervene(model, ablate, layers=7, heads=2):
            after = model(ids)[0, -1].float() / 0.5
    assert len(answer["next"]) == 5
    for name, logits in (("before", before), ("after", after)):
        likeliest = logits.topk(5).values.softmax(-1)[0]
        assert max(each[name] for each in answer["next"]) == pytest.approx(float(likeliest), abs=1e-4)
    with pytest.raises(RequestError, match="no head 9"):
        live.answer("next", body | {"off": [[0, 9, 0]]}, Stop())


def test_the_command_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "play.html"
    assert main(["play", "--export", str(path)]) == 0
    assert "<title>Attention playground</title>" in path.read_text(encoding="utf-8")
    assert main(["play", "--export", str(path), "--port", "8000"]) != 0
    assert "serve nothing" in capsys.readouterr().err


def test_a_notebook_gets_a_frame() -> None:
    text = Playground()._repr_html_()
    assert text.startswith("<iframe sandbox=")
    assert "Attention playground" in text
