"""Small trainings: resumed after a kill with the same numbers, cached by a hash of what decides them.

A `Task` says what is trained and how; `train` gives it back trained, from the cache if it was trained before. The loop
uses one thread: small matrices gain nothing from more, and the numbers then never depend on their count.
"""

import hashlib
import inspect
import json
import math
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from regard.checks import whole
from regard.inspection import tensor_file
from regard.inspection.files import beside, cache_folder, replace, sweep
from regard.lab.cost import one_thread
from regard.lab.setting import machine
from regard.progress import report

WEIGHTS, CHECKPOINT, RECORD = "model.safetensors", "checkpoint.safetensors", "record.json"
EVERY = 5.0  # seconds between checkpoints
PACKAGE = Path(__file__).parents[1]
CODE = ("spec", "engine", "nn")  # folders whose code every training runs, as this file
Point = dict[str, float]


@dataclass(frozen=True)
class Task(ABC):
    """The fields are the settings: with the versions they decide every number. They are hashed, so JSON must hold them.

    The learning rate rises to `rate` over the first steps, a share `rise` of all, and falls to 0 along a cosine. The
    curve has `looks` points.
    """

    seed: int
    steps: int
    rate: float
    rise: float
    looks: int

    def __post_init__(self) -> None:
        whole("steps", self.steps, least=1)
        whole("looks", self.looks, least=1)

    @property
    @abstractmethod
    def name(self) -> str:
        """What progress and files call it."""

    @abstractmethod
    def model(self) -> nn.Module:
        """The untrained model; torch's own generator has been seeded."""

    @abstractmethod
    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """The loss on a batch that the generator draws."""

    def look(self, model: nn.Module) -> dict[str, float]:
        """What a point of the curve holds besides its step and the loss; it may draw no random numbers."""
        return {}

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising = min(1.0, (step + 1) / max(1.0, self.rise * self.steps))
        return self.rate * rising * (1 + math.cos(math.pi * step / self.steps)) / 2


@dataclass(frozen=True)
class Trained:
    """`curve` has `step`, `loss` (the mean since the last point) and the numbers of `Task.look` at each point.

    `record` holds the settings, seed, versions and machine, and the seconds that the steps took.
    """

    task: Task
    model: nn.Module
    curve: tuple[Point, ...]
    record: dict[str, Any]

    def column(self, name: str) -> list[float]:
        """One number of every point of the curve; points without it are left out."""
        return [point[name] for point in self.curve if name in point]


@dataclass
class State:
    """What the next step needs: `since` is the sum of the losses after the last point of the curve."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    step: int = 0
    since: float = 0.0
    seconds: float = 0.0
    curve: list[Point] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write everything; the file is there whole or not at all."""
        tensors = {f"model/{name}": tensor for name, tensor in named(self.model).items()}
        for name, parameter in self.model.named_parameters():
            for part, tensor in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer/{name}/{part}"] = tensor
        tensors["random/generator"], tensors["random/torch"] = self.generator.get_state(), torch.get_rng_state()
        values = {"step": self.step, "since": self.since, "seconds": self.seconds, "curve": self.curve}
        write(path, tensors, values)

    def load(self, path: Path) -> None:
        """Continue from a file that `save` wrote."""
        tensors, values = read(path)
        fill(self.model, path, tensors)
        for name, parameter in self.model.named_parameters():
            if parts := _below(f"optimizer/{name}/", tensors):
                self.optimizer.state[parameter] = parts
        try:
            self.generator.set_state(tensors["random/generator"])
            torch.set_rng_state(tensors["random/torch"])
            self.step, self.since, self.seconds = values["step"], values["since"], values["seconds"]
            self.curve = values["curve"]
        except (KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"{path} is no checkpoint ({error}); delete it, and the training begins anew") from error


def named(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, each once, however many layers share it."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def fill(model: nn.Module, path: Path, tensors: dict[str, Tensor]) -> None:
    """Copy the weights of a file into the model."""
    weights, saved = named(model), _below("model/", tensors)
    if {name: each.shape for name, each in weights.items()} != {name: each.shape for name, each in saved.items()}:
        raise ValueError(f"the weights of {path} are not those of this model; delete the file")
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(saved[name])


def write(path: Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """A safetensors file with JSON and checksums in its header."""
    with beside(path, "set REGARD_CACHE to a folder that you may write to") as part:
        tensor_file.write(part, {"regard": json.dumps(values)}, tensors)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and values that `write` wrote, in memory of their own."""
    try:
        file = tensor_file.mapped(path)
        file.verify()
        return {name: tensor.clone() for name, tensor in file.tensors.items()}, json.loads(file.texts["regard"])
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it, and the training begins anew") from error


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
    shared = (path for name in CODE for path in sorted((PACKAGE / name).rglob("*.py")))
    for path in (Path(__file__), *shared, *own):
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
