"""The notebook's side: messages in, messages and buffers out, and the widget that carries them."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from regard.map.jobs import Stop
from regard.map.viewer import Viewer
from regard.map.views import CaptureView
from regard.map.widget import Comm

from .conftest import place


class Heard:
    """A comm that keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[tuple[dict[str, Any], list[bytes]]] = []
        self._new = threading.Condition()

    def __call__(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        with self._new:
            self.messages.append((message, buffers))
            self._new.notify_all()

    def wait(self, count: int) -> list[tuple[dict[str, Any], list[bytes]]]:
        with self._new:
            assert self._new.wait_for(lambda: len(self.messages) >= count, 20)
            return self.messages


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def comm(capture_view: CaptureView, heard: Heard) -> Iterator[Comm]:
    found = Comm(Viewer(capture_view), heard)
    yield found
    found.close()


def test_answers_carry_their_question(comm: Comm, heard: Heard, viewer: Viewer) -> None:
    comm.receive({"id": 5, "name": "info", "body": {}})
    assert heard.wait(1)[0] == ({"id": 5, "ok": True, "body": viewer.answer("info", {}, Stop())}, [])
    body = place(tiles=[[0, 0, 0]])
    comm.receive({"id": 6, "name": "tiles", "body": body})
    assert heard.wait(2)[1] == ({"id": 6, "ok": True, "body": None}, [viewer.answer("tiles", body, Stop())])


def test_what_is_wrong_is_told(comm: Comm, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    comm.receive({"id": 1, "name": "cell", "body": place(q=-1)})
    comm.receive({"id": 2, "name": "nothing", "body": {}})
    comm.receive({"id": 3, "name": "tokens", "body": 7})
    found = {message["id"]: message for message, _ in heard.wait(3)}
    assert not any(message["ok"] for message in found.values())
    assert found[1]["body"] == {"error": "q must be from 0 to 299, got -1", "status": 400}
    assert found[2]["body"]["status"] == 404
    assert "must be a JSON object" in found[3]["body"]["error"]

    def broken(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(comm._viewer, "answer", broken)
    comm.receive({"id": 4, "name": "cell", "body": {}})
    assert heard.wait(4)[3][0] == {"id": 4, "ok": False, "body": {"error": "OSError: the disk is gone", "status": 500}}


@pytest.mark.parametrize("message", [None, 3, [], {}, {"id": "x"}, {"id": True}, {"cancel": None}, {"cancel": 99}])
def test_what_is_no_message_is_let_go(comm: Comm, heard: Heard, message: object) -> None:
    comm.receive(message)
    comm.receive({"id": 1, "name": "info", "body": {}})
    assert [told["id"] for told, _ in heard.wait(1)] == [1]


def test_a_cancelled_question_is_stopped_and_not_answered(
    comm: Comm, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def slow(name: str, body: object, stop: Stop) -> Any:
        if name == "info":
            return {}
        begun.set()
        try:
            while True:
                stop.check()
                time.sleep(0.005)
        finally:
            ended.set()

    monkeypatch.setattr(comm._viewer, "answer", slow)
    comm.receive({"id": 1, "name": "cell", "body": {}})
    assert begun.wait(20)
    comm.receive({"cancel": 1})
    assert ended.wait(20)
    comm.receive({"id": 2, "name": "info", "body": {}})
    assert [told["id"] for told, _ in heard.wait(1)] == [2]


def test_more_than_may_wait_are_told_so(comm: Comm, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = threading.Event()
    monkeypatch.setattr(comm._viewer, "answer", lambda *_: (hold.wait(20), {})[1])
    for number in range(25):
        comm.receive({"id": number, "name": "cell", "body": {}})
    assert [told["body"]["status"] for told, _ in heard.wait(5)] == [429] * 5
    hold.set()
    assert len(heard.wait(25)) == 25


def test_the_widget_carries_messages(capture_view: CaptureView, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.map.widget import Map

    sent = Heard()
    monkeypatch.setattr(Map, "send", lambda self, message, buffers=None: sent(message, buffers or []))
    shown = Map(capture_view, height=500)
    assert shown.height == 500
    assert "export default" in str(shown._esm)
    assert shown._css
    shown._handle_custom_msg({"id": 1, "name": "info", "body": {}}, [])
    assert sent.wait(1)[0][0]["body"]["title"] == "a small capture view"
    shown._handle_custom_msg({"id": 2, "name": "thumbs", "body": {"layer": 0}}, [])
    assert sent.wait(2)[1][1][0][:4] == b"RGH1"
    shown.close()
    with pytest.raises(ValueError, match="height must be at least 100"):
        Map(capture_view, height=5)
