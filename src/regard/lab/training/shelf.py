"""Where trainings are kept, and what makes two of them the same."""

import hashlib
import inspect
import json
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from regard.inspection.files import cache_folder
from regard.lab.training.task import Task

PACKAGE = Path(__file__).parents[2]
THROUGH = ("spec", "engine", "nn", "lab/training")  # folders whose code every training runs through


def folder(task: Task) -> Path:
    """The folder of a training: another one for other settings, versions or code. It need not exist yet."""
    decides = {"settings": settings(task), "versions": versions(), "code": _code(inspect.getfile(type(task)))}
    key = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "trainings" / f"{task.name.replace(' ', '-')}-{key[:16]}"


def settings(task: Task) -> dict[str, Any]:
    """The task by name and fields."""
    return {"task": f"{type(task).__module__}.{type(task).__qualname__}", **asdict(task)}


def versions() -> dict[str, str]:
    """Of what computes the numbers."""
    return {"regard": version("regard"), "torch": torch.__version__}


@cache
def _code(file: str) -> str:
    """A digest of the code that a training runs through, and of the folder of its task."""
    found = hashlib.sha256()
    for place in (*(PACKAGE / name for name in THROUGH), Path(file).parent):
        for path in sorted(place.rglob("*.py")):
            found.update(path.relative_to(place).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()
