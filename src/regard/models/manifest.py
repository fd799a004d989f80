"""The manifest of a model's folder, `regard.json`: what it was made from, and size and SHA-256 of every file."""

import hashlib
import json
from pathlib import Path

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

    A thorough check reads every byte; otherwise a file whose size and time are those of the manifest is trusted.
    """
    try:
        manifest = json.loads((folder / NAME).read_text(encoding="utf-8"))
        made_from, files = manifest["origin"], {str(name): dict(entry) for name, entry in manifest["files"].items()}
    except FileNotFoundError:
        return f"{NAME} is missing"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return f"{NAME} cannot be read"
    if made_from != origin:
        return "it was made from another version"
    for name, entry in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (size := path.stat().st_size) != entry.get("size"):
            return f"{name} has {size} bytes, it had {entry.get('size')}"
    suspects = [name for name, entry in files.items() if thorough or _stamp(folder / name)["time"] != entry.get("time")]
    hashes = _hashes([folder / name for name in suspects])
    for name, sha256 in zip(suspects, hashes, strict=True):
        if sha256 != files[name].get("sha256"):
            return f"{name} has changed"
    return None


def _stamp(path: Path) -> dict[str, int]:
    status = path.stat()
    return {"size": status.st_size, "time": status.st_mtime_ns}


def _hashes(paths: list[Path]) -> list[str]:
    total, done, hashes = sum(path.stat().st_size for path in paths), 0, []
    for path in paths:
        hashed = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                report("checking", done, total, "bytes")
                hashed.update(chunk)
                done += len(chunk)
        hashes.append(hashed.hexdigest())
    return hashes
