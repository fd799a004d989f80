"""Cache: the folder where what was fetched or computed is kept, `REGARD_CACHE` or the place this system has for it."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The folder. It need not exist yet."""
    chosen = os.environ.get("REGARD_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else _usual()


def _usual() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "regard" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "regard"
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")  # a relative one is to be ignored, says the XDG specification
    return (base if base.is_absolute() else Path.home() / ".cache") / "regard"
