"""The cache folder: the variable first, then what each system has for such files."""

from pathlib import Path

import platformdirs
import pytest
from platformdirs import windows
from platformdirs.api import PlatformDirsABC
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from regard.models.store import models_folder


def test_the_variable_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert models_folder() == tmp_path / "models"


def test_a_relative_one_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", "here")
    assert models_folder() == tmp_path / "here" / "models"


@pytest.mark.parametrize(
    "system, variable, value, expected",
    [
        (Unix, "XDG_CACHE_HOME", None, "~/.cache/regard/models"),
        (Unix, "XDG_CACHE_HOME", "/somewhere", "/somewhere/regard/models"),
        (Unix, "XDG_CACHE_HOME", "not/absolute", "~/.cache/regard/models"),
        (MacOS, "XDG_CACHE_HOME", None, "~/Library/Caches/regard/models"),
        (windows.Windows, "LOCALAPPDATA", "/local", "/local/regard/Cache/models"),
    ],
)
def test_otherwise_the_system_decides(
    monkeypatch: pytest.MonkeyPatch, system: type[PlatformDirsABC], variable: str, value: str | None, expected: str
) -> None:
    monkeypatch.setenv("REGARD_CACHE", "")
    monkeypatch.setattr(platformdirs, "PlatformDirs", system)
    monkeypatch.setattr(windows, "get_win_folder", windows.get_win_folder_from_env_vars)
    if value is None:
        monkeypatch.delenv(variable, raising=False)
    else:
        monkeypatch.setenv(variable, value)
    assert models_folder() == Path(expected).expanduser()
