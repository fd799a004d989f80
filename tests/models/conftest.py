"""Made-up wheels in a folder that pip takes for its index, a cache of their own, and tiny GGUF files."""

import base64
import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from regard.models.catalog import Model, Recipe, Unpacked

FILES = {"config.json": b"{}\n", "model.safetensors": bytes(range(256)) * 4096, "part/more.txt": "ä".encode()}

MakeModel = Callable[..., Model]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that holds the models of one test."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the package index there is."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in (
        ("PIP_CONFIG_FILE", os.devnull),
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", folder.as_uri()),
        ("PIP_NO_CACHE_DIR", "1"),
    ):
        monkeypatch.setenv(name, value)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def make_model(index: Path) -> MakeModel:
    """`make_model(files, recipe)`: a wheel with these files in its folder `data`, and the model that names it."""

    def make(files: Mapping[str, bytes] = FILES, recipe: Recipe | None = None, **changed: Any) -> Model:
        wheel = write_wheel(index, {f"tiny_model/data/{name}": content for name, content in files.items()})
        facts: dict[str, Any] = {
            "name": "tiny",
            "what": "a made-up model",
            "license": "MIT",
            "package": "tiny-model",
            "version": "1.0",
            "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
            "download": wheel.stat().st_size,
            "disk": sum(map(len, files.values())),
            "recipe": recipe or Unpacked("tiny_model/data", tuple(files)),
        }
        return Model(**(facts | changed))

    return make


def write_wheel(folder: Path, files: Mapping[str, bytes]) -> Path:
    """tiny_model 1.0 with these files and what else a wheel must have."""
    info = "tiny_model-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: regard\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_record_hash(content)},{len(content)}\n" for name, content in files.items())
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


def _record_hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
