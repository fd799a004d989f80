"""Every chapter for people who do not see it, do not use a pointer, or asked for less motion."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.playground.document import PAGE

SOURCES = [path.read_text(encoding="utf-8") for path in sorted((PAGE / "chapters").glob("*.js"))]
NAMES = re.findall(r'^  name: "([\w-]+)",$', "\n".join(SOURCES), re.MULTILINE)
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")

# What axe finds, whatever its impact. Its rule skip-link is off: on a page whose links all begin with # it takes those
# to chapters that are scrolled out of the list for links that skip something.
RUN_AXE = """async () => {
  const rules = { "skip-link": { enabled: false } };
  const { violations } = await axe.run(document, { resultTypes: ["violations"], rules });
  const line = ({ id, impact }, { html }) => `${impact} ${id}: ${html.slice(0, 160)}`;
  return violations.flatMap((found) => found.nodes.map((node) => line(found, node)));
}"""

# Everything that can have the focus, in the order of the document.
CONTROLS = """() => {
  const all = document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]');
  window.controls = [...all].filter((element) => !element.disabled && element.checkVisibility());
  return window.controls.length;
}"""

# Which of them has it, and its name unless that can be seen: an outline, or the ring of a handle, inside of the window.
FOCUS = """() => {
  const element = document.activeElement, box = element.getBoundingClientRect();
  const ring = element.querySelector(".finger"), { outlineStyle, outlineWidth } = getComputedStyle(element);
  const marked = ring ? getComputedStyle(ring).stroke !== "none" : outlineStyle !== "none" && outlineWidth !== "0px";
  const seen = marked && box.bottom > 0 && box.top < innerHeight;
  return { at: window.controls.indexOf(element), unseen: seen ? null : element.outerHTML.slice(0, 120) };
}"""

# What invites a pointer and cannot have the focus.
POINTER_ONLY = """() => [...document.querySelectorAll("main *")].filter((element) =>
  ["grab", "pointer", "crosshair", "ew-resize"].includes(getComputedStyle(element).cursor)
  && !element.closest('a, button, summary, label, input, select, [tabindex="0"]')
).map((element) => element.outerHTML.slice(0, 120))"""

# What moves by itself, or would when it changes.
MOVING = """() => {
  const moves = ({ animationName, transitionDuration, scrollBehavior }) => animationName !== "none"
    || transitionDuration.split(", ").some((each) => parseFloat(each) > 0) || scrollBehavior === "smooth";
  const found = [...document.querySelectorAll("*")].filter((element) => moves(getComputedStyle(element)));
  return [...document.getAnimations().map(String), ...found.map((element) => element.outerHTML.slice(0, 120))];
}"""


def work_through(chapter: Any) -> None:
    """Predict, open all that opens, and check an exercise with wrong answers."""
    chapter.page.locator(".option").first.click()
    if chapter.page.locator(".steps").count():
        chapter.set(step=3)
    for field in chapter.page.locator(".exercise input[type=text]").all():
        field.fill("987")
    for check in chapter.page.locator(".exercise").get_by_role("button", name="Check").all():
        check.click()
    chapter.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    chapter.settle()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 400), ("light", 400), ("dark", 1400)])
def test_axe_finds_nothing(open_chapter: Callable[..., Any], name: str, scheme: str, width: int) -> None:
    chapter = open_chapter(name, width=width, color_scheme=scheme, reduced_motion="reduce")
    chapter.page.evaluate(AXE)
    assert chapter.page.evaluate(RUN_AXE) == []
    work_through(chapter)
    assert chapter.page.evaluate(RUN_AXE) == []


def test_axe_finds_what_is_wrong(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("")
    chapter.page.evaluate(AXE)
    chapter.page.evaluate("document.querySelector('.lead').style.color = '#ccc'")
    chapter.page.evaluate("document.querySelector('.tool').removeAttribute('aria-label')")
    chapter.page.evaluate("document.querySelector('.tool').removeAttribute('title')")
    found = chapter.page.evaluate(RUN_AXE)
    assert {line.split(":")[0] for line in found} == {"serious color-contrast", "critical button-name"}


@pytest.mark.parametrize("name", NAMES)
def test_tab_reaches_everything_in_order(open_chapter: Callable[..., Any], name: str) -> None:
    chapter = open_chapter(name, "&step=3", width=1400)
    chapter.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    count = chapter.page.evaluate(CONTROLS)
    reached = []
    for _ in range(count):
        chapter.page.keyboard.press("Tab")
        reached.append(chapter.page.evaluate(FOCUS))
    assert [each["at"] for each in reached] == list(range(count))
    assert [each["unseen"] for each in reached if each["unseen"]] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_dragged_moves_with_the_arrow_keys(open_chapter: Callable[..., Any], name: str) -> None:
    chapter = open_chapter(name)
    assert chapter.page.evaluate(POINTER_ONLY) == []
    for handle in chapter.page.locator('.stage [role="slider"]:visible').all():
        before, stayed = chapter.state, True
        handle.focus()
        for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"):
            chapter.page.keyboard.press(key)
            chapter.settle()
            stayed = stayed and chapter.state == before
        assert not stayed, handle.get_attribute("aria-label")


def test_the_focus_goes_to_the_chapter(open_chapter: Callable[..., Any]) -> None:
    """By the link that skips the list, and where the link to the next chapter went away with its chapter."""
    chapter = open_chapter("")
    focused = "document.activeElement.id"
    chapter.page.keyboard.press("Tab")
    assert chapter.page.locator(".skip").bounding_box()["y"] >= 0
    chapter.page.keyboard.press("Enter")
    assert chapter.page.evaluate(focused) == "chapter"
    chapter.page.keyboard.press("Tab")
    assert chapter.page.evaluate("document.activeElement.classList.contains('option')")
    chapter.page.locator(".ends a").last.focus()
    chapter.page.keyboard.press("Enter")
    chapter.page.locator(f'main[data-chapter="{NAMES[1]}"]').wait_for()
    assert chapter.page.evaluate(focused) == "chapter"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_moves_for_who_asked_for_less_motion(open_chapter: Callable[..., Any], name: str) -> None:
    chapter = open_chapter(name, reduced_motion="reduce")
    assert chapter.page.evaluate(MOVING) == []
    work_through(chapter)
    assert chapter.page.evaluate(MOVING) == []
    assert chapter.page.get_by_role("button", name="play", exact=True).count() == 0


def test_with_motion_something_moves(open_chapter: Callable[..., Any]) -> None:
    assert open_chapter("tricks", reduced_motion="no-preference").page.evaluate(MOVING) != []
