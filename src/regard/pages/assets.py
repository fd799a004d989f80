"""The files of a page: a fixed table, read once, or its JavaScript modules as one.

No path that anyone sends reaches the file system.
"""

import posixpath
import re
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

CONTENT_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


SHARED = Path(__file__).with_name("shared")  # modules that several pages use, below shared/ in each
_IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "(\.{1,2}/[\w./-]+)";\n', re.MULTILINE)
_DECLARED = re.compile(r"^export (?=(?:async function|function\*?|class|const) (\w+))", re.MULTILINE)
_LISTED = re.compile(r"export\s*\{([^}]*)\};?\s*$")
_DEFAULT = re.compile(r"^export default ([^;]+);\s*$", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


class Asset(NamedTuple):
    """The bytes of a file and their content type."""

    content: bytes
    content_type: str


@cache
def assets(folder: Path) -> dict[str, Asset]:
    """Every file of a page by its path below the folder, and what all pages share below shared/."""
    return {
        prefix + path.relative_to(root).as_posix(): Asset(path.read_bytes(), CONTENT_TYPES[path.suffix])
        for root, prefix in ((folder, ""), (SHARED, "shared/"))
        for path in sorted(root.rglob("*"))
        if path.suffix in CONTENT_TYPES and path.is_file()
    }


def bundle(files: Mapping[str, Asset], entry: str) -> str:
    """The module `entry` and all that it imports as one module, for a notebook, where modules cannot import each other.

    Each module becomes a function that is called once and returns what it exports. The files keep to the few forms of
    import and export that are read here; any other raises a ValueError.
    """
    return "\n".join([*_modules(files, entry), f"export default {_name(entry)}.default;\n"])


def script(files: Mapping[str, Asset], entry: str) -> str:
    """The same as a script that runs `entry`, for a document of one file: its names are its own."""
    return "\n".join(['"use strict";', "(() => {", *_modules(files, entry), "})();\n"])


def _modules(files: Mapping[str, Asset], entry: str) -> list[str]:
    parts: dict[str, str] = {}
    _add(entry, files, parts)
    return list(parts.values())


def _add(file: str, files: Mapping[str, Asset], parts: dict[str, str]) -> None:
    """A module after those that it imports, each once."""
    if file in parts:
        return
    text = files[file].content.decode()
    for _, _, other in _IMPORT.findall(text):
        _add(_resolved(file, other), files, parts)
    parts[file] = _wrapped(file, text)


def _resolved(file: str, other: str) -> str:
    """The path of a module that `file` imports: "chapters/a.js" and "../dom.js" give "dom.js"."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), other))


def _wrapped(file: str, text: str) -> str:
    exported = {name: name for name in _DECLARED.findall(text)}
    text = _DECLARED.sub("", _IMPORT.sub(partial(_assignment, file), text))
    if listed := _LISTED.search(text):
        exported |= {after: before for before, after in map(_renamed, listed[1].split(","))}
        text = text[: listed.start()]
    if default := _DEFAULT.search(text):
        exported["default"] = default[1]
        text = _DEFAULT.sub("", text)
    if left := _LEFT.search(text):
        raise ValueError(f"{file} has a form that cannot be bundled: {left[0]}")
    given = ", ".join(f"{after}: {before}" for after, before in exported.items())
    return f"const {_name(file)} = (() => {{\n{text}\nreturn {{ {given} }};\n}})();"


def _assignment(file: str, statement: re.Match[str]) -> str:
    names, whole, other = statement.groups()
    module = _name(_resolved(file, other))
    if whole:
        return f"const {whole} = {module};\n"
    pairs = [_renamed(each) for each in names.split(",") if each.strip()]
    return f"const {{ {', '.join(f'{before}: {after}' for before, after in pairs)} }} = {module};\n"


def _renamed(text: str) -> tuple[str, str]:
    """("a", "b") of "a as b", ("a", "a") of "a"."""
    before, _, after = text.strip().partition(" as ")
    return before, after or before


def _name(file: str) -> str:
    return "module_" + re.sub(r"\W", "_", file.removesuffix(".js"))
