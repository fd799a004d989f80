"""The manifest of a model's folder, `regard.json`: what it was made from, and size and SHA-256 of every file."""

import hashlib
import json
from pathlib import Path
from typing import Any

from regard.progress import report

NAME = "regard.json"
_CHUNK = 1 << 20


def write(folder: Path, origin: str) -> None:
    """Describe every file of a folder that was just made."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = _hashes(paths)
    files = {
        path.relative_to(folder).as_posix(): {"sha256": sha256, **_stamp(path)}
        for path, sha256 in zip(paths, hashes, strict=True)
    }
    text = json.dumps({"origin": origin, "files": files}, indent=2) + "\n"
    (folder / NAME).write_text(text, encoding="utf-8")


def flaw(folder: Path, origin: str, *, thorough: bool) -> str | None:
    """What is wrong with the folder, or None.

    A thorough look reads every byte. The other one trusts a file whose size and time are those of the manifest.
    """
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        origin_found, files = found["origin"], {str(name): dict(entry) for name, entry in found["files"].items()}
    except FileNotFoundError:
        return f"{NAME} is missing"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return f"{NAME} cannot be read"
    if origin_found != origin:
        return "it was made from another version"
    return _missing(folder, files) or _changed(folder, files, thorough)


def _missing(folder: Path, files: dict[str, Any]) -> str | None:
    for name, entry in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (size := path.stat().st_size) != entry.get("size"):
            return f"{name} has {size} bytes, it had {entry.get('size')}"
    return None


def _changed(folder: Path, files: dict[str, Any], thorough: bool) -> str | None:
    suspects = [name for name, entry in files.items() if thorough or _stamp(folder / name)["time"] != entry.get("time")]
    hashes = _hashes([folder / name for name in suspects])
    for name, sha256 in zip(suspects, hashes, strict=True):
        if sha256 != files[name].get("sha256"):
            return f"{name} has changed"
    return None


def _stamp(path: Path) -> dict[str, int]:
    found = path.stat()
    return {"size": found.st_size, "time": found.st_mtime_ns}


def _hashes(paths: list[Path]) -> list[str]:
    total, done, found = sum(path.stat().st_size for path in paths), 0, []
    for path in paths:
        hashed = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                report("checking", done, total, "bytes")
                hashed.update(chunk)
                done += len(chunk)
        found.append(hashed.hexdigest())
    return found
