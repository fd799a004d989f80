"""What a ring would send, hold and compute, without starting any process."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.checks import positive, whole
from regard.engine.plan import BYTES, scaled
from regard.engine.request import Request
from regard.engine.ring.ring import SIZE
from regard.engine.ring.shards import LAYOUTS, Shards, even, route, shards_of, uneven
from regard.spec.normalizers import Softmax

DOUBLE = 8  # bytes of an lse, of statistics while they are merged, and of a key's index


class Traffic:
    """Bytes that each process sends in one call, whose plane is the whole, for shards of these lengths.

    `query`, `key` and `value` are bytes of one row over all heads of the batch as they are sent; `wide_query`,
    `wide_key` and `wide_value` those of their gradients in the accumulating precision; `out` is a row of the output.
    """

    def __init__(
        self,
        request: Request,
        layout: str,
        queries: Sequence[int],
        keys: Sequence[int],
        gradients: tuple[bool, bool] = (True, True),
    ) -> None:
        """`gradients`: whether those of queries, and of keys and values, are computed."""
        self.request, self.gradients = request, gradients
        self.given = (shards_of(layout, queries), shards_of(layout, keys))
        self.route = route(request.mask, request.plane, layout, queries, keys)
        plane, self.itemsize = request.plane, request.dtype.itemsize
        self.batch_heads, kv_batch_heads = plane.batch * plane.heads, plane.batch * plane.kv_heads
        widths = [tensor.shape[-1] for tensor in (request.query, request.key, request.value)]
        numbers = [
            batch_heads * width
            for batch_heads, width in zip((self.batch_heads, kv_batch_heads, kv_batch_heads), widths, strict=True)
        ]
        self.query, self.key, self.value = (number * request.query.element_size() for number in numbers)
        self.wide_query, self.wide_key, self.wide_value = (number * self.itemsize for number in numbers)
        self.out = self.batch_heads * widths[2] * self.itemsize
        self.returns_lse = "lse" in request.aux or request.sink is not None

    @property
    def exchanged(self) -> bool:
        """Whether halves of the shards are exchanged before the call."""
        return (self.route.queries, self.route.keys) != self.given

    def forward(self, rank: int) -> int:
        """Bytes that a process sends in the forward pass."""
        aux = self.request.aux
        there, back = self._moved(rank)
        statistics = ("entropy", "peak", "peak_at", "distance", "max_logit")
        per_row = sum(name in aux for name in statistics) + self.returns_lse
        total = (self.route.world - 1) * SIZE
        total += there[0] * self.query + there[1] * (self.key + self.value)
        total += self.sent(rank) * (self.key + self.value)
        total += back[0] * (self.out + per_row * self.batch_heads * DOUBLE)
        if "received" in aux:
            total += self.sent(rank) * self.key + self.returned(rank) * self.batch_heads * self.itemsize
            total += back[1] * self.batch_heads * self.itemsize
        return total

    def backward(self, rank: int) -> int:
        """Bytes that a process sends in the backward pass."""
        queries, keys = self.gradients
        there, back = self._moved(rank)
        per_row = ("entropy" in self.request.aux) + self.returns_lse
        total = there[0] * (self.out + per_row * self.batch_heads * DOUBLE)
        total += self.sent(rank) * (self.key + self.value)
        total += back[0] * self.wide_query * queries
        return total + keys * (self.returned(rank) + back[1]) * (self.wide_key + self.wide_value)

    def needed(self, reader: int, source: int) -> int:
        """Keys of one process that another needs; ranks are modulo the number of processes."""
        world = self.route.world
        return sum(span.length for span in self.route.columns[reader % world][source % world])

    def sent(self, rank: int) -> int:
        """Keys that go from this process to others in one round."""
        return sum(self.needed(reader, rank) for reader in range(self.route.world) if reader != rank)

    def returned(self, rank: int) -> int:
        """Keys of others for which it returns sums."""
        return sum(self.needed(rank, source) for source in range(self.route.world) if source != rank)

    def _moved(self, rank: int) -> tuple[list[int], list[int]]:
        """Rows and keys that leave this process before and after the call, if halves are exchanged."""
        routes = list(zip(self.given, (self.route.queries, self.route.keys), strict=True))
        there = [_leaving(source, target, rank) for source, target in routes]
        return there, [_leaving(target, source, rank) for source, target in routes]


def _leaving(source: Shards, target: Shards, rank: int) -> int:
    others = [other for other in range(len(source.spans)) if other != rank]
    return sum(move.length for other in others for move in source.moves(target, rank, other))


def memory(model: Traffic, rank: int) -> int:
    """About the most bytes of tensors that a process holds beyond its inputs, outputs and gradients.

    Forward: rows and keys that came for the exchange, outputs in float64, and three blocks of keys: in use, arriving
    and leaving. Backward: also the gradients of a block, in use, leaving and arriving.
    """
    m, way = model, model.route
    rows, keys = way.queries.lengths[rank], way.keys.lengths[rank]
    kept = m.exchanged * (rows * (m.query + m.out) + keys * (m.key + m.value)) + rows * m.batch_heads * DOUBLE
    forward = kept + rows * (DOUBLE * m.out // m.itemsize)
    copies = m.exchanged + (m.wide_query != m.query)  # of gradients in the accumulating precision
    backward = kept + copies * (rows * (m.out + m.wide_query) + keys * (m.wide_key + m.wide_value))
    steps = [_step(model, rank, step) for step in range(way.world)]
    return max(forward + max(step[0] for step in steps), backward + max(step[1] for step in steps))


def _step(model: Traffic, rank: int, step: int) -> tuple[int, int]:
    """Bytes that one step adds, forward and backward."""
    m, needed, world = model, model.needed, model.route.world
    wide = m.wide_key + m.wide_value
    travel = (step > 0) * needed(rank, rank - step)
    travel += (step + 1 < world) * (needed(rank, rank - step - 1) + needed(rank + step + 1, rank))
    back = needed(rank, rank - step)
    back += (step > 1) * (needed(rank, rank - step + 1) + needed(rank + step - 1, rank))
    half = m.wide_query != m.query
    forward = local = 0
    for part in m.route.rectangles[rank][(rank - step) % world]:
        height, width = part.rows.length, part.columns.length
        inputs = half * (height * m.wide_query + width * wide)
        forward = max(forward, inputs + height * (m.out + 5 * m.batch_heads * m.itemsize))
        rows = height * (6 * m.out + m.wide_query + 8 * m.batch_heads * m.itemsize)
        local = max(local, inputs + rows + 2 * width * wide)
    keys = travel * (m.key + m.value)
    return keys + forward, keys + back * wide + local


BACKWARD = 3.5  # operations of a backward pass over those of a forward: every block again, then five products for two


@dataclass(frozen=True)
class RingPlan:
    """What each process of a ring would send, hold and compute in one step, forward and backward.

    `forward_bytes` and `backward_bytes` are exact. `pairs` are the visible ones that each computes, `memory` the most
    bytes of tensors beyond its inputs, outputs and gradients, both by estimate. `seconds` is the time of a step in
    which all processes move on together, or None without a bandwidth and a speed. `exchanged`: whether halves of the
    shards are exchanged before the call.
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
        return uneven(self.pairs)

    def __str__(self) -> str:
        moved = ", halves exchanged" if self.exchanged else ""
        most = scaled(max(self.memory), 1024, BYTES)
        lines = [
            f"ring            {self.world} processes, {self.layout}{moved}",
            f"visible pairs   {sum(self.pairs):,}, at most {max(self.pairs):,} on one ({self.uneven:.1%} of the mean)",
            f"sent forward    {_most(self.forward_bytes)}",
            f"sent backward   {_most(self.backward_bytes)}",
            f"memory          at most {most} on one, beyond inputs, outputs and gradients",
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
    model = Traffic(request, layout, even(plane.queries, world), even(plane.keys, world))
    ranks, batch_heads = range(world), plane.batch * plane.heads
    seconds = None
    if bandwidth is not None and flops is not None:
        seconds = _seconds(model, positive("bandwidth", bandwidth), positive("flops", flops))
    return RingPlan(
        world=world,
        layout=layout,
        exchanged=model.exchanged,
        pairs=tuple(batch_heads * pairs for pairs in model.route.pairs),
        forward_bytes=tuple(model.forward(rank) for rank in ranks),
        backward_bytes=tuple(model.backward(rank) for rank in ranks),
        memory=tuple(memory(model, rank) for rank in ranks),
        seconds=seconds,
    )


def _seconds(model: Traffic, bandwidth: float, flops: float) -> float:
    """A step takes as long as its slowest process; keys are sent meanwhile. Exchanges overlap with nothing."""
    request, way, world = model.request, model.route, model.route.world
    widths = request.query.shape[-1], request.key.shape[-1]
    pair = request.plane.batch * request.plane.heads * (request.score.flops(*widths) + 2 * request.value.shape[-1])
    row, wide = model.key + model.value, model.wide_key + model.wide_value
    seconds = 0.0
    for step in range(world):
        work = max(sum(part.pairs for part in way.rectangles[r][(r - step) % world]) for r in range(world))
        length = max(model.needed(r + step + 1, r) for r in range(world)) if step + 1 < world else 0
        seconds += max(work * pair / flops, length * row / bandwidth)
        seconds += max(BACKWARD * work * pair / flops, length * (row + wide) / bandwidth)
    alone = max(
        model.forward(rank) + model.backward(rank) - model.sent(rank) * 2 * row - model.returned(rank) * wide
        for rank in range(world)
    )
    return seconds + alone / bandwidth


def _most(numbers: tuple[int, ...]) -> str:
    return f"at most {scaled(max(numbers), 1024, BYTES)} by one, {scaled(sum(numbers), 1024, BYTES)} by all"
