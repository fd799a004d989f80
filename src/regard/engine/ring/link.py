"""Link: counted messages between the processes of a ring, and an error that names a process that is lost.

Each process keeps one idle TCP connection to the process of rank 0. When a process ends, for whatever reason, its
operating system closes the connection, and rank 0 notifies the others; when rank 0 ends, all notice it themselves. A
process that is slow or stopped keeps its connection. Keep-alive packets, which the operating system answers, detect a
machine that is gone.
"""

import os
import queue
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PROOF = 16  # random bytes by which a connection shows that it belongs to this ring
SECONDS = 5.0  # to connect, once all processes have started
ALIVE = (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 2))
RANK = struct.Struct("<i")
HELLO = 512  # bytes of rank 0's first message: the proof, its port and its addresses


class RingPeerLost(RuntimeError):
    """A process of the ring ended while others still needed it."""


class PeerWatch:
    """Watches the connections; `lost` is the first process that was lost, None while all live."""

    def __init__(self, rank: int, world: int, share: Callable[[Tensor], Tensor]) -> None:
        """`share` broadcasts the bytes of rank 0 to all processes."""
        self.lost: int | None = None
        self.rank, self.world = rank, world
        self.sockets = self._accepted(share) if rank == 0 else {self._connected(share): 0}
        _peer_watches.add(self)
        threading.Thread(target=self._listen, name="regard ring", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        for one in self.sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accepted(self, share: Callable[[Tensor], Tensor]) -> dict[socket.socket, int]:
        proof = os.urandom(PROOF)
        with socket.create_server(("", 0), backlog=self.world) as server:
            server.settimeout(SECONDS)
            port: int = server.getsockname()[1]
            hello = proof + ",".join([str(port), *addresses()]).encode()
            share(torch.frombuffer(bytearray(hello[:HELLO].ljust(HELLO)), dtype=torch.uint8))
            ranks: dict[socket.socket, int] = {}
            until = time.monotonic() + SECONDS
            while len(ranks) < self.world - 1 and time.monotonic() < until:
                one, _ = server.accept()
                one.settimeout(SECONDS)
                rank = _rank_of_peer(one, proof)
                if rank is None or not 0 < rank < self.world:
                    one.close()
                    continue
                ranks[_with_keepalive(one)] = rank
        if len(ranks) < self.world - 1:
            raise TimeoutError("not all processes of the ring reached rank 0")
        return ranks

    def _connected(self, share: Callable[[Tensor], Tensor]) -> socket.socket:
        hello = bytes(share(torch.zeros(HELLO, dtype=torch.uint8, device="cpu")).tolist())
        proof, (port, *hosts) = hello[:PROOF], hello[PROOF:].decode().strip().split(",")
        for host in hosts:
            try:
                one = socket.create_connection((host, int(port)), timeout=SECONDS / 4)
                one.sendall(proof + RANK.pack(self.rank))
                if _exactly(one, PROOF) == proof:
                    return _with_keepalive(one)
                one.close()
            except OSError:
                continue
        raise ConnectionError(f"process {self.rank} of the ring found rank 0 at none of {', '.join(hosts)}")

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for one, rank in self.sockets.items():
                selector.register(one, selectors.EVENT_READ, (one, rank))
            while selector.get_map():
                for key, _ in selector.select():
                    one, rank = key.data
                    message = _exactly(one, RANK.size)
                    if message is None:
                        selector.unregister(one)
                        one.close()
                    else:
                        rank = RANK.unpack(message)[0]
                    if self.lost is None:
                        self.lost = rank
                        for peer in self.sockets if self.rank == 0 else ():
                            with suppress(OSError):
                                peer.sendall(RANK.pack(rank))


_peer_watches: "weakref.WeakSet[PeerWatch]" = weakref.WeakSet()


def _close_in_child() -> None:
    """A child that kept its copies of the connections open would hide the end of this process."""
    for watch in _peer_watches:
        for one in watch.sockets:
            one.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def addresses() -> list[str]:
    """Addresses of this machine, the nearest first."""
    hosts = ["127.0.0.1"]
    with suppress(OSError):
        hosts += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # sends no packet: the operating system only chooses which of its addresses it would use
        probe.connect(("192.0.2.1", 9))
        hosts.append(probe.getsockname()[0])
    return list(dict.fromkeys(hosts))


def _rank_of_peer(one: socket.socket, proof: bytes) -> int | None:
    """The rank of the process at the other end; None if it does not belong to this ring."""
    try:
        if _exactly(one, PROOF) != proof:
            return None
        rank = _exactly(one, RANK.size)
        one.sendall(proof)
    except OSError:
        return None
    return None if rank is None else int(RANK.unpack(rank)[0])


def _exactly(one: socket.socket, size: int) -> bytes | None:
    """Read `size` bytes; None if the connection ended."""
    message = b""
    while len(message) < size:
        try:
            more = one.recv(size - len(message))
        except OSError:
            return None
        if not more:
            return None
        message += more
    return message


def _with_keepalive(one: socket.socket) -> socket.socket:
    one.settimeout(None)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in ALIVE:
        if hasattr(socket, name):
            one.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return one


GONE = ("closed by peer", "connection reset", "broken pipe", "connection refused", "socket closed", "epipe")
POLL = 0.02  # seconds between looks at the watch
GRACE = 3.0  # seconds in which messages may still arrive that a process sent before it ended
NAMED = 2.0  # seconds that the watch has to detect which process was lost, once a message has failed
WaitJobs = queue.SimpleQueue[tuple[list[Any], list[BaseException], threading.Event] | None]
NEVER = 1 << 20  # the tag of a message that is never sent


class Pending:
    """Messages under way; `tensors` are kept alive until they have been sent and received."""

    def __init__(self, link: "Link", works: list[Any], tensors: list[Tensor]) -> None:
        self._link, self._works, self._tensors = link, works, tensors

    def wait(self) -> None:
        """Wait until all messages have been sent and received."""
        if self._works:
            self._link.finish(self._works)
        self._works, self._tensors = [], []


class Link:
    """The processes of a group, this one's place among them, and the bytes that it has sent."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = weakref.ref(group)  # the link ends with its group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.ranks = dist.get_process_group_ranks(group)
        backend = str(dist.get_backend(group))
        self.waits = "nccl" not in backend  # with nccl, waiting is a command to the GPU
        self.device = torch.device("cpu" if self.waits else "cuda")
        self.sent = 0
        self._broken: RingPeerLost | None = None
        self._jobs: WaitJobs = queue.SimpleQueue()
        self.watch: PeerWatch | None = None
        if self.world > 1:
            try:
                dist.barrier(self.group)  # how long to wait for slow processes is a setting of the group
                self.watch = PeerWatch(self.rank, self.world, self._broadcast)
            except (RuntimeError, OSError) as error:
                raise self._named(error) from error
        if self.waits:
            worker = threading.Thread(target=_wait_for_messages, args=(self._jobs,), name="regard ring", daemon=True)
            worker.start()
        weakref.finalize(self, _end_worker, self._jobs, self.watch, worker if self.waits else None).atexit = False

    def start(self, sends: Iterable[tuple[int, Tensor]], receives: Iterable[tuple[int, Tensor]]) -> Pending:
        """Start sending to and receiving from ranks of the group; empty tensors are skipped."""
        if self._broken is not None:
            raise self._broken
        tensors, operations = [], []
        for kind, messages in ((dist.isend, sends), (dist.irecv, receives)):
            for rank, tensor in messages:
                if tensor.numel() == 0:
                    continue
                tensors.append(tensor)
                operations.append(dist.P2POp(kind, tensor, self.ranks[rank], self.group))
                self.sent += tensor.nbytes if kind is dist.isend else 0
        if not operations:
            return Pending(self, [], [])
        try:
            return Pending(self, dist.batch_isend_irecv(operations), tensors)
        except RuntimeError as error:
            raise self._named(error) from error

    def all_gather(self, own: Tensor, lengths: Sequence[int] | None = None) -> list[Tensor]:
        """The tensors of all processes, by rank; `lengths` are their first axes if these differ."""
        lengths = [len(own)] * self.world if lengths is None else lengths
        tensors = [own.new_empty((length, *own.shape[1:])) for length in lengths]
        others = [rank for rank in range(self.world) if rank != self.rank]
        self.start([(rank, own) for rank in others], [(rank, tensors[rank]) for rank in others]).wait()
        tensors[self.rank] = own
        return tensors

    def finish(self, works: list[Any]) -> None:
        """Wait in another thread; this one watches for lost processes and answers Ctrl-C."""
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
                lost = self._give_up()
                done.wait(GRACE)  # or the thread might still be waiting when the program ends
                raise lost
        if failed:
            raise self._named(failed[0]) from failed[0]

    @contextmanager
    def bound(self) -> Iterator[None]:
        """Around work that the others wait for: a process that fails in it leaves the ring, which they notice at once.

        If it stayed, they would wait for as long as it lives, and later calls would receive messages of this one.
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
        """The process group."""
        group = self._group()
        if group is None:
            raise RuntimeError("the process group of this ring was destroyed; make a new one, and a new Ring")
        return group

    @property
    def lost(self) -> int | None:
        """The first process that was lost; None while all live."""
        return None if self.watch is None else self.watch.lost

    def _named(self, error: BaseException) -> BaseException:
        """RingPeerLost if the error means a lost process; a timeout of the group is returned as it is."""
        text = str(error).lower()
        if not any(word in text for word in GONE) and not isinstance(error, OSError):
            return error
        until = time.monotonic() + NAMED
        while self.watch is not None and self.lost is None and time.monotonic() < until:
            time.sleep(POLL)
        return self._give_up()

    def _give_up(self) -> RingPeerLost:
        """Leave the ring and return the error: no process waits for this one any longer, and this one for none."""
        who = "a process" if self.lost is None else f"process {self.lost}"
        self._broken = RingPeerLost(f"{who} of the ring was lost: it ended or failed while others needed it")
        self._close()
        return self._broken

    def _close(self) -> None:
        """Close all connections. In gloo, only a message that times out does so."""
        for other in self.ranks if self.waits else ():
            with suppress(RuntimeError, ValueError):
                work = dist.irecv(torch.empty(1, device="cpu", dtype=torch.float32), other, self.group, NEVER)
                assert work is not None
                work.wait(timedelta(milliseconds=1))
        if not self.waits:
            self.group.abort()

    def _broadcast(self, message: Tensor) -> Tensor:
        """The bytes of rank 0 on every process."""
        message = message.to(self.device)
        dist.broadcast(message, self.ranks[0], self.group)
        return message.cpu()


def _wait_for_messages(jobs: WaitJobs) -> None:
    """Worker: wait for messages, one batch after another.

    It holds no message when it reports. Freeing one releases and takes the GIL inside torch's destructor, and a daemon
    thread that does so while the interpreter ends aborts the process.
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
    """Wait for the worker: if it freed torch's messages while the interpreter ends, the process would abort."""
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
