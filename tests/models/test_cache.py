"""The cache folder: the variable first, then what each system has for such files."""

import sys
from pathlib import Path

import pytest

from regard.models.cache import shelf


def test_the_variable_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert shelf() == tmp_path / "models"


def test_a_relative_one_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", "here")
    assert shelf() == tmp_path / "here" / "models"


@pytest.mark.parametrize(
    "platform, variable, value, expected",
    [
        ("linux", "XDG_CACHE_HOME", None, "~/.cache/regard/models"),
        ("linux", "XDG_CACHE_HOME", "/somewhere", "/somewhere/regard/models"),
        ("linux", "XDG_CACHE_HOME", "not/absolute", "~/.cache/regard/models"),
        ("darwin", "XDG_CACHE_HOME", "/somewhere", "~/Library/Caches/regard/models"),
        ("win32", "LOCALAPPDATA", "/local", "/local/regard/Cache/models"),
        ("win32", "LOCALAPPDATA", None, "~/AppData/Local/regard/Cache/models"),
    ],
)
def test_otherwise_the_system_decides(
    monkeypatch: pytest.MonkeyPatch, platform: str, variable: str, value: str | None, expected: str
) -> None:
    monkeypatch.setenv("REGARD_CACHE", "")
    monkeypatch.setattr(sys, "platform", platform)
    if value is None:
        monkeypatch.delenv(variable, raising=False)
    else:
        monkeypatch.setenv(variable, value)
    assert shelf() == Path(expected).expanduser()
