"""Files: atomic writes, and the folder for cached files."""

import errno
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from platformdirs import user_cache_path

if sys.platform != "win32":
    import fcntl

STALE = 60.0  # seconds without a change after which an unlocked part file is one that a killed process left
ELSEWHERE = "write to another place"
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)


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


def _short(path: Path) -> Path:
    """Relative to the working directory, if it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


@contextmanager
def beside(path: str | os.PathLike[str], elsewhere: str = ELSEWHERE) -> Iterator[Path]:
    """A new path in the folder of a file, to be written in the block. It replaces the file when the block ends without
    an error, after it is synced to disk; otherwise it is removed.

    Part files that killed processes left in the folder are removed first. `elsewhere` is the advice of an error.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {_short(path.parent)}; make it first")
    try:
        sweep(path.parent)
        part, descriptor = _locked_part(path.parent)
        try:
            yield part
            with part.open("rb") as file:
                os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                shutil.copymode(path, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
            if descriptor >= 0:
                os.close(descriptor)
        if os.name == "posix":  # sync the folder too, so that the new name is on disk
            try:
                descriptor = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                if error.errno not in _NO_FOLDER_SYNC:
                    raise
    except OSError as error:
        if error.errno is None or error.strerror is None:  # already explained
            raise
        advice = f"make room on the disk, or {elsewhere}" if error.errno in _FULL else elsewhere
        explained = type(error)(f"cannot write {_short(path)}: {error.strerror}; {advice}")
        explained.errno = error.errno
        raise explained from error


def _locked_part(folder: Path) -> tuple[Path, int]:
    """A new file, and the descriptor that locks it until it is closed; −1 on Windows, which renames no open file."""
    while True:
        part = folder / f".regard-{secrets.token_hex(8)}.part"
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        if sys.platform == "win32":
            os.close(descriptor)
            return part, -1
        try:
            with suppress(OSError):  # a file system without locks: `sweep` gets none either
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # a `sweep` may have it for a moment, and remove the file
            if os.fstat(descriptor).st_nlink:
                return part, descriptor
        except BaseException:
            part.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove part files that killed processes left: they are not locked, and did not change for `STALE` seconds."""
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
        for name in names:
            if name.startswith(".regard-") and name.endswith(".part"):
                with suppress(OSError):
                    _remove_stale(folder / name)


def _remove_stale(part: Path) -> None:
    assert sys.platform != "win32"
    descriptor = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if time.time() - os.fstat(descriptor).st_mtime > STALE:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """`REGARD_CACHE`, or the cache folder of this system. It need not exist yet."""
    chosen = os.environ.get("REGARD_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    place = user_cache_path("regard", appauthor=False)
    # a relative XDG_CACHE_HOME is to be ignored; platformdirs did not before 4.11
    return place if place.is_absolute() else Path.home() / ".cache" / "regard"
