"""Processes of a ring for tests: torch is imported once, and every process is forked from here.

Reads one JSON command a line, {"do": name, …arguments}, has every process run the function of that name in `duties` or
`trials`, and answers with a line of what each returned: {"value": …}, {"error": …} or {"died": signal}. With "alone"
and "world" new processes do it, which then end.
"""

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TextIO

import torch
import torch.distributed as dist
import torch.fx.experimental.symbolic_shapes  # the first gradient imports it: before the fork, once is enough

from tests.engine.ring import duties, trials

DUTIES = {**vars(duties), **vars(trials)}

TIMEOUT = timedelta(seconds=120)


class Process:
    """A forked process that runs commands; with `folder` it joins a process group."""

    def __init__(self, rank: int, world: int, folder: str, others: list["Process"]) -> None:
        self.rank, self.world, self.folder = rank, world, folder
        self.commands: TextIO
        self.answers: TextIO
        command, answer = os.pipe(), os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            for other in others:  # or their pipes would stay open when they end
                other.commands.close()
                other.answers.close()
            os.close(command[1])
            os.close(answer[0])
            self._live(os.fdopen(command[0]), os.fdopen(answer[1], "w"))
        os.close(command[0])
        os.close(answer[1])
        self.commands, self.answers = os.fdopen(command[1], "w"), os.fdopen(answer[0])

    def _live(self, commands: TextIO, answers: TextIO) -> None:
        torch.set_num_threads(1)
        os.dup2(2, 1)  # gloo of torch 2.9 prints who is connected, where the first process answers
        joined = False
        for line in commands:
            told = json.loads(line)
            if not joined:
                store = torch._C._distributed_c10d.FileStore(f"{self.folder}/store", self.world)
                dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world, timeout=TIMEOUT)
                joined = True
            try:
                answer: dict[str, Any] = {"value": DUTIES[told.pop("do")](**told)}
            except BaseException as error:
                answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
            print(json.dumps(answer), file=answers, flush=True)
        os._exit(0)

    def tell(self, command: dict[str, Any]) -> None:
        """Send a command."""
        print(json.dumps(command), file=self.commands, flush=True)

    def answer(self) -> dict[str, Any]:
        """Wait for what it returns."""
        line = self.answers.readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        return {"died": os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])}

    def end(self) -> None:
        """Let it leave; reaped so that none is left over."""
        self.commands.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return


@contextmanager
def world(size: int) -> Iterator[list[Process]]:
    """Processes of a group of their own."""
    with tempfile.TemporaryDirectory() as folder:
        processes: list[Process] = []
        for rank in range(size):
            processes.append(Process(rank, size, folder, processes))
        try:
            yield processes
        finally:
            for process in processes:
                process.end()


def together(processes: list[Process], command: dict[str, Any]) -> list[dict[str, Any]]:
    """Have all of them do the same."""
    for process in processes:
        process.tell(command)
    return [process.answer() for process in processes]


def main() -> None:
    """Serve commands until there are no more."""
    with world(int(sys.argv[1])) as lasting:
        for line in sys.stdin:
            command = json.loads(line)
            if command.pop("alone", False):
                size = command.pop("world")
                begun = time.monotonic()
                with world(size) as some:
                    found = together(some, command)
                found = [{**answer, "seconds": time.monotonic() - begun} for answer in found]
            else:
                found = together(lasting, command)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
