"""What processes of a test's ring do besides computing cases: die, wait, refuse, run layers and long texts."""

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
from regard.engine.request import AUX
from regard.engine.ring import Ring, RingPeerLost
from regard.engine.ring.link import GRACE, NAMED
from regard.spec.biases import T5
from regard.spec.masks import Blocks, Causal, Documents, Where, Window
from regard.spec.normalizers import Hard
from regard.spec.scores import Modified, ScaledDot
from regard.testing import Case
from tests.engine.ring.duties import group_of, outcome

IN_TIME = 10.0  # seconds


def endless(victim: int, after: float, child: bool = False) -> str:
    """Train until a process is lost; the victim kills itself, and may leave a child behind for a while."""
    ring = Ring()
    query = torch.randn(1, 2, 256, 16, requires_grad=True)
    attend(query, query, query, mask="causal", engine=ring).sum().backward()
    dist.barrier()
    if ring.rank == victim and child and os.fork() == 0:
        time.sleep(IN_TIME)
        os._exit(0)
    if ring.rank == victim:
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    begun = time.monotonic()
    try:
        while time.monotonic() < begun + 30:
            attend(query, query, query, mask="causal", engine=ring).sum().backward()
    except RingPeerLost as error:
        return f"{time.monotonic() - begun - after:.2f} {error}"
    return "nothing happened"


def fails() -> str:
    """One process fails in the middle of a call, and lives on."""
    ring = Ring()
    query = torch.randn(1, 2, 64, 16)

    def function(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if ring.rank == 2 and bool((j < 64).any()):
            raise KeyError("a mistake")
        return score

    try:
        attend(query, query, query, score=Modified(ScaledDot(), function), engine=ring)
    except RingPeerLost as error:
        return str(error)
    except KeyError:
        time.sleep(GRACE + NAMED)
    try:
        attend(query, query, query, engine=ring)
    except RingPeerLost as error:
        return str(error)
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
    group = group_of(2)  # on all processes, which make it together
    ring = Ring(group) if dist.get_rank() < 2 else None
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
        "documents": {"mask": Documents(torch.arange(8) // (3 if ring.rank else 4))},
        "start": {"mask": "causal", "query_start": torch.tensor([ring.rank])},
        "table": {"bias": T5(torch.zeros(32, 2, requires_grad=ring.rank == 1))},
        "blocks": {"mask": Blocks(2, torch.ones(2, 2, dtype=torch.bool))},
    }
    try:
        value = query[..., :3, :] if what == "value" and ring.rank else query
        attend(query, query, value, engine=ring, **specs.get(what, {}))
    except ValueError as error:
        return str(error)
    return ""


def refused_by_engine() -> str:
    """What the engine of each process cannot do is refused by all, and the next call meets no message of it."""
    group = group_of(3)
    if dist.get_rank() > 2:
        return ""
    ring, query = Ring(group, engine="flex"), torch.randn(1, 2, 24, 8, generator=torch.Generator().manual_seed(0))
    own = ring.shard(query)
    try:
        attend(own, own, own, mask="causal", dropout=0.5, engine=ring)
    except ValueError as error:
        if "FlexAttention has no dropout" not in str(error):
            return str(error)
    found = attend(own, own, own, mask="causal", engine=Ring(group))
    wanted = ring.shard(attend(query, query, query, mask="causal"))
    return "" if torch.allclose(found, wanted, atol=1e-6) else "the next call is wrong"


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
