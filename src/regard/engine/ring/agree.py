"""Agreement: before a call all processes tell each other what they were given, and refuse what does not fit."""

import ctypes
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.engine.arguments import Shapes, tensors_of
from regard.engine.ring.link import Link

# what every process tells: the first two may differ, of the last the first process's counts
TOLD = (
    "queries",
    "keys",
    "batch rows",
    "key heads",
    "query heads",
    "query width",
    "key width",
    "value width",
    "dtype",
    "gradients of (query, key, value, spec)",
    "layout",
    "spec",
    "dropout rate",
    "aux",
    "seed",
)
SIZE = 8 * len(TOLD)  # bytes
REFUSED = -1  # instead of a number of queries
ROUTING = ("mask", "query_start")  # every process works out from these what is sent
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Agreement:
    """Lengths of the shards by rank, and the seed of all."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    seed: int


def agreed(link: Link, told: dict[str, int]) -> Agreement:
    """Tell the others, and compare."""
    rows = _heard(link, [told[name] for name in TOLD])
    for rank, row in enumerate(rows):
        if row[0] == REFUSED:
            raise ValueError(f"process {rank} of the ring refused its inputs; its own error says why")
    for rank, row in enumerate(rows):
        for name, theirs, ours in zip(TOLD[2:-1], row[2:-1], rows[link.rank][2:-1], strict=True):
            if theirs != ours:
                raise ValueError(_differs(name, rank, theirs, link.rank, ours))
    return Agreement(tuple(row[0] for row in rows), tuple(row[1] for row in rows), rows[0][-1])


def refuse(link: Link) -> None:
    """Tell the others that there will be no call: they are about to wait."""
    _heard(link, [REFUSED] * len(TOLD))


def _heard(link: Link, said: list[int]) -> list[list[int]]:
    """What every process says, by rank."""
    mine = torch.tensor(said, dtype=torch.int64, device=link.device)
    heard = [torch.empty_like(mine) for _ in range(link.world)]
    others = [rank for rank in range(link.world) if rank != link.rank]
    pending = link.start([(rank, mine) for rank in others], [(rank, heard[rank]) for rank in others])
    heard[link.rank] = mine
    pending.wait()
    return [row.tolist() for row in heard]


def _differs(name: str, rank: int, theirs: int, own: int, ours: int) -> str:
    if name == "spec":
        what = "another score, mask, bias, temperature, normalizer or query_start"
        return f"the processes of a ring must make the same call: process {rank} has {what} than process {own}"
    shown = {"dtype": lambda code: str(DTYPES[code]).removeprefix("torch."), "dropout rate": _float}
    show: Any = shown.get(name, str)
    return (
        f"the processes of a ring must make the same call, with shards that differ in length alone: "
        f"{name} is {show(theirs)} on process {rank} and {show(ours)} on process {own}"
    )


def told(
    tensors: tuple[Tensor, Tensor, Tensor], shapes: Shapes, layout: str, spec: dict[str, Any], rest: dict[str, int]
) -> dict[str, int]:
    """What this process says of its inputs."""
    query, key, value = tensors
    return {
        "queries": shapes.queries,
        "keys": shapes.keys,
        "batch rows": shapes.batch,
        "key heads": shapes.kv_heads,
        "query heads": shapes.heads,
        "query width": query.shape[-1],
        "key width": key.shape[-1],
        "value width": value.shape[-1],
        "dtype": DTYPES.index(query.dtype),
        "layout": zlib.crc32(layout.encode()),
        "spec": _checksum(spec),
        **rest,
    }


def bits(number: float) -> int:
    """A float as an integer."""
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _float(code: int) -> str:
    return str(struct.unpack("<d", struct.pack("<q", code))[0])


def _checksum(spec: dict[str, Any]) -> int:
    """Of parts by name and shape, and of the numbers in those that the way depends on: if these differed, processes
    would wait for messages that nobody sends."""
    found = zlib.crc32("\n".join(f"{name}={_text(part)}" for name, part in spec.items()).encode())
    for name in ROUTING:
        for _, tensor in tensors_of(name, spec[name]):
            found = _continued(found, tensor)
    return found


def _text(part: object) -> str:
    return f"tensor{tuple(part.shape)}" if isinstance(part, Tensor) else repr(part)


def _continued(checksum: int, tensor: Tensor) -> int:
    """With the numbers of a tensor, once where it is expanded."""
    once = tensor.detach()[tuple(slice(None if step else 1) for step in tensor.stride())].cpu().contiguous()
    if once.nbytes == 0:
        return checksum
    return zlib.crc32((ctypes.c_char * once.nbytes).from_address(once.data_ptr()), checksum)
