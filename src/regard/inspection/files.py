"""Files: replaced whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def form_of(path: str | os.PathLike[str], forms: Sequence[str]) -> str:
    """The format that the suffix of a file names, one of `forms`."""
    form = Path(path).suffix.lower().removeprefix(".")
    if form not in forms:
        raise ValueError(f"the suffix of a file names its format, one of {', '.join(forms)}; got {Path(path).name!r}")
    return form


def replace(path: str | os.PathLike[str], content: bytes) -> None:
    """Give the file this content in one step, with the permissions of the one it replaces."""
    with beside(path) as part:
        part.write_bytes(content)


def _short(folder: Path) -> Path:
    """As seen from here, if it is below."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


@contextmanager
def beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new path beside a file, to be written in the block; it takes the file's place when the block ends well, once it
    is on the disk, and is gone when it does not."""
    path = Path(os.path.realpath(path))
    part = path.with_name(f".regard-{secrets.token_hex(8)}.part")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {_short(path.parent)}; make it first")
    try:
        part.touch(exist_ok=False)
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
