"""Bundle: the page's modules as one, for a notebook, where a module has no neighbors to import from.

Each module becomes a function that is called once and returns what it exports. The page's files keep to the few forms
of import and export that are read here; anything else is refused, not guessed.
"""

import re
from functools import cache

from regard.map.page import assets

ENTRY = "widget.js"
_IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "\./([\w.-]+)";\n', re.MULTILINE)
_DECLARED = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_LISTED = re.compile(r"export\s*\{([^}]*)\};?\s*$")
_DEFAULT = re.compile(r"^export default ([^;]+);\s*$", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


@cache
def script() -> str:
    """The notebook's module: its default export has `render`, as anywidget wants it."""
    parts: dict[str, str] = {}
    _add(ENTRY, parts)
    return "\n".join([*parts.values(), f"export default {_name(ENTRY)}.default;\n"])


def style() -> str:
    """The style sheet."""
    return assets()["map.css"].content.decode()


def _add(file: str, parts: dict[str, str]) -> None:
    """A module after those that it imports, each once."""
    if file in parts:
        return
    text = assets()[file].content.decode()
    for _, _, other in _IMPORT.findall(text):
        _add(other, parts)
    parts[file] = _wrapped(file, text)


def _wrapped(file: str, text: str) -> str:
    exported = {name: name for name in _DECLARED.findall(text)}
    text = _DECLARED.sub("", _IMPORT.sub(_taken, text))
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


def _taken(found: re.Match[str]) -> str:
    names, whole, file = found.groups()
    if whole:
        return f"const {whole} = {_name(file)};\n"
    pairs = [_renamed(each) for each in names.split(",") if each.strip()]
    return f"const {{ {', '.join(f'{before}: {after}' for before, after in pairs)} }} = {_name(file)};\n"


def _renamed(text: str) -> tuple[str, str]:
    """("a", "b") of "a as b", ("a", "a") of "a"."""
    before, _, after = text.strip().partition(" as ")
    return before, after or before


def _name(file: str) -> str:
    return "module_" + re.sub(r"\W", "_", file.removesuffix(".js"))
