"""load and save: a capture or a matrix as one safetensors file, replaced whole or not at all."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.inspection import saved_matrix as matrix
from regard.inspection.files import beside, form_of
from regard.inspection.tensor_file import CHECKSUMS, Contents, Gathered, mapped, write
from regard.spec.serialize import NotRegisteredError

if TYPE_CHECKING:
    from regard.inspection.capture.result import Capture
    from regard.inspection.matrix.handle import AttentionMatrix

VERSION = "1"


def save(path: str | os.PathLike[str], kind: str, record: Any, tensors: Gathered) -> None:
    """Write a file that `load` reads. What stood there before may be mapped, even by what is written."""
    form_of(path, ("safetensors",))
    texts = {"regard": kind, "version": VERSION, "content": json.dumps(record, allow_nan=False)}
    with beside(path) as part:
        write(part, texts, tensors.tensors)


def save_matrix(found: "AttentionMatrix", path: str | os.PathLike[str]) -> None:
    """An AttentionMatrix as a file."""
    tensors = Gathered()
    save(path, "matrix", matrix.written(found, tensors), tensors)


# what a damaged file leads to; other exceptions, such as one of a signal handler, are not about the file
DAMAGE = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def load(path: str | os.PathLike[str]) -> "Capture | AttentionMatrix":
    """What `c.save("run.safetensors")` or `A.save("head.safetensors")` wrote.

    The file is mapped: it opens at once whatever its size, and is read where a weight is asked for. The first time that
    something is asked of a layer, its tensors are compared with their checksums. The file holds no code.
    """
    from regard.inspection.capture.file import read

    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; load takes a file that c.save(...) wrote")
    found = mapped(path)
    kind, record = _content(path, found)
    try:
        return read(record, found) if kind == "capture" else matrix.read(record, found)
    except NotRegisteredError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    except DAMAGE as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{path} is damaged ({text}); save it again") from error


def _content(path: Path, found: Contents) -> tuple[str, Any]:
    """What a file says that it holds."""
    kind, version = found.texts.get("regard"), found.texts.get("version")
    if kind not in ("capture", "matrix"):
        raise ValueError(f"{path} is not a saved capture or matrix, but other tensors; write one with c.save(...)")
    if version != VERSION:
        raise ValueError(
            f"{path} is written in version {version!r} of its format and this regard reads version {VERSION!r}; "
            "read it with the regard that wrote it"
        )
    if odd := set(found.texts) - {"regard", "version", "content", CHECKSUMS}:
        raise ValueError(f"{path} is damaged (it has a text {min(odd)!r}, which no version knows); save it again")
    try:
        return kind, json.loads(found.texts.get("content", ""))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged (its description is no JSON); save it again") from error
