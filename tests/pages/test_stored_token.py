"""Stored tokens: the same after a restart, private, and replaced when they are old or others could have read them."""

import os
import stat
import time
from pathlib import Path

import pytest

from regard.pages.stored_token import DAYS, stored_token


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


def test_a_token_stays(folder: Path) -> None:
    token = stored_token("map-8000")
    assert len(token) == 43
    assert stored_token("map-8000") == token
    assert stored_token("map-8001") != token
    assert sorted(path.name for path in folder.iterdir()) == ["map-8000", "map-8001"]
    fresh = stored_token("map-8000", new=True)
    assert fresh != token
    assert stored_token("map-8000") == fresh


@pytest.mark.skipif(os.name != "posix", reason="files have no such permissions there")
def test_only_its_user_can_read_it(folder: Path) -> None:
    token = stored_token("map")
    before = os.umask(0)
    try:
        assert stat.S_IMODE((folder / "map").stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "map").chmod(0o644)
        assert stored_token("map") != token
        assert stat.S_IMODE((folder / "map").stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_a_link_is_replaced(folder: Path, tmp_path: Path) -> None:
    token = stored_token("map")
    (folder / "map").rename(tmp_path / "elsewhere")
    (folder / "map").symlink_to(tmp_path / "elsewhere")
    assert stored_token("map") != token
    assert not (folder / "map").is_symlink()
    assert (tmp_path / "elsewhere").read_text() == token


@pytest.mark.parametrize("content", ["", "short", "x" * 44, "é" * 43, "a" * 42 + "\n"])
def test_a_damaged_one_is_replaced(folder: Path, content: str) -> None:
    stored_token("map")
    (folder / "map").write_text(content, encoding="utf-8")
    assert len(stored_token("map")) == 43


def test_an_old_one_is_replaced(folder: Path) -> None:
    token = stored_token("map")
    for days, kept in ((DAYS - 1, True), (DAYS + 1, False)):
        past = time.time() - days * 86400
        os.utime(folder / "map", (past, past))
        assert (stored_token("map") == token) == kept
