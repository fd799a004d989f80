"""Where models are kept."""

from pathlib import Path

from regard.inspection.files import cache_folder


def shelf() -> Path:
    """The folder that holds one folder per model. It need not exist yet."""
    return cache_folder() / "models"
