"""What holds for every chapter: its form, no complaint, no request, 360 to 2560 px, names, the address, time."""

import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.lab import EXPERIMENTS
from regard.playground.document import PAGE

FILES = sorted((PAGE / "chapters").glob("*.js"))
MEGABYTES, SECONDS, FRAME = 3, 1.0, 16.0  # of the file; until it can be used; milliseconds of a frame at the median


def name_of(path: Path) -> str:
    found = re.search(r'^  name: "([\w-]+)",$', path.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, path
    return found[1]


NAMES = [name_of(path) for path in FILES]


@pytest.fixture
def chapters(open_chapter: Callable[..., Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_chapter("").page.evaluate("window.regardPlay.chapters")
    return found


def test_chapters_have_their_form(chapters: list[dict[str, Any]]) -> None:
    assert [chapter["name"] for chapter in chapters] == NAMES
    assert [chapter["number"] for chapter in chapters] == [int(path.name[:2]) for path in FILES]
    for chapter in chapters:
        assert len(chapter["text"]) == 2
        assert all(sentence.endswith(".") for sentence in chapter["text"])
        predict = chapter["predict"]
        assert 2 <= len(predict["options"]) <= 5
        assert 0 <= predict["answer"] < len(predict["options"])
        assert predict["question"].endswith("?")
        assert predict["because"].endswith(".")
        assert 3 <= len(chapter["notice"]) <= 6
        assert chapter["experiments"]


def test_commands_and_exercises_exist(open_chapter: Callable[..., Any], chapters: list[dict[str, Any]]) -> None:
    exercises = open_chapter("").page.evaluate("JSON.parse(document.getElementById('data').textContent).exercises")
    for chapter in chapters:
        for experiment in chapter["experiments"]:
            command, name, *_ = experiment["command"].removeprefix("regard ").split()
            assert command != "lab" or name in EXPERIMENTS, experiment
        if "exercise" in chapter:
            parts = exercises[str(chapter["exercise"]["number"])]["parts"]
            assert set(chapter["exercise"].get("parts", parts)) <= set(parts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, 2560])
def test_nothing_is_wider_than_the_page(open_chapter: Callable[..., Any], name: str, width: int) -> None:
    chapter = open_chapter(name, width=width, color_scheme="dark" if width == 360 else "light")
    script = """() => [...document.querySelectorAll("main *")].filter((element) => {
      const box = element.getBoundingClientRect(), scrolled = element.closest(".matrix, .task, .scroll");
      return box.width > 0 && !scrolled && (box.right > document.documentElement.clientWidth + 1 || box.left < -1);
    }).map((element) => `${element.tagName} ${element.getAttribute("class") ?? ""}`)"""
    assert chapter.page.evaluate(script) == []
    assert chapter.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", NAMES)
def test_controls_and_pictures_have_names(open_chapter: Callable[..., Any], name: str) -> None:
    chapter = open_chapter(name)
    script = """() => {
      const named = (element) => element.getAttribute("aria-label") || element.textContent.trim()
        || element.labels?.length || element.getAttribute("title") || element.getAttribute("aria-hidden") === "true";
      return [...document.querySelectorAll("button, input, select, svg[role], [role=slider], a")]
        .filter((element) => !named(element)).map((element) => element.outerHTML.slice(0, 120));
    }"""
    assert chapter.page.evaluate(script) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_address_holds_the_state(open_chapter: Callable[..., Any], name: str) -> None:
    chapter = open_chapter(name)
    first = chapter.state
    for control in chapter.page.locator('.stage input[type="range"]:visible, .stage [role="slider"]').all():
        control.focus()
        chapter.page.keyboard.press("ArrowRight")
    for button in chapter.page.locator(".stage .segmented button:visible").all():
        button.click()
    for box in chapter.page.locator('.stage input[type="checkbox"]:visible').all():
        box.click()
    chapter.settle()
    changed = chapter.state
    assert changed != first
    address = chapter.page.evaluate("location.hash")
    assert address == chapter.page.evaluate("window.regardPlay.address")
    again = open_chapter(name, address.removeprefix(f"#chapter={name}"))
    assert again.state == changed
    again.page.evaluate("location.hash = '#chapter=' + window.regardPlay.chapters[0].name")
    again.page.go_back()
    again.settle()
    assert again.state == changed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "settings", ["&tau=-1&d=1e99&keys=1;2&query=<b>&score=none&step=99", "&%ff=%zz&row=-3&seed=abc"]
)
def test_nonsense_in_the_address_is_left_out(open_chapter: Callable[..., Any], name: str, settings: str) -> None:
    chapter = open_chapter(name, settings)
    assert chapter.page.evaluate("document.querySelector('main').dataset.chapter") == name
    assert chapter.page.locator("b").count() == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_frame_is_short(open_chapter: Callable[..., Any], name: str) -> None:
    """The median over some steps of every slider and handle; the best of three, because others use this machine."""
    chapter = open_chapter(name)
    medians = []
    for key in ("ArrowRight", "ArrowLeft", "ArrowRight"):
        chapter.page.evaluate("window.regardPlay.frames.length = 0")
        for control in chapter.page.locator('.stage input[type="range"]:visible, .stage [role="slider"]').all()[:6]:
            control.focus()
            for _ in range(10):
                chapter.page.keyboard.press(key)
        chapter.settle()
        frames = chapter.page.evaluate("window.regardPlay.frames")
        if not frames:
            return  # nothing to slide
        medians.append(statistics.median(frames))
    assert min(medians) <= FRAME


def test_the_file_is_small_and_soon_ready(open_chapter: Callable[..., Any], exported: Path) -> None:
    assert exported.stat().st_size <= MEGABYTES * 1e6
    ready = min(open_chapter("").page.evaluate("window.regardPlay.ready") for _ in range(3)) / 1000
    assert ready <= SECONDS


def test_only_its_own_script_runs(open_chapter: Callable[..., Any], exported: Path) -> None:
    text = exported.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "unsafe" not in re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]  # type: ignore[index]
    chapter = open_chapter("")
    script = """() => {
      const script = document.createElement("script");
      script.textContent = "window.intruder = 1";
      document.body.append(script);
      return typeof window.intruder;
    }"""
    assert chapter.page.evaluate(script) == "undefined"
    assert len(chapter.complaints) == 1  # the policy's own
    assert "Content Security Policy" in chapter.complaints.pop()


def test_light_and_dark_and_links_between_chapters(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("", color_scheme="dark")
    assert chapter.page.evaluate("document.documentElement.dataset.theme") == "dark"
    chapter.page.get_by_role("button", name="Light or dark").click()
    assert chapter.page.evaluate("document.documentElement.dataset.theme") == "light"
    for name in NAMES[1:]:
        chapter.page.locator(".ends a").last.click()
        chapter.settle()
        assert chapter.page.evaluate("document.querySelector('main').dataset.chapter") == name


@pytest.mark.parametrize("name", NAMES)
def test_predictions_and_exercises_answer(open_chapter: Callable[..., Any], name: str) -> None:
    chapter = open_chapter(name)
    own = next(each for each in chapter.page.evaluate("window.regardPlay.chapters") if each["name"] == name)
    options = chapter.page.locator(".option")
    options.nth(own["predict"]["answer"]).click()
    assert chapter.page.locator(".said").inner_text().startswith("Yes.")
    options.nth((own["predict"]["answer"] + 1) % options.count()).click()
    assert chapter.page.locator(".said").inner_text().startswith("Not quite.")
    if "exercise" in own:
        chapter.page.get_by_role("button", name="Check").click()
        assert "nothing is filled in" in chapter.page.locator(".exercise").inner_text()
