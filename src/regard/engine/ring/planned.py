"""RingPlan: what a ring would do with a call, process by process, without one."""

from dataclasses import dataclass

from regard.checks import positive, whole
from regard.engine.request import Request
from regard.engine.ring.cost import Traffic, memory, traffic
from regard.engine.ring.shards import LAYOUTS, even
from regard.spec.normalizers import Softmax

BACKWARD = 3.5  # operations of a backward pass over those of a forward: every block again, then five products for two
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True)
class RingPlan:
    """What each process of a ring would send, hold and compute in one step, forward and backward.

    `forward_bytes` and `backward_bytes` are exact. `pairs` are the visible ones that each computes, `memory` the most
    bytes of tensors beyond its inputs, outputs and gradients, both by estimate. `seconds` is the time of a step in
    which all processes move on together, or None without a bandwidth and a speed. `exchanged`: whether halves change
    places.
    """

    world: int
    layout: str
    exchanged: bool
    pairs: tuple[int, ...]
    forward_bytes: tuple[int, ...]
    backward_bytes: tuple[int, ...]
    memory: tuple[int, ...]
    seconds: float | None

    @property
    def bytes_sent(self) -> tuple[int, ...]:
        """By each process, forward and backward."""
        return tuple(map(sum, zip(self.forward_bytes, self.backward_bytes, strict=True)))

    @property
    def uneven(self) -> float:
        """The largest share of the work over the mean."""
        return max(self.pairs) * self.world / sum(self.pairs) if sum(self.pairs) else 1.0

    def __str__(self) -> str:
        moved = ", halves exchanged" if self.exchanged else ""
        lines = [
            f"ring            {self.world} processes, {self.layout}{moved}",
            f"visible pairs   {sum(self.pairs):,}, at most {max(self.pairs):,} on one ({self.uneven:.1%} of the mean)",
            f"sent forward    {_most(self.forward_bytes)}",
            f"sent backward   {_most(self.backward_bytes)}",
            f"memory          at most {_scaled(max(self.memory))} on one, beyond inputs, outputs and gradients",
        ]
        if self.seconds is not None:
            lines.append(f"time            {self.seconds:.3g} s a step, forward and backward")
        return "\n".join(lines)


def ring_plan(
    request: Request, world: int, layout: str, bandwidth: float | None = None, flops: float | None = None
) -> RingPlan:
    """The plan of a whole call that is divided evenly."""
    whole("world", world, least=1)
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be 'contiguous' or 'zigzag', got {layout!r}")
    if not isinstance(request.normalizer, Softmax):
        raise ValueError(f"a ring merges softmax parts, the normalizer is {request.normalizer!r}; use one process")
    if (bandwidth is None) != (flops is None):
        raise ValueError("the time of a step needs both: bandwidth= bytes a second and flops= operations a second")
    plane = request.plane
    model = traffic(request, layout, even(plane.queries, world), even(plane.keys, world))
    ranks, lanes = range(world), plane.batch * plane.heads
    seconds = None
    if bandwidth is not None and flops is not None:
        seconds = _seconds(model, positive("bandwidth", bandwidth), positive("flops", flops))
    return RingPlan(
        world=world,
        layout=layout,
        exchanged=(model.route.queries, model.route.keys) != model.given,
        pairs=tuple(lanes * pairs for pairs in model.route.pairs),
        forward_bytes=tuple(model.forward(rank) for rank in ranks),
        backward_bytes=tuple(model.backward(rank) for rank in ranks),
        memory=tuple(memory(model, rank) for rank in ranks),
        seconds=seconds,
    )


def _seconds(model: Traffic, bandwidth: float, flops: float) -> float:
    """A step as long as its slowest process, keys under way while others are computed; exchanges stand alone."""
    request, way, w = model.request, model.route, model.widths
    widths = request.query.shape[-1], request.key.shape[-1]
    pair = request.plane.batch * request.plane.heads * (request.score.flops(*widths) + 2 * request.value.shape[-1])
    forward = backward = 0.0
    row = w.key + w.value
    for step in range(way.world):
        work = max(sum(part.pairs for part in way.rectangles[r][(r - step) % way.world]) for r in range(way.world))
        lengths = [
            sum(span.length for span in way.columns((r + step + 1) % way.world, r)) if step + 1 < way.world else 0
            for r in range(way.world)
        ]
        wide = w.wide_key + w.wide_value
        forward += max(work * pair / flops, max(lengths) * row / bandwidth)
        backward += max(BACKWARD * work * pair / flops, max(lengths) * (row + wide) / bandwidth)
    alone = max(
        model.forward(rank) + model.backward(rank) - model.sent(rank) * 2 * row - model.returned(rank) * wide
        for rank in range(way.world)
    )
    return forward + backward + alone / bandwidth


def _most(numbers: tuple[int, ...]) -> str:
    return f"at most {_scaled(max(numbers))} by one, {_scaled(sum(numbers))} by all"


def _scaled(number: int) -> str:
    size = float(number)
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == UNITS[0] else f"{size:,.1f} {unit}"
