"""Stored tokens: a server on a port that its user chose has the same token after a restart, so its addresses last."""

import os
import re
import secrets
import stat
import time
from pathlib import Path

from regard.inspection.files import cache_folder

DAYS = 30  # after which a token is replaced
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


def stored_token(name: str, *, new: bool = False) -> str:
    """The token under this name, in a file that only its user can read; made if there is none, or with `new`.

    A file that others could have read or written, or that is older than a month, is replaced.
    """
    folder = cache_folder() / "tokens"
    path = folder / name
    token = None if new else _read(path)
    if token is not None:
        return token
    token = secrets.token_urlsafe(32)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f"{name}.{secrets.token_hex(8)}"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return token


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_LINKS)
    except OSError:
        return None
    with os.fdopen(descriptor, "r", encoding="ascii", errors="replace") as file:
        status = os.fstat(descriptor)
        text = file.read(100)
    private = os.name != "posix" or (status.st_uid == os.getuid() and not status.st_mode & 0o077)
    recent = 0 <= time.time() - status.st_mtime < DAYS * 86400
    usable = private and recent and stat.S_ISREG(status.st_mode) and _TOKEN.fullmatch(text) is not None
    return text if usable else None
