"""The repository itself: reviewed by repo-review, no traces of one machine, short files, pins that agree."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from repo_review.processor import process

import regard

ROOT = Path(__file__).parents[1]
LONGEST = 400
PROSE = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LOG.md"]

# A folder that exists on one machine only, at the start of a path. In pieces, so that this file passes.
MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(?:" + "|".join(["work", "root", "home", "tmp", "opt"]) + r")/")


def repository_files() -> list[Path]:
    """Every file that is, or would be, under version control."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and a clone: an unpacked archive does not say which files are its own")
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def text_files() -> list[tuple[str, str]]:
    """(path, text) of the files that are text."""
    found = []
    for path in repository_files():
        try:
            found.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pins() -> dict[str, str]:
    """Name to version in constraints.txt; names with dashes, as in a requirement."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def test_repo_review_has_no_complaint() -> None:
    review = process(ROOT)
    assert len(review.results) > 40
    assert [f"{check.name}: {check.description}" for check in review.results if check.result is False] == []


def test_every_ignored_review_check_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name in pyproject()["tool"]["repo-review"]["ignore"]:
        assert re.search(rf'# {name}: .+\n\s*"{name}"', text), f"{name} is ignored without a reason above it"


def test_no_machine_paths() -> None:
    assert [
        f"{name}:{number} {line.strip()}"
        for name, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ] == []


def test_machine_paths_are_recognized() -> None:
    folder = "tmp"
    assert MACHINE_PATH.search(f"open('/{folder}/out.svg')")
    assert not MACHINE_PATH.search(f"https://example.org/{folder}/out.svg")
    assert not MACHINE_PATH.search(f"build/{folder}/out.svg")


def test_files_are_short() -> None:
    long = {
        name: lines
        for name, text in text_files()
        if name.startswith(("src/", "tests/", "native/")) and name.endswith((".py", ".h", ".cpp"))
        if (lines := text.count("\n")) > LONGEST
    }
    assert long == {}


def test_everything_asked_for_is_pinned() -> None:
    project = pyproject()
    extras = project["project"]["optional-dependencies"].values()
    groups = project["dependency-groups"].values()
    asked = [*project["project"]["dependencies"], *(item for group in [*extras, *groups] for item in group)]
    names = {re.split(r"[\[<>=!~ ]", item)[0] for item in asked} - {"regard"}
    assert names - set(pins()) == set()


def test_the_version_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, release, *_ = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", changelog, re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = [re.search(rf"^{key}: (\S+)$", citation, re.MULTILINE) for key in ("version", "date-released")]
    assert unreleased == ("Unreleased", "")
    assert release[0] == regard.__version__
    assert release == tuple(found and found[1] for found in cited)


def test_hooks_use_the_pinned_tools() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    revisions = dict(re.findall(r"repo: https://github\.com/\S+/(\S+)\n\s+rev: v(\S+)", hooks))
    assert revisions["ruff-pre-commit"] == pins()["ruff"]
    assert revisions["mirrors-mypy"] == pins()["mypy"]
    for name, version in re.findall(r"([\w-]+)==([\w.]+)", hooks):
        assert pins()[name] == version


@pytest.mark.parametrize(
    "name", [*PROSE, *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md"))]
)
def test_links_between_documents_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []
