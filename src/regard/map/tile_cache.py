"""The tile cache: pyramids on disk between visits, one file for each head, named after its content."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.inspection.files import beside, cache_folder
from regard.inspection.tensor_file import write
from regard.map.levels import Bytes, Levels
from regard.spec.serialize import OperatorInputs, encoded, storable

FORMAT = "regard map 1"
CHUNK = 1 << 20
MOST = 4 << 30  # bytes that a tile cache holds; the oldest files go first


def usual() -> Path:
    """The folder for matrices that are in no file."""
    return cache_folder() / "maps"


def beside_file(file: Path) -> Path:
    """The folder for a saved capture."""
    return file.with_name(file.name + ".map")


class StoredPlanes:
    """Planes in a file, read where they are looked at."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, name: str, rows: slice, columns: slice) -> Bytes:
        """Some cells."""
        cells: Bytes = self._file.get_slice(name)[rows, columns]
        return cells


class TileCache:
    """A folder of pyramids."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, fingerprint: str, levels: Levels) -> StoredPlanes | None:
        """The pyramid of this content; None if there is none, or a damaged one."""
        path = self._path(fingerprint)
        try:
            file: Any = safe_open(path, "np")
            about = file.metadata() or {}
            wanted = levels.coarse_shapes
            whole = (
                about.get("format") == FORMAT
                and about.get("content") == fingerprint
                and set(file.keys()) == set(wanted)
                and all(_kind(file, name) == ("U8", size) for name, size in wanted.items())
                and about.get("digest") == _digest_of_file(path)
            )
        except (OSError, SafetensorError, ValueError):
            return None
        return StoredPlanes(file) if whole else None

    def put(self, fingerprint: str, planes: Mapping[str, Bytes]) -> None:
        """Keep a pyramid; the file is there whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        arrays = {name: np.ascontiguousarray(plane) for name, plane in sorted(planes.items())}
        about = {"format": FORMAT, "content": fingerprint, "digest": _digest(arrays)}
        with beside(self._path(fingerprint)) as part:
            write(part, about, {name: torch.from_numpy(array) for name, array in arrays.items()})
        self._trim()

    def _path(self, fingerprint: str) -> Path:
        return self._folder / f"{fingerprint}.safetensors"

    def _trim(self) -> None:
        files = sorted(self._folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True)
        total = 0
        for file in files:
            total += file.stat().st_size
            if total > MOST:
                file.unlink(missing_ok=True)


def _kind(file: Any, name: str) -> tuple[str, tuple[int, ...]]:
    part = file.get_slice(name)
    return part.get_dtype(), tuple(part.get_shape())


def _digest(arrays: Mapping[str, Bytes]) -> str:
    """Of the planes as the file has them, one after the other."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(arrays[name].data)
    return digest.hexdigest()


def _digest_of_file(path: Path) -> str:
    """The same of the bytes behind the file's head; read chunk by chunk, so that they do not stay in memory."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def fingerprint(*parts: Any) -> str:
    """A hash of parts of a spec, tensors and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Tensor):
            _add_tensor(digest, part)
            continue
        inputs = OperatorInputs([], [], [])
        text = encoded(part, inputs) if storable(part) else repr(part)
        digest.update(f"{text} {inputs.integers} {inputs.floats};".encode())
        for tensor in inputs.tensors:
            _add_tensor(digest, tensor)
    return digest.hexdigest()


def _add_tensor(digest: Any, tensor: Tensor) -> None:
    plain = tensor.detach().cpu().contiguous()
    digest.update(f"{tuple(plain.shape)} {plain.dtype}:".encode())
    if plain.numel():
        digest.update(plain.reshape(-1).view(torch.uint8).numpy())
