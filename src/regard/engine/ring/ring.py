"""Ring: attention over a sequence that several processes share, as an engine.

Before a call, the processes compare what they were given, and refuse what does not fit together.
"""

import ctypes
import struct
import zlib
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from regard.engine.arguments import Shapes, aux_of, tensors_of, wrong_normalizer
from regard.engine.attend import attend, choose
from regard.engine.context import transform_unsupported
from regard.engine.request import AUX, Aux, Spec, request
from regard.engine.ring.autograd import Record, run
from regard.engine.ring.link import Link, link_of
from regard.engine.ring.local import needed_statistics
from regard.engine.ring.passes import RingCall
from regard.engine.ring.shards import LAYOUTS, Shards, even, route, shards_of
from regard.spec.dropout import Dropout, drawn
from regard.spec.normalizers import Normalizer, Softmax

Three = tuple[Tensor, Tensor, Tensor]


class Ring:
    """An engine for `attend` and the layers of `nn`: every process of a group holds a part of the sequence.

    `group` is a process group, a `DeviceMesh` of one axis, or None for all processes. Shards are contiguous, in the
    order of the ranks, and may differ in length; `layout="zigzag"` says that process r of w holds the r-th of 2w pieces
    from the front and the r-th from the back. `engine` computes on each process.

    >>> ring = regard.Ring()  # doctest: +SKIP
    >>> regard.attend(ring.shard(q), ring.shard(k), ring.shard(v), mask="causal", engine=ring)  # doctest: +SKIP
    """

    def __init__(
        self,
        group: "dist.ProcessGroup | DeviceMesh | None" = None,
        *,
        layout: str = "contiguous",
        engine: str = "auto",
    ) -> None:
        if layout not in LAYOUTS:
            raise ValueError(f"layout must be 'contiguous' or 'zigzag', got {layout!r}")
        if not isinstance(engine, str):
            raise TypeError(f"engine must be the name of one for each process, got {type(engine).__name__}")
        self.group, self.layout, self.engine = _group(group), layout, engine
        self.rank, self.world = dist.get_rank(self.group), dist.get_world_size(self.group)
        if self.rank < 0:
            raise ValueError("this process is not in the group of the ring; only those that are may make it")
        self.last: Record | None = None

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, aux: tuple[str, ...] | str, spec: Spec
    ) -> Tensor | tuple[Tensor, Aux]:
        """`attend` of this process's queries over the keys of all; every process calls it."""
        record = self.last = Record()
        if self.world == 1:
            return attend(query, key, value, aux=aux, engine=self.engine, **spec)
        call = self._call((query, key, value), aux, spec, record)
        result = run(call, record)
        shapes = replace(call.request.shapes, queries=query.shape[-2], keys=key.shape[-2])
        out = shapes.unfold(result.out)
        if not call.request.aux:
            return out
        return out, Aux(**{name: shapes.unfold(getattr(result.aux, name)) for name in call.request.aux})

    def _call(self, tensors: Three, aux: tuple[str, ...] | str, spec: Spec, record: Record) -> RingCall:
        """Check the arguments, compare them with those of the other processes, and plan the route."""
        link = link_of(self.group)
        before = link.sent
        try:
            if (why := transform_unsupported()) is not None:
                raise ValueError(f"a ring cannot do this: {why}")
            own, normalizer = Shapes.of(*tensors), spec["normalizer"]
            if not isinstance(normalizer, Normalizer):
                raise wrong_normalizer(normalizer)
            if not isinstance(normalizer, Softmax):
                raise ValueError(f"a ring merges softmax parts, the normalizer is {normalizer!r}; use one process")
            names, dropout = aux_of(aux, AUX, normalizer), drawn(spec["dropout"])
            numbers = _numbers(tensors, own, self.layout, spec, names, dropout)
        except Exception:
            _all_numbers(link, [REFUSED] * COUNT)  # the others are about to wait
            raise
        rows = _compared(link, numbers)
        record.forward += link.sent - before
        queries, keys, seed = [row[0] for row in rows], [row[1] for row in rows], rows[0][-1]
        options: Any = {**spec, "dropout": 0.0 if dropout is None else Dropout(dropout.p, seed)}
        whole = request(*tensors, aux=names, shapes=replace(own, queries=sum(queries), keys=sum(keys)), **options)
        # refuse now what an engine would refuse in the middle of the call
        choose(replace(whole, normalizer=Softmax(), aux=(*needed_statistics(names), "lse")), self.engine)
        shards = [shards_of(self.layout, lengths) for lengths in (queries, keys)]
        way = route(whole.mask, whole.plane, self.layout, queries, keys)
        return RingCall(whole, shards[0], shards[1], way, link, self.engine)

    def shard(self, tensor: Tensor, dim: int = -2) -> Tensor:
        """This process's part of a whole sequence along `dim`: shards of even length, in the ring's layout."""
        own = shards_of(self.layout, even(tensor.shape[dim], self.world)).spans[self.rank]
        return torch.cat([tensor.narrow(dim, span.start, span.length) for span in own], dim)

    def positions(self, length: int) -> Tensor:
        """The positions of the rows of `shard` in a whole sequence of that length."""
        return self.shard(torch.arange(length, device="cpu"), 0)

    def gather(self, tensor: Tensor, dim: int = -2) -> Tensor:
        """The whole sequence along `dim` on every process, from shards of any lengths, without gradients."""
        own = tensor.detach().movedim(dim, 0).contiguous()
        shards = self._shards(len(own))
        whole = own.new_empty((shards.total, *own.shape[1:]))
        for rank, part in enumerate(link_of(self.group).all_gather(own, shards.lengths)):
            for span, at in shards.placed(rank):
                whole[span.start : span.stop] = part[at]
        return whole.movedim(0, dim)

    def placed(self, length: int) -> list[tuple[int, slice]]:
        """Start in the whole and place of each span of this process's `length` rows; all processes must call it."""
        return [(span.start, at) for span, at in self._shards(length).placed(self.rank) if span.length]

    def _shards(self, length: int) -> Shards:
        """The division into shards of the lengths that the processes have."""
        link = link_of(self.group)
        lengths = link.all_gather(torch.tensor([length], device=link.device, dtype=torch.int64))
        return shards_of(self.layout, [int(one) for one in lengths])

    def __deepcopy__(self, memo: dict[int, Any]) -> "Ring":
        """Copies of a model use the same group."""
        return self

    def __repr__(self) -> str:
        engine = "" if self.engine == "auto" else f", engine={self.engine!r}"
        return f"Ring(<{self.world} processes>, layout={self.layout!r}{engine})"


def _group(group: object) -> dist.ProcessGroup:
    """The group of a mesh, a group itself, or that of all processes."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "a Ring needs torch.distributed: start the processes with torchrun and call "
            "torch.distributed.init_process_group() first"
        )
    if group is None:
        group = dist.group.WORLD
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise ValueError(f"a Ring takes a mesh of one axis, got one of {group.ndim}; pass mesh['its name']")
        group = group.get_group()
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this process is not in the group of the ring; only those that are may make it")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"a Ring takes a process group or a DeviceMesh, got {type(group).__name__}")
    return group


COUNT = 15  # numbers by which the processes compare a call
SIZE = 8 * COUNT  # their bytes
REFUSED = -1  # in place of the number of queries
ROUTING = ("mask", "query_start")  # every process computes from these what is sent
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _numbers(
    tensors: Three, shapes: Shapes, layout: str, spec: Spec, aux: tuple[str, ...], dropout: Dropout | None
) -> dict[str, int]:
    """What this process was given. The first two may differ between processes; of the last, that of rank 0 is used."""
    query, key, value = tensors
    learned = (spec["score"], spec["bias"], spec["temperature"])
    needed = [any(tensor.requires_grad for part in learned for _, tensor in tensors_of("", part))]
    needed = [torch.is_grad_enabled() and need for need in (*(one.requires_grad for one in tensors), *needed)]
    seed = 0 if dropout is None else dropout.seed
    return {
        "queries": shapes.queries,
        "keys": shapes.keys,
        "batch rows": shapes.batch,
        "key heads": shapes.kv_heads,
        "query heads": shapes.kv_heads * shapes.group,
        "query width": query.shape[-1],
        "key width": key.shape[-1],
        "value width": value.shape[-1],
        "dtype": DTYPES.index(query.dtype),
        "gradients of (query, key, value, spec)": sum(need << at for at, need in enumerate(needed)),
        "layout": zlib.crc32(layout.encode()),
        "spec": _checksum({name: part for name, part in spec.items() if name != "dropout"}),
        "dropout rate": struct.unpack("<q", struct.pack("<d", 0.0 if dropout is None else dropout.p))[0],
        "aux": sum(1 << AUX.index(name) for name in aux),
        "seed": seed - 2**64 if seed >= 2**63 else seed,
    }


def _all_numbers(link: Link, numbers: list[int]) -> list[list[int]]:
    """The numbers of all processes, by rank."""
    own = torch.tensor(numbers, dtype=torch.int64, device=link.device)
    return [row.tolist() for row in link.all_gather(own)]


def _compared(link: Link, numbers: dict[str, int]) -> list[list[int]]:
    """The numbers of all processes, by rank; ValueError if they do not fit together."""
    assert len(numbers) == COUNT
    rows = _all_numbers(link, list(numbers.values()))
    for rank, row in enumerate(rows):
        if row[0] == REFUSED:
            raise ValueError(f"process {rank} of the ring refused its inputs; its own error says why")
    for rank, row in enumerate(rows):
        for name, other, own in list(zip(numbers, row, rows[link.rank], strict=True))[2:-1]:
            if other != own:
                raise ValueError(_difference(name, rank, other, link.rank, own))
    return rows


def _difference(name: str, rank: int, other: int, own_rank: int, own: int) -> str:
    if name == "spec":
        what = "another score, mask, bias, temperature, normalizer or query_start"
        return f"the processes of a ring must make the same call: process {rank} has {what} than process {own_rank}"
    texts = [str(other), str(own)]
    if name == "dtype":
        texts = [str(DTYPES[code]).removeprefix("torch.") for code in (other, own)]
    elif name == "dropout rate":
        texts = [str(struct.unpack("<d", struct.pack("<q", code))[0]) for code in (other, own)]
    return (
        f"the processes of a ring must make the same call, with shards that differ in length alone: "
        f"{name} is {texts[0]} on process {rank} and {texts[1]} on process {own_rank}"
    )


def _checksum(spec: dict[str, Any]) -> int:
    """Of the parts by name and shape, and of the numbers in those that the route depends on: if these differed,
    processes would wait for messages that are never sent."""
    texts = [
        f"{name}=tensor{tuple(part.shape)}" if isinstance(part, Tensor) else f"{name}={part!r}"
        for name, part in spec.items()
    ]
    checksum = zlib.crc32("\n".join(texts).encode())
    for name in ROUTING:
        for _, tensor in tensors_of(name, spec[name]):
            # expanded axes are read once
            once = tensor.detach()[tuple(slice(None if step else 1) for step in tensor.stride())].cpu().contiguous()
            if once.nbytes:
                checksum = zlib.crc32((ctypes.c_char * once.nbytes).from_address(once.data_ptr()), checksum)
    return checksum
