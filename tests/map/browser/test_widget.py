"""The same page in a notebook: one module, questions over the comm."""

import base64
from typing import TYPE_CHECKING, Any

from playwright.sync_api import Browser

from regard.map.jobs import Stop
from regard.map.viewer import PAGE
from regard.pages.assets import assets, bundle

if TYPE_CHECKING:
    from tests.map.browser.conftest import Served

HOST = """async (script) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  const heard = [];
  const model = {
    get: () => 500,
    on: (name, call) => heard.push(call),
    off: (name, call) => heard.splice(heard.indexOf(call), 1),
    async send(message) {
      if (message.cancel) return;
      const { ok = true, body, bytes } = await window.kernel(message);
      const buffers = bytes ? [new DataView(Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)).buffer)] : [];
      for (const call of [...heard]) call({ id: message.id, ok, body }, buffers);
    },
  };
  const el = document.body.appendChild(document.createElement("div"));
  window.close = await widget.render({ model, el });
  window.heard = heard;
}"""


def test_the_widget_draws_over_the_comm(browser: Browser, small: "Served") -> None:
    """And asks again what a busy kernel has refused."""
    page = browser.new_page(viewport={"width": 900, "height": 600})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    asked: list[str] = []

    def kernel(message: dict[str, Any]) -> dict[str, Any]:
        asked.append(message["name"])
        if message["name"] == "strongest" and asked.count("strongest") == 1:
            return {"ok": False, "body": {"error": "the map is busy; ask again", "status": 429}, "bytes": ""}
        found = small.running.viewer.answer(message["name"], message["body"], Stop())
        if isinstance(found, bytes):
            return {"body": None, "bytes": base64.b64encode(found).decode()}
        return {"body": found, "bytes": ""}

    page.expose_function("kernel", kernel)
    page.add_style_tag(content=assets(PAGE)["map.css"].content.decode())
    page.evaluate(HOST, bundle(assets(PAGE), "widget.js"))
    page.wait_for_timeout(1500)
    script = """() => {
      const canvas = document.querySelector("canvas.plot"), { width, height } = canvas;
      return new Set(new Uint32Array(canvas.getContext("2d").getImageData(0, 0, width, height).data.buffer)).size;
    }"""
    assert page.evaluate(script) > 8
    assert {"info", "tiles"} <= set(asked)
    page.get_by_label("Strongest cells").first.click()
    page.locator(".found-cell").first.wait_for()
    assert asked.count("strongest") == 2
    assert page.locator(".regard-map").bounding_box() == {"x": 8, "y": 8, "width": 884, "height": 500}
    page.evaluate("window.close()")
    assert page.evaluate("window.heard.length") == 0
    assert errors == []
    page.close()
