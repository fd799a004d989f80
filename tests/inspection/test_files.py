"""Files are replaced whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from regard.inspection.files import beside, form_of, replace


def half_written(path: Path) -> None:
    with beside(path) as part:
        part.write_bytes(b"half")
        raise OSError("the disk is full")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    replace(path, b"old")
    path.chmod(0o640)
    with pytest.raises(OSError, match="full"):
        half_written(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_format_is_named_by_its_suffix() -> None:
    assert form_of("X.PNG", ("png", "svg")) == "png"
    with pytest.raises(ValueError, match="one of png, svg"):
        form_of("some/x.bmp", ("png", "svg"))


@pytest.mark.skipif(os.name != "posix", reason="needs locks of files")
def test_parts_of_killed_processes_are_removed_and_those_in_use_are_not(tmp_path: Path) -> None:
    left, young = tmp_path / ".regard-0.part", tmp_path / ".regard-1.part"
    left.touch()
    young.touch()
    os.utime(left, (0, 0))
    with beside(tmp_path / "a.txt") as part:
        part.write_bytes(b"one")
        os.utime(part, (0, 0))
        replace(tmp_path / "b.txt", b"two")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".regard-1.part", "a.txt", "b.txt"]


@pytest.mark.skipif(os.name != "posix", reason="words of the system")
def test_an_error_names_the_file_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        replace("folder", b"")
    assert str(caught.value) == "cannot write folder: Is a directory; write to another place"
    assert caught.value.errno == errno.EISDIR
    with pytest.raises(OSError, match=r"^cannot write a.txt: No space left on device; make room on the disk, or fly$"):
        filled(tmp_path / "a.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def filled(path: Path) -> None:
    with beside(path, "fly"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such locks")
def test_a_part_file_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    flock = fcntl.flock
    removed: list[Path] = []

    def late(descriptor: int, how: int) -> None:
        if not removed:
            removed.extend(tmp_path.glob(".regard-*.part"))
            removed[0].unlink()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    replace(tmp_path / "a.txt", b"new")
    assert len(removed) == 1
    assert (tmp_path / "a.txt").read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]
