"""What processes of a test's ring do. Every process computes the whole call alone, and compares its own part."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from regard import attend
from regard.engine.request import AUX, request
from regard.engine.ring import Ring
from regard.engine.ring.plan import Traffic, memory
from regard.engine.ring.shards import Shards, shards_of
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot
from regard.testing import Case, Sizes, error, peak_bytes
from tests.oracles import formula
from tests.oracles.rounding import NEAREST, budget, scatter

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
    if how["engine"] == "formula":
        answer = formula.evaluate(*inputs, **spec)
        found = {"out": answer.out, **{name: answer.aux[name] for name in aux}}
    else:
        result: Any = attend(*inputs, **spec, aux=aux, **how)  # type: ignore[call-overload]
        found = {"out": result[0] if aux else result, **{name: getattr(result[1], name) for name in aux}}
    out = found["out"]
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

    def scattered(own: Callable[[str, Tensor], Tensor]) -> dict[str, float]:
        """Of each of this process's parts, what roundings at every step do to the formula.

        Processes tell each other their lse in float64. Where all is float64, it is rounded like all else: so is that
        of the formula which takes its weights from the lse.
        """
        how, more, unit = "reference", 1.0, NEAREST
        if low == torch.float64:
            how, more = "formula", 2.0**12
            unit = more * torch.finfo(low).eps / 2

        def parts(results: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: own(name, tensor) for name, tensor in results.items()}

        def again(rounded: object) -> dict[str, Tensor]:
            return parts(outcome(*built.build(torch.float64, low), aux=names, weights=weights, engine=how))

        return {name: off / more for name, off in scatter(again, parts(truth), unit).items()}

    return _worst(found, plain, truth, shards, ring, scattered)


def _worst(
    found: dict[str, Tensor],
    plain: dict[str, Tensor],
    truth: dict[str, Tensor],
    shards: list[Shards],
    ring: Ring,
    scattered: Callable[[Callable[[str, Tensor], Tensor]], dict[str, float]],
) -> str:
    """The part that is too far off, or nothing."""

    def own_part(name: str, tensor: Tensor) -> Tensor:
        """Of a result of the whole call; all of what the processes share."""
        kind = name.removeprefix("grad ")
        if name.startswith("grad ") and kind not in INPUTS:
            return tensor
        by_key = name in ("received", "grad key", "grad value")
        own = part(tensor if name == "out" or kind in INPUTS else tensor.unsqueeze(-1), shards[by_key], ring.rank)
        return own.reshape(found[name].shape)

    wrong, scatters = [], None
    for name, mine in found.items():
        rounded = 0.0
        if name.startswith("grad ") and name.removeprefix("grad ") not in INPUTS:
            # shared by all: this process has its share, rounded
            shares = mine.double().abs()
            dist.all_reduce(shares, group=ring.group)
            rounded = torch.finfo(mine.dtype).eps * float(shares.max())
            dist.all_reduce(mine, group=ring.group)
        whole, exact = own_part(name, plain[name]), own_part(name, truth[name])
        if name == "peak_at":
            wrong += [] if torch.equal(mine, whole) else [f"{name} differs"]
            continue
        size = float(torch.where(truth[name].isfinite(), truth[name].detach(), 0.0).abs().max())
        roundings = 8 if mine.dtype == torch.float64 else 1  # the truth itself is rounded
        allowed = max(2 * error(plain[name], truth[name]), roundings * torch.finfo(mine.dtype).eps * max(1.0, size))
        off = error(mine, exact)
        if off > allowed + rounded:  # where a few numbers make all of the error, one draw of it says little
            scatters = scatters or scattered(own_part)
            alone = 0.0 if mine.dtype == torch.float64 else error(whole, exact)
            allowed = max(allowed, budget(max(scatters[name], alone), exact, mine.dtype))
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
    model = Traffic(whole, ring.layout, lengths[0], lengths[1], (gradients[0], gradients[1]))
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
    return [most - kept, memory(Traffic(asked, layout, lengths, lengths), ring.rank)]
