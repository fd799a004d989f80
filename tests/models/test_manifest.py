"""The manifest tells a whole folder from a broken one, quickly or thoroughly."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.models import manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "deep" / "weights").write_bytes(bytes(3_000_000))
    manifest.write(tmp_path, "tiny==1")
    return tmp_path


@pytest.mark.parametrize("thorough", [False, True])
def test_a_whole_folder_has_no_flaw(folder: Path, thorough: bool) -> None:
    assert manifest.flaw(folder, "tiny==1", thorough=thorough) is None


def flip(folder: Path) -> None:
    content = bytearray((folder / "deep" / "weights").read_bytes())
    content[1_234_567] ^= 1
    time.sleep(0.01)  # so that the time of the file is another one even where the clock is coarse
    (folder / "deep" / "weights").write_bytes(content)


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize(
    "damage, text",
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "config.json").write_text(""), "config.json has 0 bytes, it had 2"),
        (flip, "deep/weights has changed"),
        (lambda folder: (folder / "regard.json").unlink(), "regard.json is missing"),
        (lambda folder: (folder / "regard.json").write_text("{"), "regard.json cannot be read"),
        (lambda folder: (folder / "regard.json").write_text("[]"), "regard.json cannot be read"),
        (
            lambda folder: (folder / "regard.json").write_text('{"origin": "", "files": 3}'),
            "regard.json cannot be read",
        ),
    ],
)
def test_each_kind_of_damage_is_named(
    folder: Path, damage: Callable[[Path], object], text: str, thorough: bool
) -> None:
    damage(folder)
    assert manifest.flaw(folder, "tiny==1", thorough=thorough) == text


def test_another_origin_is_a_flaw(folder: Path) -> None:
    assert manifest.flaw(folder, "tiny==2", thorough=False) == "it was made from another version"


def test_a_copy_with_other_times_is_as_good(folder: Path) -> None:
    os.utime(folder / "config.json", ns=(0, 0))
    assert manifest.flaw(folder, "tiny==1", thorough=False) is None


def test_a_thorough_look_does_not_trust_the_time(folder: Path) -> None:
    before = (folder / "deep" / "weights").stat().st_mtime_ns
    flip(folder)
    os.utime(folder / "deep" / "weights", ns=(before, before))
    assert manifest.flaw(folder, "tiny==1", thorough=True) == "deep/weights has changed"
