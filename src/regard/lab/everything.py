"""everything: many experiments, as many at once as there are cores; those that hold a stopwatch run alone."""

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

SPEAK = 0.1  # seconds between two words of one process
GRACE = 10.0  # seconds that a process has to put a checkpoint down


@dataclass(frozen=True)
class Failed:
    """An experiment that gave no report, and why."""

    name: str
    reason: str


Outcome = Report | Failed
Then = Callable[[Report], object]


def nothing(report: Report) -> None:
    """Leave a report as it is."""


@dataclass(frozen=True)
class _Worker:
    name: str
    process: BaseProcess
    ear: Connection


def everything(
    names: Sequence[str],
    *,
    quick: bool = False,
    seed: int = 0,
    then: Then = nothing,
) -> Generator[Outcome]:
    """Run the experiments in processes of their own; what each found, as it is found.

    Those of `lab.TIMED` come first and one by one, with all threads. An experiment that raises is `Failed`, and the
    others go on. `then` takes each report in the process that made it.
    """
    alone = [name for name in names if name in lab.TIMED]
    # the trained ones stand last in the list and take longest
    beside = [name for name in reversed(names) if name not in lab.TIMED]
    done = 0
    for waiting, places in ((alone, 1), (beside, max(1, os.cpu_count() or 1))):
        workers: list[_Worker] = []
        try:
            while waiting or workers:
                while waiting and len(workers) < places:
                    workers.append(_started(waiting.pop(0), quick, seed, then, threads=_threads(places)))
                for worker, found in _heard(workers):
                    if isinstance(found, str):
                        report(found, done, len(names), "experiments")
                        continue
                    workers.remove(worker)
                    done += 1
                    yield found
        except KeyboardInterrupt:  # the processes have heard it too
            _checkpointed(workers)
            raise
        finally:
            _ended(workers)


def _threads(places: int) -> int:
    return max(1, torch.get_num_threads() // places)


def _started(name: str, quick: bool, seed: int, then: Then, *, threads: int) -> _Worker:
    context = mp.get_context("spawn")  # a forked torch may hang
    ear, mouth = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(mouth, name, quick, seed, then, threads), name=f"regard lab {name}")
    process.start()
    mouth.close()  # so that the ear hears when the process is gone
    return _Worker(name, process, ear)


def _work(mouth: Connection, name: str, quick: bool, seed: int, then: Then, threads: int) -> None:
    """What the process does: it tells where it is, and at last what it found."""
    torch.set_num_threads(threads)
    spoke = 0.0

    def send(progress: Progress) -> None:
        nonlocal spoke
        if time.monotonic() - spoke > SPEAK:
            spoke = time.monotonic()
            mouth.send(f"{name}: {progress}")

    found: Outcome
    with suppress(KeyboardInterrupt, BrokenPipeError):  # the parent has heard the same Ctrl-C, or is gone
        try:
            with reporting(send):
                found = lab.run(name, quick=quick, seed=seed)
            then(found)
        except Exception as error:
            found = Failed(name, f"{type(error).__name__}: {error}")
        mouth.send(found)


def _heard(workers: Sequence[_Worker]) -> Iterator[tuple[_Worker, Outcome | str]]:
    """What the processes said: where they are, or what they found; one that is gone without a word has failed."""
    by_ear = {worker.ear: worker for worker in workers}
    for ear in wait(list(by_ear)):
        assert isinstance(ear, Connection)
        worker = by_ear[ear]
        try:
            said: Outcome | str = ear.recv()
        except EOFError:
            worker.process.join()
            said = Failed(worker.name, f"the process ended with code {worker.process.exitcode}")
        if not isinstance(said, str):
            worker.process.join()
        yield worker, said


def _checkpointed(workers: Sequence[_Worker]) -> None:
    """Wait until each has put down what it has, but not for ever."""
    until = time.monotonic() + GRACE
    for worker in workers:
        worker.process.join(max(0.0, until - time.monotonic()))


def _ended(workers: Sequence[_Worker]) -> None:
    """No process is left behind."""
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join()
        worker.ear.close()
