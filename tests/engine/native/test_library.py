"""REGARD_LIBRARY loads another build of the shared library, and nothing else."""

import _ctypes
import shutil
from pathlib import Path

import pytest

from regard.engine.native import library as module

pytestmark = pytest.mark.skipif(module.library() is None, reason="the package was built without a compiler")


def test_another_build_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = module._path()
    assert own is not None
    other = shutil.copy(own, tmp_path / "other.so")
    monkeypatch.setenv("REGARD_LIBRARY", str(other))
    found = module._load.__wrapped__()
    assert not isinstance(found, str)
    assert found._name == str(other)
    assert found.regard_isa().decode() == module.isa()


def test_an_empty_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_LIBRARY", raising=False)
    own = module._path()
    monkeypatch.setenv("REGARD_LIBRARY", "")
    assert module._path() == own


@pytest.mark.parametrize("kind", ["missing", "folder", "text", "foreign"])
def test_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    (tmp_path / "text").write_text("no library")
    (tmp_path / "folder").mkdir()
    path = {"foreign": str(_ctypes.__file__)}.get(kind, str(tmp_path / kind))
    monkeypatch.setenv("REGARD_LIBRARY", path)
    with pytest.raises(ValueError, match="REGARD_LIBRARY must name a build of regard's shared library, got") as caught:
        module._load.__wrapped__()
    assert repr(path) in str(caught.value)
    assert "unset it, and the package's own is loaded" in str(caught.value)
