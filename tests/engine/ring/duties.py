"""What processes of a test's ring do. Every process computes the whole call alone, and compares its own part."""

import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from regard import attend, matrix, nn, plan
from regard.engine.request import AUX, request
from regard.engine.ring import Ring, RingPeerLost
from regard.engine.ring.cost import memory, traffic
from regard.engine.ring.shards import Shards, shards_of
from regard.spec.masks import Blocks, Causal, Where, Window
from regard.spec.normalizers import Hard, Softmax
from regard.spec.scores import ScaledDot
from regard.testing import Case, Sizes, error, peak_bytes

INPUTS = ("query", "key", "value")
PLAIN: dict[str, Any] = {
    "score": ScaledDot(),
    "bias": None,
    "temperature": 1.0,
    "normalizer": Softmax(),
    "dropout": 0.0,
    "query_start": None,
}
_groups: dict[int, Any] = {}


def group_of(world: int) -> Any:
    """The first processes as a group; made once by all."""
    for size in range(1, dist.get_world_size() + 1):
        if size not in _groups and size in (1, 2, 3, 4, 8):
            _groups[size] = dist.new_group(list(range(size)))
    return _groups[world]


def part(tensor: Tensor, shards: Shards, rank: int, dim: int = -2) -> Tensor:
    """A process's rows of a whole tensor."""
    return torch.cat([tensor.narrow(dim, span.start, span.length) for span in shards.spans[rank]], dim)


def lengths_of(total: int, world: int, uneven: bool) -> list[int]:
    """How long the shards are; uneven ones have an empty one among them if there are three."""
    if not uneven:
        return [(rank + 1) * total // world - rank * total // world for rank in range(world)]
    given = [0 if world > 2 and rank == 1 else 1 + 2 * rank for rank in range(world)]
    lengths = [total * weight // sum(given) for weight in given]
    return [*lengths[:-1], total - sum(lengths[:-1])]


def outcome(inputs: list[Tensor], spec: dict[str, Any], leaves: dict[str, Tensor], **how: Any) -> dict[str, Tensor]:
    """Output, statistics and gradients of a functional of out, lse and entropy whose weights are given."""
    weights, aux = how.pop("weights"), how.pop("aux")
    result: Any = attend(*inputs, **spec, aux=aux, **how)  # type: ignore[call-overload]
    out = result[0] if aux else result
    found = {"out": out, **{name: getattr(result[1], name) for name in aux}}
    loss = out.new_zeros(())
    for name, weight in weights.items():
        if name in found:
            tensor = found[name]
            loss = loss + (weight.to(tensor.dtype) * torch.where(tensor.isfinite(), tensor, 0.0)).sum()
    grads: tuple[Tensor | None, ...] = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
        found[f"grad {name}"] = torch.zeros_like(leaf) if grad is None else grad
    return found


def agrees(world: int, **told: Any) -> str:
    """A ring of that size equals one process within twice its own error against float64."""
    group = group_of(world)
    if dist.get_rank() >= world:
        return ""
    ring = Ring(group, layout=told.pop("layout", "contiguous"), engine=told.get("engine", "auto"))
    return _agrees(ring, **told)


def _agrees(
    ring: Ring,
    case: dict[str, Any],
    dtype: str = "float32",
    uneven: bool = False,
    aux: list[str] | None = None,
    engine: str = "auto",
) -> str:
    sizes = Sizes(**case.pop("sizes"))
    built = Case(**case, sizes=sizes)
    names = tuple(AUX if aux is None else aux)
    low: torch.dtype = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(1)
    shape = (sizes.batch, sizes.heads, sizes.queries)
    weights = {
        "out": torch.randn(*shape, sizes.d_value, generator=generator, dtype=torch.float64),
        "lse": torch.randn(shape, generator=generator, dtype=torch.float64),
        "entropy": torch.randn(shape, generator=generator, dtype=torch.float64),
    }
    truth = outcome(*built.build(torch.float64, low), aux=names, weights=weights, engine="reference")
    plain = outcome(*built.build(low), aux=names, weights=weights, engine=engine)
    shards = [shards_of(ring.layout, lengths_of(total, ring.world, uneven)) for total in (sizes.queries, sizes.keys)]
    inputs, spec, leaves = built.build(low)
    own = {
        name: part(tensor.detach(), shards[name != "query"], ring.rank).requires_grad_()
        for name, tensor in zip(INPUTS, inputs, strict=True)
    }
    some = {name: part(weight.unsqueeze(-1), shards[0], ring.rank, 2).squeeze(-1) for name, weight in weights.items()}
    found = outcome(list(own.values()), spec, {**leaves, **own}, aux=names, weights=some, engine=ring)
    return _worst(found, plain, truth, shards, ring)


def _worst(
    found: dict[str, Tensor], plain: dict[str, Tensor], truth: dict[str, Tensor], shards: list[Shards], ring: Ring
) -> str:
    """The part that is too far off, or nothing."""
    wrong = []
    for name, mine in found.items():
        by_key = name in ("received", "grad key", "grad value")
        own, kind = shards[by_key], name.removeprefix("grad ")
        rounded = 0.0
        if name.startswith("grad ") and kind not in INPUTS:  # shared by all: this process has its share, rounded
            shares = mine.double().abs()
            dist.all_reduce(shares, group=ring.group)
            rounded = torch.finfo(mine.dtype).eps * float(shares.max())
            dist.all_reduce(mine, group=ring.group)
            whole, exact = plain[name], truth[name]
        else:
            last = name == "out" or kind in INPUTS
            whole, exact = (
                part(tensor if last else tensor.unsqueeze(-1), own, ring.rank).reshape(mine.shape)
                for tensor in (plain[name], truth[name])
            )
        if name == "peak_at":
            wrong += [] if torch.equal(mine, whole) else [f"{name} differs"]
            continue
        size = float(torch.where(truth[name].isfinite(), truth[name].detach(), 0.0).abs().max())
        roundings = 8 if mine.dtype == torch.float64 else 1  # the truth itself is rounded
        allowed = max(2 * error(plain[name], truth[name]), roundings * torch.finfo(mine.dtype).eps * max(1.0, size))
        off = error(mine, exact)
        if off > allowed + rounded:
            wrong.append(f"{name}: error {off:.3g}, allowed {allowed:.3g} (one process {error(whole, exact):.3g})")
    return "; ".join(wrong)


def counts(world: int, **told: Any) -> list[int] | None:
    """Bytes sent and bytes predicted, forward and backward."""
    group = group_of(world)
    return None if dist.get_rank() >= world else _counts(Ring(group, layout=told.pop("layout", "contiguous")), **told)


def _counts(
    ring: Ring,
    case: dict[str, Any],
    dtype: str = "float32",
    uneven: bool = False,
    aux: list[str] | None = None,
    gradients: tuple[bool, bool] = (True, True),
) -> list[int]:
    sizes = Sizes(**case.pop("sizes"))
    inputs, spec, _ = Case(**case, sizes=sizes).build(getattr(torch, dtype))
    names = tuple(aux or ())
    lengths = [lengths_of(total, ring.world, uneven) for total in (sizes.queries, sizes.keys)]
    own = [
        part(tensor.detach(), shards_of(ring.layout, lengths[place > 0]), ring.rank).requires_grad_(
            gradients[place > 0]
        )
        for place, tensor in enumerate(inputs)
    ]
    result: Any = attend(*own, **spec, aux=names, engine=ring)
    (result[0] if names else result).sum().backward()
    assert ring.last is not None
    whole = request(*inputs, aux=names, **spec)
    model = traffic(whole, ring.layout, lengths[0], lengths[1], (gradients[0], gradients[1]))
    return [ring.last.forward, model.forward(ring.rank), ring.last.backward, model.backward(ring.rank)]


def held(world: int, length: int, mask: str, dtype: str, layout: str = "contiguous") -> list[int] | None:
    """Bytes of memory that a step took at most beyond inputs, outputs and gradients, and bytes predicted."""
    group = group_of(world)
    if dist.get_rank() >= world:
        return None
    ring = Ring(group, layout=layout)
    kind: torch.dtype = getattr(torch, dtype)
    whole = torch.randn(3, 1, 4, length, 32, dtype=kind)
    own = [ring.shard(tensor).clone().requires_grad_() for tensor in whole]

    def step() -> list[Tensor]:
        out = attend(*own, mask=mask, engine=ring)
        grads = torch.autograd.grad(out.sum(), own)
        return [out.detach(), *grads]

    step()
    most, kept = peak_bytes(step)
    asked = request(*whole, **PLAIN, mask=mask, aux=())
    lengths = lengths_of(length, world, False)
    return [most - kept, memory(traffic(asked, layout, lengths, lengths), ring.rank)]


def endless(victim: int, after: float) -> str:
    """Train until a process is lost; the victim kills itself."""
    ring = Ring()
    query = torch.randn(1, 2, 256, 16, requires_grad=True)
    attend(query, query, query, mask="causal", engine=ring).sum().backward()
    dist.barrier()
    if ring.rank == victim:
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    begun = time.monotonic()
    try:
        while time.monotonic() < begun + 30:
            attend(query, query, query, mask="causal", engine=ring).sum().backward()
    except RingPeerLost as error:
        return f"{time.monotonic() - begun - after:.2f} {error}"
    return "nothing happened"


def slow(pause: float) -> str:
    """One process stops for a while, as if it were swapped out; nobody minds."""
    ring = Ring()
    query = torch.randn(1, 2, 64, 16)
    attend(query, query, query, engine=ring)
    if ring.rank == 1:
        watcher = os.fork()
        if watcher == 0:
            time.sleep(pause)
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(watcher, 0)
    out = attend(query, query, query, engine=ring)
    return "" if bool(out.isfinite().all()) else "wrong"


def alone() -> list[str]:
    """A ring of one process equals the engine it uses, bit for bit; names what differs."""
    group = group_of(1)
    if dist.get_rank() > 0:
        return []
    ring, wrong = Ring(group), []
    for case in (Case(mask="causal", dropout=0.3), Case(bias="t5", normalizer="sink"), Case(normalizer="sparsemax")):
        aux = tuple(name for name in AUX if name != "lse" or case.normalizer != "sparsemax")
        found = []
        for engine in ("auto", ring):
            inputs, spec, leaves = case.build(torch.float32)
            weights = {"out": torch.ones(()), "entropy": torch.ones(())}
            found.append(outcome(inputs, spec, leaves, aux=aux, weights=weights, engine=engine))
        wrong += [f"{case}: {name}" for name, one in found[0].items() if not torch.equal(one, found[1][name])]
    return wrong


def refused(what: str) -> str:
    """The error of a call that does not fit, on every process."""
    ring = Ring(group_of(2)) if dist.get_rank() < 2 else None
    if what == "outside":
        try:
            Ring(group_of(2))
        except ValueError as error:
            return str(error)
    if ring is None:
        return ""
    heads = 4 if what == "heads" and ring.rank else 2
    dtype = torch.float64 if what == "dtype" and ring.rank else torch.float32
    query = torch.zeros(1, heads, 4, 8, dtype=dtype)
    specs: dict[str, dict[str, Any]] = {
        "spec": {"mask": "causal" if ring.rank else None},
        "dropout": {"dropout": 0.5 if ring.rank else 0.25},
        "aux": {"aux": ("lse",) if ring.rank else ()},
        "hard": {"normalizer": Hard()},
        "dense": {"mask": torch.ones(4, 4, dtype=torch.bool)},
        "blocks": {"mask": Blocks(2, torch.ones(2, 2, dtype=torch.bool))},
    }
    try:
        attend(query, query, query, engine=ring, **specs.get(what, {}))
    except ValueError as error:
        return str(error)
    return ""


def kinds() -> list[str]:
    """A mesh, a part of the processes that does not begin with the first, and seeds from the first process."""
    wrong = []
    group_of(2)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    query, key, value = (torch.randn(1, 2, 32, 8, generator=torch.Generator().manual_seed(n)) for n in range(3))
    wanted = attend(query, key, value, mask="causal")
    rings = [Ring(mesh), Ring()]
    last = dist.new_group([4, 6, 7])
    rings += [Ring(last)] if dist.get_rank() in (4, 6, 7) else []
    for ring in rings:
        own = attend(*map(ring.shard, (query, key, value)), mask="causal", engine=ring)
        if not torch.allclose(own, ring.shard(wanted), atol=1e-6):
            wrong.append(repr(ring))
        assert ring.last is not None
        if plan(query, key, value, mask="causal", engine=ring).forward_bytes[ring.rank] != ring.last.forward:
            wrong.append(f"planned by {ring!r}")
        if not torch.equal(ring.gather(ring.shard(wanted)), wanted):
            wrong.append(f"gathered by {ring!r}")
    torch.manual_seed(dist.get_rank())
    own = attend(*map(rings[0].shard, (query, key, value)), dropout=0.5, engine=rings[0])
    torch.manual_seed(0)
    if not torch.allclose(own, rings[0].shard(attend(query, key, value, dropout=0.5)), atol=1e-6):
        wrong.append("dropout")
    return wrong


def long(length: int, width: int, megabytes: int, rows: int) -> str:
    """A causal step over a long sequence within so much memory; sampled rows equal a direct computation."""
    ring = Ring()
    draw = torch.Generator().manual_seed(5)
    whole = [torch.randn(1, 1, length, width, generator=draw) for _ in range(3)]
    own = [ring.shard(tensor).clone().requires_grad_() for tensor in whole]
    sample = torch.randperm(length, generator=draw)[:rows].sort().values
    logits = whole[0][..., sample, :].double() @ whole[1].double().mT / width**0.5
    logits = logits.masked_fill(torch.arange(length) > sample.view(-1, 1), -torch.inf)
    truth = logits.softmax(-1) @ whole[2].double()
    del whole, logits
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (megabytes << 20), -1))
    out = attend(*own, mask="causal", engine=ring)
    out.sum().backward()
    mine = ring.positions(length)
    place = torch.isin(sample, mine)
    found = out.detach()[..., torch.searchsorted(mine, sample[place]), :]
    off = float((found.double() - truth[..., place, :]).abs().max()) if bool(place.any()) else 0.0
    sums = float(own[2].grad.sum()) if own[2].grad is not None else 0.0  # every row of weights sums to 1
    total = torch.tensor([sums], dtype=torch.float64)
    dist.all_reduce(total)
    if off > 2e-5 or abs(float(total) / (length * width) - 1) > 1e-3:
        return f"off by {off}, values' gradients sum to {float(total)} for {length * width}"
    return ""


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def layers(position: str, layout: str) -> list[str]:
    """A language model on shards: logits, and gradients once they are summed, equal those of the whole."""
    group = group_of(3)
    if dist.get_rank() > 2:
        return []
    ring = Ring(group, layout=layout)
    tokens = torch.randint(50, (2, 31), generator=torch.Generator().manual_seed(3))
    found = []
    for engine, own in (("auto", tokens), (ring, ring.shard(tokens, -1))):
        torch.manual_seed(1)
        scheme: dict[str, torch.nn.Module] = {"rotary": nn.Rotary(8), "t5": nn.T5(4), "learned": nn.Learned(40, 32)}
        scheme["sinusoidal"] = nn.Sinusoidal(32)
        model = nn.LanguageModel(
            50, layers=2, d_model=32, heads=4, kv_heads=2, position=scheme[position], engine=engine
        ).double()
        logits = model(own)
        logits.square().sum().backward()
        found.append((logits.detach(), {name: weight.grad for name, weight in model.named_parameters()}))
    (whole, right), (mine, shares) = found
    wrong = [] if torch.allclose(mine, ring.shard(whole), atol=1e-10) else ["logits"]
    for name, share in shares.items():
        total = right[name]
        assert share is not None
        assert total is not None
        dist.all_reduce(share, group=group)
        wrong += [] if torch.allclose(share, total, rtol=1e-8, atol=1e-8) else [name]
    return wrong


def reductions(layout: str) -> list[str]:
    """A matrix of shards: what it knows equals what the whole matrix knows."""
    group = group_of(3)
    if dist.get_rank() > 2:
        return []
    ring = Ring(group, layout=layout)
    query, key = (torch.randn(2, 4, 37, 8, generator=torch.Generator().manual_seed(n)).double() for n in range(2))
    whole = matrix(query, key, mask="causal", temperature=0.7)
    mine = matrix(ring.shard(query), ring.shard(key), mask="causal", temperature=0.7, engine=ring)
    pairs: dict[str, tuple[Tensor, Tensor]] = {
        "lse": (mine.lse(), whole.lse()),
        "entropy": (mine.entropy(), whole.entropy()),
        "peak": (mine.peak().value, whole.peak().value),
        "key": (mine.peak().key, whole.peak().key),
        "received": (mine.received(), whole.received()),
        "distance": (mine.distance(), whole.distance().mean),
        "mass": (mine.mass(Window(3, 0)), whole.mass(Window(3, 0))),
    }
    wrong = [name for name, (own, all_) in pairs.items() if not torch.allclose(own, ring.shard(all_, -1), atol=1e-12)]
    for how in ("sum", "mean"):
        wrong += [] if torch.allclose(mine.pool(5, 6, how), whole.pool(5, 6, how), atol=1e-12) else [how]
    return wrong


def poisoned() -> list[str]:
    """NaN where it is hidden changes no bit; where it is seen it shows in the rows that see it, and in no gradient."""
    group = group_of(2)
    if dist.get_rank() > 1:
        return []
    ring, wrong = Ring(group), []
    draw = torch.Generator().manual_seed(4)
    whole = [torch.randn(1, 2, 24, 8, generator=draw) for _ in range(3)]
    for seen in (False, True):
        bad = [tensor.clone() for tensor in whole]
        bad[1][..., 20, :] = torch.nan
        bad[2][..., 20, 0] = torch.inf
        mask = Causal() if seen else Causal() & ~Where(lambda b, h, i, j: j == 20)
        results = []
        for inputs in ([tensor.clone() for tensor in whole], bad):
            own = [ring.shard(tensor).clone().requires_grad_() for tensor in inputs]
            out = attend(*own, mask=mask, engine=ring)
            rows = ring.positions(24) >= 20
            weight = torch.where(rows.view(-1, 1) & seen, 0.0, 1.0)
            grads = torch.autograd.grad((torch.where(weight > 0, out, 0.0)).sum(), own)
            results.append((out.detach(), grads))
        (clean, right), (found, grads) = results
        if seen:
            wrong += [] if bool(found[..., rows, :].isnan().all()) else ["a row that sees NaN is not NaN"]
            clean, found = clean[..., ~rows, :], found[..., ~rows, :]
        wrong += [] if torch.equal(clean, found) else [f"output, {seen=}"]
        wrong += [] if all(bool(grad.isfinite().all()) for grad in grads) else [f"a gradient is not finite, {seen=}"]
        if not seen:
            wrong += [] if all(map(torch.equal, right, grads)) else ["gradients"]
    return wrong
