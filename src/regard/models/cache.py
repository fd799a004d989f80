"""Where models are kept: `REGARD_CACHE`, or the place this system has for such files."""

import os
import sys
from pathlib import Path


def shelf() -> Path:
    """The folder that holds one folder per model. It need not exist yet."""
    chosen = os.environ.get("REGARD_CACHE")
    return (Path(chosen).expanduser().absolute() if chosen else _usual()) / "models"


def _usual() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "regard" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "regard"
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")  # a relative one is to be ignored, says the XDG specification
    return (base if base.is_absolute() else Path.home() / ".cache") / "regard"
