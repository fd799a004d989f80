"""RingPeerLost: a process of the ring is gone; PeerWatch: how every process learns of it.

Each process keeps one idle TCP connection to the process of rank 0. When a process ends, however it ends, its system
closes the connection, and rank 0 tells the others; when rank 0 ends, all see it themselves. A process that is merely
slow, or stopped, keeps its connection. Keep-alive packets, which the system answers by itself, find a machine that
is gone.
"""

import os
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

import torch
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
