"""Cache: the folder where what was fetched or computed is kept, `REGARD_CACHE` or the place this system has for it."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """The folder. It need not exist yet."""
    chosen = os.environ.get("REGARD_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else user_cache_path("regard", appauthor=False)
