"""Link: messages between the processes of a group, counted, and an error with a name if one of them is gone."""

import queue
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from regard.engine.ring.peers import PeerWatch, RingPeerLost

GONE = ("closed by peer", "connection reset", "broken pipe", "connection refused", "socket closed", "epipe")
LOOK = 0.02  # seconds between looks at the watch
GRACE = 3.0  # seconds in which messages may still come that a process sent before it ended
NAMED = 2.0  # seconds that the watch has to say who was lost, once a message has failed


Jobs = queue.SimpleQueue[tuple[list[Any], list[BaseException], threading.Event] | None]


NEVER = 1 << 20  # the tag of a message that is never sent


class Pending:
    """Messages under way."""

    def __init__(self, link: "Link", works: list[Any], kept: list[Tensor]) -> None:
        self._link, self._works, self._kept = link, works, kept

    def wait(self) -> None:
        """Until all have arrived and left."""
        if self._works:
            self._link.finish(self._works)
        self._works, self._kept = [], []


class Link:
    """The processes of a group, this one's place among them, and the bytes that it has sent."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = weakref.ref(group)  # the link ends with its group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.ranks = dist.get_process_group_ranks(group)
        backend = str(dist.get_backend(group))
        self.waits = "nccl" not in backend  # there, waiting is an order to the GPU
        self.device = torch.device("cpu" if self.waits else "cuda")
        self.sent = 0
        self._broken: RingPeerLost | None = None
        self._jobs: Jobs = queue.SimpleQueue()
        self.watch: PeerWatch | None = None
        self.watch = self._watch() if self.world > 1 else None
        if self.waits:
            worker = threading.Thread(target=_work, args=(self._jobs,), name="regard ring", daemon=True)
            worker.start()
        weakref.finalize(self, _end, self._jobs, self.watch, worker if self.waits else None).atexit = False

    def start(self, sends: Iterable[tuple[int, Tensor]], receives: Iterable[tuple[int, Tensor]]) -> Pending:
        """Set messages under way to and from ranks of the group; empty ones do not exist."""
        if self._broken is not None:
            raise self._broken
        kept, operations = [], []
        for kind, messages in ((dist.isend, sends), (dist.irecv, receives)):
            for rank, tensor in messages:
                if tensor.numel() == 0:
                    continue
                kept.append(tensor)
                operations.append(dist.P2POp(kind, tensor, self.ranks[rank], self.group))
                self.sent += tensor.nbytes if kind is dist.isend else 0
        if not operations:
            return Pending(self, [], [])
        try:
            return Pending(self, dist.batch_isend_irecv(operations), kept)
        except RuntimeError as error:
            raise self._named(error) from error

    def finish(self, works: list[Any]) -> None:
        """Wait, on another thread: this one looks out for lost processes, and answers Ctrl-C."""
        if not self.waits:
            for work in works:
                work.wait()
            return
        failed: list[BaseException] = []
        done = threading.Event()
        self._jobs.put((works, failed, done))
        noticed: float | None = None
        while not done.wait(LOOK):
            if noticed is None and self.lost is not None:
                noticed = time.monotonic()
            if noticed is not None and time.monotonic() > noticed + GRACE:
                lost = self._given_up()
                done.wait(GRACE)  # or a thread that still waits would be met by the end of the program
                raise lost
        if failed:
            raise self._named(failed[0]) from failed[0]

    @contextmanager
    def bound(self) -> Iterator[None]:
        """Work that the others wait for: a process that fails in it leaves the ring, and they are told at once.

        If it stayed, they would wait for as long as it lives, and messages that were under way would meet later calls.
        """
        try:
            yield
        except BaseException:
            if self._broken is None:
                self._broken = RingPeerLost(
                    "this process left the ring when a call failed half-way; start all processes again"
                )
                if self.watch is not None:
                    self.watch.close()
                self._close()
            raise

    @property
    def group(self) -> dist.ProcessGroup:
        """The group."""
        found = self._group()
        if found is None:
            raise RuntimeError("the process group of this ring was destroyed; make a new one, and a new Ring")
        return found

    @property
    def lost(self) -> int | None:
        """The first process that was lost."""
        return None if self.watch is None else self.watch.lost

    def _named(self, error: BaseException) -> BaseException:
        """The error of a lost process if it is that; a timeout of the group stays what it is."""
        text = str(error).lower()
        if not any(word in text for word in GONE) and not isinstance(error, OSError):
            return error
        until = time.monotonic() + NAMED
        while self.watch is not None and self.lost is None and time.monotonic() < until:
            time.sleep(LOOK)
        return self._given_up()

    def _given_up(self) -> RingPeerLost:
        """The error; no process waits for this one any longer, and this one for none."""
        who = "a process" if self.lost is None else f"process {self.lost}"
        self._broken = RingPeerLost(f"{who} of the ring was lost: it ended or failed while others needed it")
        self._close()
        return self._broken

    def _close(self) -> None:
        """What times out closes all connections of a group of gloo, which nothing else does."""
        for other in self.ranks if self.waits else ():
            with suppress(RuntimeError, ValueError):
                work = dist.irecv(torch.empty(1, device="cpu", dtype=torch.float32), other, self.group, NEVER)
                assert work is not None
                work.wait(timedelta(milliseconds=1))
        if not self.waits:
            self.group.abort()

    def _watch(self) -> PeerWatch:
        """The watch, once all are there: how long to wait for the slow is the group's affair."""
        try:
            dist.barrier(self.group)
            return PeerWatch(self.rank, self.world, self._from_first)
        except (RuntimeError, OSError) as error:
            raise self._named(error) from error

    def _from_first(self, said: Tensor) -> Tensor:
        """The bytes of rank 0 on every process."""
        said = said.to(self.device)
        dist.broadcast(said, self.ranks[0], self.group)
        return said.cpu()


def _work(jobs: Jobs) -> None:
    """Wait for messages, one batch after another."""
    while (job := jobs.get()) is not None:
        works, failed, done = job
        try:
            for work in works:
                work.wait()
        except BaseException as error:
            failed.append(error)
        done.set()
        del works, job


def _end(jobs: Jobs, watch: PeerWatch | None, worker: threading.Thread | None) -> None:
    """A worker that frees torch's messages while the interpreter ends would abort the process: wait for it."""
    jobs.put(None)
    if worker is not None and worker is not threading.current_thread():
        worker.join(1.0)
    if watch is not None:
        watch.close()


_links: "weakref.WeakKeyDictionary[dist.ProcessGroup, Link]" = weakref.WeakKeyDictionary()


def link_of(group: dist.ProcessGroup) -> Link:
    """The link of a group, made by all of its processes together when they first need it."""
    if group not in _links:
        _links[group] = Link(group)
    return _links[group]
