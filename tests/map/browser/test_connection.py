"""A server that goes away and comes back, the address of a view, and what the page says about the weights."""

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from regard.inspection.matrix import AttentionMatrix
from regard.map import CaptureView, demo
from regard.map.serve import listening
from regard.map.server import MapServer
from regard.pages.guard import AccessToken
from tests.map.browser.conftest import PATIENCE, Served, serving

if TYPE_CHECKING:
    from tests.map.browser.conftest import Opener


def restarted(before: MapServer, view: CaptureView, token: AccessToken) -> Served:
    """Another server on the same port."""
    running = MapServer(view, listening(before.port), token)
    threading.Thread(target=running.run, daemon=True).start()
    return Served(view, running)


def test_a_restart_with_the_same_token_goes_on(open_map: "Opener") -> None:
    view = demo.view(600)
    sock = listening(0)
    running = MapServer(view, sock)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    seen = open_map(Served(view, running), "head=1&at=300,200,4&row=300")
    address = seen.page.url
    running.stop()
    thread.join(PATIENCE)
    sock.close()
    seen.page.evaluate("window.regardMap.set({ head: 2 })")
    notice = seen.page.locator(".notice.trouble")
    notice.wait_for()
    assert "The server does not answer" in notice.inner_text()
    assert "{" not in notice.inner_text()
    notice.get_by_role("button", name="Reconnect").click()
    seen.page.wait_for_timeout(200)
    assert notice.is_visible()
    again = restarted(running, view, running.token)
    notice.get_by_role("button", name="Reconnect").click()
    seen.settle()
    assert not notice.is_visible()
    assert seen.colors() > 8
    seen.page.goto("about:blank")
    seen.page.goto(address)  # the address of the view, without the token
    seen.settle()
    assert (seen.state("view()")["head"], seen.state("view()")["row"]) == (1, 300)
    again.running.stop()
    seen.complaints[:] = [text for text in seen.complaints if "ERR_CONNECTION" not in text]


def test_another_token_is_said(open_map: "Opener") -> None:
    view = demo.view(600)
    sock = listening(0)
    running = MapServer(view, sock)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    seen = open_map(Served(view, running))
    running.stop()
    thread.join(PATIENCE)
    sock.close()
    again = restarted(running, view, AccessToken())
    seen.page.evaluate("window.regardMap.set({ head: 2 })")
    notice = seen.page.locator(".notice.trouble")
    notice.wait_for()
    assert "open the address that it printed" in notice.inner_text()
    assert not notice.get_by_role("button").is_visible()
    seen.page.reload()
    assert "Open the address that regard printed: it holds the token." in seen.page.locator("body").inner_text()
    again.running.stop()
    seen.complaints[:] = [text for text in seen.complaints if "401" not in text and "ERR_CONN" not in text]


def test_the_address_of_a_view_is_copied(open_map: "Opener", few: Served) -> None:
    seen = open_map(few, "head=2&row=3", permissions=["clipboard-read", "clipboard-write"])
    seen.page.get_by_role("button", name="Copy the address of this view").click()
    seen.page.locator(".toast").wait_for()
    copied = seen.page.evaluate("navigator.clipboard.readText()")
    assert copied == f"http://127.0.0.1:{few.running.port}/#head=2&row=3"


def test_what_is_unusual_is_said(open_map: "Opener") -> None:
    weights = AttentionMatrix.from_weights(torch.full((3, 6, 6), 1 / 3))
    view = replace(CaptureView.of(weights), notes=("<b>own.npy</b>: rows do not sum to 1",))
    for served in serving(view):
        seen = open_map(served)
        note = seen.page.get_by_role("note")
        assert note.inner_text() == "<b>own.npy</b>: rows do not sum to 1"
        note.get_by_role("button").click()
        assert not note.is_visible()
        assert seen.page.locator(".key").inner_text().split("\n")[0] == "1× = uniform over the visible keys"


def test_colors_stay_when_exact_levels_come(open_map: "Opener") -> None:
    """The estimate misses the needle; its color is the last of a scale that stays, until the whole is asked for."""
    for served in serving(demo.view(9000)):
        seen = open_map(served, f"head={demo.HEADS.index('needle')}")
        before = seen.state("view()")
        seen.settle("exact")
        seen.page.wait_for_timeout(100)
        seen.settle()
        after = seen.state("view()")
        assert (before["low"], before["high"]) == (after["low"], after["high"])
        seen.page.keyboard.press("0")
        seen.settle()
        assert seen.state("view()")["high"] >= after["high"]


def test_numbers_with_separators(open_map: "Opener", small: Served) -> None:
    seen = open_map(small)
    for text, options in (
        ("12,345", ["Go to query 12,345", "Go to key 12,345", "Go to query 12, key 345"]),
        ("12,345, 6,789", ["Go to query 12,345, key 6,789"]),
        ("12,345 6.789", ["Go to query 12,345, key 6,789"]),
        ("12345;6789", ["Go to query 12,345, key 6,789"]),
        ("1 2", ["Go to query 1, key 2"]),
    ):
        seen.page.keyboard.press("Escape")
        seen.page.keyboard.press("f")
        seen.page.keyboard.type(text)
        seen.page.locator(".found").wait_for()
        seen.settle()
        found = [each for each in seen.page.get_by_role("option").all_inner_texts() if each.startswith("Go")]
        assert found == options, text


def test_a_phrase_is_found_across_tokens(open_map: "Opener", few: Served) -> None:
    seen = open_map(few)
    seen.page.keyboard.press("f")
    seen.page.keyboard.type("Brown Foxes jump")
    seen.page.locator(".found").wait_for()
    seen.settle()
    assert "1 place among the keys" in seen.page.locator(".found").inner_text()
    first = seen.page.get_by_role("option").first
    assert first.locator(".hit").all_inner_texts() == ["brown", "fox", "…es", "jumped"]
    first.click()
    seen.settle()
    assert seen.state("view()")["column"] == 3
