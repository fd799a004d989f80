"""run_all: many experiments in processes of their own, one for each core; timed experiments run alone."""

import multiprocessing as mp
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from regard import lab
from regard.lab.report import Report
from regard.progress import Progress, report, reporting

INTERVAL = 0.1  # seconds between two progress messages of one process
GRACE = 10.0  # seconds that an interrupted process has to write a checkpoint


@dataclass(frozen=True)
class Failed:
    """An experiment that gave no report, and why."""

    name: str
    reason: str


Outcome = Report | Failed
Then = Callable[[Report], object]


@dataclass(frozen=True)
class _Worker:
    name: str
    process: BaseProcess
    messages: Connection


def run_all(
    names: Sequence[str], *, quick: bool = False, seed: int = 0, then: Then | None = None
) -> Generator[Outcome]:
    """Run the experiments in processes of their own, and yield each outcome as it arrives.

    Those of `lab.TIMED` come first and one by one, with all threads. An experiment that raises is `Failed`, and the
    others go on. `then` is called with each report in the process that made it.
    """
    timed = [name for name in names if name in lab.TIMED]
    # the trained ones are last in the list and take longest
    others = [name for name in reversed(names) if name not in lab.TIMED]
    done = 0
    for waiting, slots in ((timed, 1), (others, max(1, os.cpu_count() or 1))):
        workers: list[_Worker] = []
        try:
            while waiting or workers:
                while waiting and len(workers) < slots:
                    threads = max(1, torch.get_num_threads() // slots)
                    workers.append(_start(waiting.pop(0), quick, seed, then, threads))
                for worker, message in _receive(workers):
                    if isinstance(message, str):
                        report(message, done, len(names), "experiments")
                        continue
                    workers.remove(worker)
                    done += 1
                    yield message
        except KeyboardInterrupt:  # the processes receive it too
            until = time.monotonic() + GRACE
            for worker in workers:
                worker.process.join(max(0.0, until - time.monotonic()))
            raise
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.process.join()
                worker.messages.close()


def _start(name: str, quick: bool, seed: int, then: Then | None, threads: int) -> _Worker:
    context = mp.get_context("spawn")  # a forked torch may hang
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, name, quick, seed, then, threads), name=f"regard lab {name}")
    process.start()
    sender.close()  # so that the receiver ends with the process
    return _Worker(name, process, receiver)


def _work(sender: Connection, name: str, quick: bool, seed: int, then: Then | None, threads: int) -> None:
    """Run one experiment in a process; send progress as strings and the outcome last."""
    torch.set_num_threads(threads)
    last = 0.0

    def send(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > INTERVAL:
            last = time.monotonic()
            sender.send(f"{name}: {progress}")

    outcome: Outcome
    with suppress(KeyboardInterrupt, BrokenPipeError):  # the parent received the same Ctrl-C, or is gone
        try:
            with reporting(send):
                outcome = lab.run(name, quick=quick, seed=seed)
            if then is not None:
                then(outcome)
        except Exception as error:
            outcome = Failed(name, f"{type(error).__name__}: {error}")
        sender.send(outcome)


def _receive(workers: Sequence[_Worker]) -> Iterator[tuple[_Worker, Outcome | str]]:
    """Messages of the processes: progress or an outcome; a process that ends without an outcome has failed."""
    by_connection = {worker.messages: worker for worker in workers}
    for connection in wait(list(by_connection)):
        assert isinstance(connection, Connection)
        worker = by_connection[connection]
        try:
            message: Outcome | str = connection.recv()
        except EOFError:
            worker.process.join()
            message = Failed(worker.name, f"the process ended with code {worker.process.exitcode}")
        if not isinstance(message, str):
            worker.process.join()
        yield worker, message
