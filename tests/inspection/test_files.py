"""Files are replaced whole or not at all."""

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
