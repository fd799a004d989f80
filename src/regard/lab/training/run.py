"""train: the loop. One thread, because small matrices gain nothing from two and the numbers then never depend on it."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from regard.inspection.files import replace, sweep
from regard.lab.setting import machine
from regard.lab.training import shelf
from regard.lab.training.interrupt import Interrupt
from regard.lab.training.lock import only_one
from regard.lab.training.state import State, fill, named, read, write
from regard.lab.training.task import Task
from regard.lab.training.trained import Trained
from regard.progress import report

WEIGHTS, CHECKPOINT, RECORD = "model.safetensors", "checkpoint.safetensors", "record.json"
EVERY = 5.0  # seconds between checkpoints


def train(task: Task) -> Trained:
    """The task's model, trained: from the cache, from where a killed run came to, or from the start.

    All three give the same numbers to the last bit. Ctrl-C ends the step that runs and leaves a checkpoint.
    """
    folder = shelf.folder(task)
    if (folder / WEIGHTS).exists():
        return _kept(task, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"cannot write to {error.filename or folder}: {error.strerror}; set REGARD_CACHE to a folder that you may "
            "write to"
        ) from error
    with only_one(folder):
        if not (folder / WEIGHTS).exists():
            _trained(task, folder)
    return _kept(task, folder)


def _trained(task: Task, folder: Path) -> None:
    """Go through the steps that are left and put the weights down."""
    sweep(folder)
    with _alone(), torch.random.fork_rng(devices=[]), Interrupt() as interrupt:
        state = _begun(task, folder)
        _loop(task, state, folder, interrupt)
    record = {
        "name": task.name,
        "settings": shelf.settings(task),
        "versions": shelf.versions(),
        "machine": machine(),
        "seconds": state.seconds,
        "curve": state.curve,
    }
    replace(folder / RECORD, (json.dumps(record, ensure_ascii=False, indent=1) + "\n").encode())
    write(folder / WEIGHTS, {f"model/{name}": tensor for name, tensor in named(state.model).items()}, record)
    (folder / CHECKPOINT).unlink(missing_ok=True)


def _kept(task: Task, folder: Path) -> Trained:
    """What a finished training left."""
    tensors, record = read(folder / WEIGHTS)
    with torch.random.fork_rng(devices=[]):
        model = task.model()
    fill(model, folder / WEIGHTS, tensors)
    return Trained(task, model.eval(), tuple(record["curve"]), record)


def _begun(task: Task, folder: Path) -> State:
    """The state to go on from: a new one, or that of the checkpoint."""
    torch.manual_seed(task.seed)
    model = task.model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    state = State(model, optimizer, torch.Generator().manual_seed(task.seed))
    if (folder / CHECKPOINT).exists():
        state.load(folder / CHECKPOINT)
    return state


def _loop(task: Task, state: State, folder: Path, interrupt: Interrupt) -> None:
    saved = last = time.monotonic()
    while state.step < task.steps:
        loss = _step(task, state)
        now = time.monotonic()
        state.seconds, last = state.seconds + now - last, now
        report(f"training {task.name}, loss {loss:.3f}", state.step - 1, task.steps, "steps")
        if interrupt.asked or now - saved > EVERY:
            state.save(folder / CHECKPOINT)
            saved = time.monotonic()
        if interrupt.asked:
            raise KeyboardInterrupt(f"stopped after step {state.step}; the next run goes on from there")


def _step(task: Task, state: State) -> float:
    """One step, and a point of the curve if one is due."""
    for group in state.optimizer.param_groups:
        group["lr"] = task.rate_at(state.step)
    loss = task.loss(state.model, state.generator)
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    state.step += 1
    found = float(loss.detach())
    state.since += found
    if task.looked_at(state.step):
        steps = state.step - (int(state.curve[-1]["step"]) if state.curve else 0)
        state.model.eval()
        with torch.no_grad():
            seen = task.look(state.model)
        state.model.train()
        state.curve.append({"step": state.step, "loss": state.since / steps, **seen})
        state.since = 0.0
    return found


@contextmanager
def _alone() -> Iterator[None]:
    """One thread for the block."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
