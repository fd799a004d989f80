"""Ring: attention over a sequence that several processes share, as an engine."""

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from regard.engine.arguments import Shapes, aux_of, normalizer_of, tensors_of
from regard.engine.attend import attend, choose
from regard.engine.context import transform_unsupported
from regard.engine.request import AUX, Aux, Spec, request
from regard.engine.ring.agree import agreed, bits, refuse, told
from regard.engine.ring.autograd import Record, run
from regard.engine.ring.link import link_of
from regard.engine.ring.local import needed_statistics
from regard.engine.ring.passes import RingCall
from regard.engine.ring.shards import LAYOUTS, Shards, cached_route, even, shards_of
from regard.spec.dropout import Dropout, drawn
from regard.spec.normalizers import Softmax

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
        """Check, agree with the other processes, and find the way."""
        link = link_of(self.group)
        before = link.sent
        try:
            own, names, dropout = _checked(tensors, aux, spec)
            said = told(tensors, own, self.layout, _compared(spec), self._rest(tensors, names, spec, dropout))
        except Exception:
            refuse(link)
            raise
        found = agreed(link, said)
        record.forward += link.sent - before
        options: Any = {**spec, "dropout": 0.0 if dropout is None else Dropout(dropout.p, found.seed)}
        whole = replace(own, queries=sum(found.queries), keys=sum(found.keys))
        asked = request(*tensors, aux=names, shapes=whole, **options)
        choose(
            replace(asked, normalizer=Softmax(), aux=(*needed_statistics(names), "lse")), self.engine
        )  # or it would refuse later
        shards = [shards_of(self.layout, lengths) for lengths in (found.queries, found.keys)]
        way = cached_route(asked.mask, asked.plane, self.layout, found.queries, found.keys)
        return RingCall(asked, shards[0], shards[1], way, link, self.engine)

    def _rest(self, tensors: Three, names: tuple[str, ...], spec: Spec, dropout: Dropout | None) -> dict[str, int]:
        """What the others must know beside shapes."""
        parts = (spec["score"], spec["bias"], spec["temperature"])
        learned = any(tensor.requires_grad for part in parts for _, tensor in tensors_of("", part))
        grads = [torch.is_grad_enabled() and need for need in (*(one.requires_grad for one in tensors), learned)]
        return {
            "gradients of (query, key, value, spec)": sum(need << at for at, need in enumerate(grads)),
            "dropout rate": bits(0.0 if dropout is None else dropout.p),
            "aux": sum(1 << AUX.index(name) for name in names),
            "seed": 0 if dropout is None else _signed(dropout.seed),
        }

    def shard(self, tensor: Tensor, dim: int = -2) -> Tensor:
        """This process's part of a whole sequence along `dim`: shards of even length, in the ring's layout."""
        own = self._shards(tensor.shape[dim]).spans[self.rank]
        return torch.cat([tensor.narrow(dim, span.start, span.length) for span in own], dim)

    def positions(self, length: int) -> Tensor:
        """The places in a whole sequence of that length at which the rows of `shard` stand."""
        return self.shard(torch.arange(length, device="cpu"), 0)

    def gather(self, tensor: Tensor, dim: int = -2) -> Tensor:
        """The whole sequence along `dim` on every process, from shards of any lengths, without gradients."""
        own = tensor.detach().movedim(dim, 0).contiguous()
        link, shards = link_of(self.group), self._given(len(own))
        others = [rank for rank in range(self.world) if rank != self.rank]
        parts = [own.new_empty((length, *own.shape[1:])) for length in shards.lengths]
        link.start([(rank, own) for rank in others], [(rank, parts[rank]) for rank in others]).wait()
        parts[self.rank] = own
        found = own.new_empty((shards.total, *own.shape[1:]))
        for rank, part in enumerate(parts):
            for span, at in shards.placed(rank):
                found[span.start : span.stop] = part[at]
        return found.movedim(0, dim)

    def placed(self, length: int) -> list[tuple[int, slice]]:
        """Where stretches of this process's rows, of which there are so many, begin in the whole; all processes ask."""
        return [(span.start, at) for span, at in self._given(length).placed(self.rank) if span.length]

    def _given(self, length: int) -> Shards:
        """The division into shards as they are: this process has so many rows."""
        link = link_of(self.group)
        others = [rank for rank in range(self.world) if rank != self.rank]
        lengths = [torch.tensor([length], device=link.device, dtype=torch.int64) for _ in range(self.world)]
        mine = lengths[self.rank]
        link.start([(rank, mine) for rank in others], [(rank, lengths[rank]) for rank in others]).wait()
        return shards_of(self.layout, [int(one) for one in lengths])

    def _shards(self, length: int) -> Shards:
        return shards_of(self.layout, even(length, self.world))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Ring":
        """Copies of a model talk through the same group."""
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


def _checked(tensors: Three, aux: tuple[str, ...] | str, spec: Spec) -> tuple[Shapes, tuple[str, ...], Dropout | None]:
    """What can be refused without the other processes."""
    if (why := transform_unsupported()) is not None:
        raise ValueError(f"a ring cannot do this: {why}")
    own, normalizer = Shapes.of(*tensors), normalizer_of(spec["normalizer"])
    if not isinstance(normalizer, Softmax):
        raise ValueError(f"a ring merges softmax parts, the normalizer is {normalizer!r}; use one process")
    return own, aux_of(aux, AUX, normalizer), drawn(spec["dropout"])


def _compared(spec: Spec) -> dict[str, Any]:
    """What must be the same on every process, but for dropout."""
    return {name: part for name, part in spec.items() if name != "dropout"}


def _signed(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed
