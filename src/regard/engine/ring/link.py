"""Link: counted messages between the processes of a ring, and an error with a name if one of them is gone.

Each process keeps one idle TCP connection to the process of rank 0. When a process ends, however it ends, its system
closes the connection, and rank 0 tells the others; when rank 0 ends, all see it themselves. A process that is merely
slow, or stopped, keeps its connection. Keep-alive packets, which the system answers by itself, find a machine that
is gone.
"""

import os
import queue
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PROOF = 16  # bytes by which a connection shows that it belongs to this ring
SECONDS = 5.0  # to connect, once all are there
ALIVE = (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 2))
RANK = struct.Struct("<i")
HELLO = 512  # bytes in which rank 0 says where it is to be found


class RingPeerLost(RuntimeError):
    """A process of the ring ended while others still needed it."""


class PeerWatch:
    """Knows the first process that was lost; None while all live."""

    def __init__(self, rank: int, world: int, share: Callable[[Tensor], Tensor]) -> None:
        """`share` gives all processes the bytes of rank 0."""
        self.lost: int | None = None
        self.rank, self.world = rank, world
        self._sockets = self._gathered(share) if rank == 0 else {self._connected(share): 0}
        _peer_watches.add(self)
        threading.Thread(target=self._listen, name="regard ring", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def forked(self) -> None:
        """In a child that was forked: it holds connections too, and would keep them open when the process ends."""
        for one in self._sockets:
            one.close()

    def _gathered(self, share: Callable[[Tensor], Tensor]) -> dict[socket.socket, int]:
        proof = torch.randint(0, 256, (PROOF,), dtype=torch.uint8, generator=_unseeded(), device="cpu")
        with socket.create_server(("", 0), backlog=self.world) as server:
            server.settimeout(SECONDS)
            port: int = server.getsockname()[1]
            said = ",".join([str(port), *addresses()]).encode()[: HELLO - PROOF]
            share(torch.cat([proof, torch.frombuffer(bytearray(said.ljust(HELLO - PROOF)), dtype=torch.uint8)]))
            found: dict[socket.socket, int] = {}
            until = time.monotonic() + SECONDS
            while len(found) < self.world - 1 and time.monotonic() < until:
                one, _ = server.accept()
                one.settimeout(SECONDS)
                rank = _introduced(one, bytes(proof.tolist()))
                if rank is None or not 0 < rank < self.world:
                    one.close()
                    continue
                found[_with_keepalive(one)] = rank
        if len(found) < self.world - 1:
            raise TimeoutError("not all processes of the ring reached rank 0")
        return found

    def _connected(self, share: Callable[[Tensor], Tensor]) -> socket.socket:
        said = bytes(share(torch.zeros(HELLO, dtype=torch.uint8, device="cpu")).tolist())
        port, *hosts = said[PROOF:].decode().strip().split(",")
        for host in hosts:
            try:
                one = socket.create_connection((host, int(port)), timeout=SECONDS / 4)
                one.sendall(said[:PROOF] + RANK.pack(self.rank))
                if _exactly(one, PROOF) == said[:PROOF]:
                    return _with_keepalive(one)
                one.close()
            except OSError:
                continue
        raise ConnectionError(f"process {self.rank} of the ring found rank 0 at none of {', '.join(hosts)}")

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for one, rank in self._sockets.items():
                selector.register(one, selectors.EVENT_READ, (one, rank))
            while selector.get_map():
                for key, _ in selector.select():
                    one, rank = key.data
                    said = _exactly(one, RANK.size)
                    if said is None:
                        selector.unregister(one)
                        one.close()
                    self._told(rank if said is None else RANK.unpack(said)[0])

    def _told(self, rank: int) -> None:
        """Remember the first that was lost; rank 0 passes it on."""
        if self.lost is not None:
            return
        self.lost = rank
        for one in self._sockets if self.rank == 0 else ():
            with suppress(OSError):
                one.sendall(RANK.pack(rank))


_peer_watches: "weakref.WeakSet[PeerWatch]" = weakref.WeakSet()


def _forked() -> None:
    for watch in _peer_watches:
        watch.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def addresses() -> list[str]:
    """Where this machine may be reached, the nearest first."""
    found = ["127.0.0.1"]
    with suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # no packet is sent: the system only tells which of its addresses it would use
        probe.connect(("192.0.2.1", 9))
        found.append(probe.getsockname()[0])
    return list(dict.fromkeys(found))


def _introduced(one: socket.socket, proof: bytes) -> int | None:
    """The rank of the process at the other end, None if it is none of ours."""
    try:
        if _exactly(one, PROOF) != proof:
            return None
        rank = _exactly(one, RANK.size)
        one.sendall(proof)
    except OSError:
        return None
    return None if rank is None else int(RANK.unpack(rank)[0])


def _exactly(one: socket.socket, size: int) -> bytes | None:
    """So many bytes, or None if the connection ended."""
    found = b""
    while len(found) < size:
        try:
            more = one.recv(size - len(found))
        except OSError:
            return None
        if not more:
            return None
        found += more
    return found


def _with_keepalive(one: socket.socket) -> socket.socket:
    one.settimeout(None)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in ALIVE:
        if hasattr(socket, name):
            one.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return one


def _unseeded() -> torch.Generator:
    """A generator of its own: torch's must not move."""
    generator = torch.Generator()
    generator.seed()
    return generator


GONE = ("closed by peer", "connection reset", "broken pipe", "connection refused", "socket closed", "epipe")
POLL = 0.02  # seconds between looks at the watch
GRACE = 3.0  # seconds in which messages may still come that a process sent before it ended
NAMED = 2.0  # seconds that the watch has to say who was lost, once a message has failed


WaitJobs = queue.SimpleQueue[tuple[list[Any], list[BaseException], threading.Event] | None]


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
        self._jobs: WaitJobs = queue.SimpleQueue()
        self.watch: PeerWatch | None = None
        self.watch = self._watch() if self.world > 1 else None
        if self.waits:
            worker = threading.Thread(target=_wait_for_messages, args=(self._jobs,), name="regard ring", daemon=True)
            worker.start()
        weakref.finalize(self, _end_worker, self._jobs, self.watch, worker if self.waits else None).atexit = False

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
        while not done.wait(POLL):
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
            time.sleep(POLL)
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


def _wait_for_messages(jobs: WaitJobs) -> None:
    """Wait for messages, one batch after another.

    The worker holds no message when it reports: freeing one releases and takes the GIL inside torch's destructor, and a
    daemon thread that does so while the interpreter ends aborts the process.
    """
    while (job := jobs.get()) is not None:
        works, failed, done = job
        del job
        try:
            while works:
                works.pop(0).wait()
        except BaseException as error:
            failed.append(error.with_traceback(None))
        del works
        done.set()
        del failed, done


def _end_worker(jobs: WaitJobs, watch: PeerWatch | None, worker: threading.Thread | None) -> None:
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
