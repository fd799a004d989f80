"""train: the training loop, its cache, and what happens on Ctrl-C or when several processes want the same training.

The loop uses one thread: small matrices gain nothing from more, and the numbers then never depend on their count.
"""

import hashlib
import inspect
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from regard.inspection.files import cache_folder, replace, sweep
from regard.lab.cost import one_thread
from regard.lab.setting import machine
from regard.lab.training.state import State, fill, named, read, write
from regard.lab.training.task import Task, Trained
from regard.progress import report

WEIGHTS, CHECKPOINT, RECORD = "model.safetensors", "checkpoint.safetensors", "record.json"
EVERY = 5.0  # seconds between checkpoints
PACKAGE = Path(__file__).parents[2]
CODE = ("spec", "engine", "nn", "lab/training")  # folders whose code every training runs


def train(task: Task) -> Trained:
    """The task's model, trained: from the cache, from the checkpoint of a killed run, or from the start.

    All three give the same numbers to the last bit. On Ctrl-C the current step is finished and a checkpoint is written.
    """
    folder = training_folder(task)
    if not (folder / WEIGHTS).exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"cannot write to {error.filename or folder}: {error.strerror}; set REGARD_CACHE to a folder that you "
                "may write to"
            ) from error
        with _locked(folder):
            if not (folder / WEIGHTS).exists():
                _run(task, folder)
    tensors, record = read(folder / WEIGHTS)
    with torch.random.fork_rng(devices=[]):
        model = task.model()
    fill(model, folder / WEIGHTS, tensors)
    return Trained(task, model.eval(), tuple(record["curve"]), record)


def training_folder(task: Task) -> Path:
    """The cache folder of a training: another one for other settings, versions or code. It need not exist yet."""
    decides = {"settings": _settings(task), "versions": versions(), "code": code_hash(inspect.getfile(type(task)))}
    key = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "trainings" / f"{task.name.replace(' ', '-')}-{key[:16]}"


def _settings(task: Task) -> dict[str, Any]:
    return {"task": f"{type(task).__module__}.{type(task).__qualname__}", **asdict(task)}


def versions() -> dict[str, str]:
    """Versions of the packages that compute the numbers."""
    return {"regard": version("regard"), "torch": torch.__version__}


@cache
def code_hash(file: str) -> str:
    """A digest of the code that every training runs, and of a task's file or, if the experiment has one, its folder."""
    task = Path(file)
    own = [task] if task.parent == PACKAGE / "lab" else sorted(task.parent.rglob("*.py"))
    digest = hashlib.sha256()
    for path in (*(path for name in CODE for path in sorted((PACKAGE / name).rglob("*.py"))), *own):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder: other processes wait. The lock of a killed process is released. Windows has no such lock."""
    if os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _run(task: Task, folder: Path) -> None:
    """Run the steps that are left and write the weights."""
    sweep(folder)
    with one_thread(), torch.random.fork_rng(devices=[]), _deferred_interrupt() as interrupts:
        torch.manual_seed(task.seed)
        model = task.model().train()
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=task.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        state = State(model, optimizer, torch.Generator().manual_seed(task.seed))
        if (folder / CHECKPOINT).exists():
            state.load(folder / CHECKPOINT)
        saved = last = time.monotonic()
        while state.step < task.steps:
            loss = _step(task, state)
            now = time.monotonic()
            state.seconds, last = state.seconds + now - last, now
            report(f"training {task.name}, loss {loss:.3f}", state.step - 1, task.steps, "steps")
            if interrupts or now - saved > EVERY:
                state.save(folder / CHECKPOINT)
                saved = time.monotonic()
            if interrupts:
                raise KeyboardInterrupt(f"stopped after step {state.step}; the next run goes on from there")
    record = {
        "name": task.name,
        "settings": _settings(task),
        "versions": versions(),
        "machine": machine(),
        "seconds": state.seconds,
        "curve": state.curve,
    }
    replace(folder / RECORD, (json.dumps(record, ensure_ascii=False, indent=1) + "\n").encode())
    write(folder / WEIGHTS, {f"model/{name}": tensor for name, tensor in named(state.model).items()}, record)
    (folder / CHECKPOINT).unlink(missing_ok=True)


@contextmanager
def _deferred_interrupt() -> Iterator[list[int]]:
    """In the block, the first Ctrl-C is only added to the list; a second one interrupts at once.

    A handler that the program has installed stays. Outside the main thread nothing changes.
    """
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            signal.default_int_handler(number, frame)
        received.append(number)

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield received
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _step(task: Task, state: State) -> float:
    """Run one step and give its loss; add a point to the curve if one is due."""
    for group in state.optimizer.param_groups:
        group["lr"] = task.rate_at(state.step)
    loss = task.loss(state.model, state.generator)
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    state.step += 1
    value = float(loss.detach())
    state.since += value
    if state.step == task.steps or state.step % max(1, task.steps // task.looks) == 0:
        steps = state.step - (int(state.curve[-1]["step"]) if state.curve else 0)
        state.model.eval()
        with torch.no_grad():
            measured = task.look(state.model)
        state.model.train()
        state.curve.append({"step": state.step, "loss": state.since / steps, **measured})
        state.since = 0.0
    return value
