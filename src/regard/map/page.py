"""The page's files: a fixed table, read once. No path that anyone sends reaches the file system."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("page")
INDEX = "index.html"
TOKEN = b"{{token}}"  # stands in index.html where the page finds the word that it must send with every question
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


class Asset(NamedTuple):
    """The bytes of a file and what they are."""

    content: bytes
    kind: str


@cache
def assets() -> dict[str, Asset]:
    """Every file of the page by its name; the page has no folders."""
    return {
        path.name: Asset(path.read_bytes(), KINDS[path.suffix])
        for path in sorted(FOLDER.iterdir())
        if path.suffix in KINDS and path.is_file()
    }
