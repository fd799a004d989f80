"""What a ring would send, hold and take, computed without any process."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.cached import cached_property
from regard.checks import positive, whole
from regard.engine.request import Request
from regard.engine.ring.agree import SIZE
from regard.engine.ring.shards import LAYOUTS, Route, Shards, even, route, shards_of
from regard.spec.normalizers import Softmax

DOUBLE = 8  # bytes of an lse, of statistics while they are merged, and of a key's number


@dataclass(frozen=True)
class RowBytes:
    """Bytes of one row over all lanes: of the inputs as they travel, of results and gradients as they accumulate."""

    query: int
    key: int
    value: int
    wide_query: int
    wide_key: int
    wide_value: int
    out: int
    lanes: int
    itemsize: int

    @classmethod
    def of(cls, request: Request) -> "RowBytes":
        """Those of a call."""
        plane, wide, size = request.plane, request.dtype.itemsize, request.query.element_size()
        heads, kv_heads = plane.batch * plane.heads, plane.batch * plane.kv_heads
        numbers = (
            heads * request.query.shape[-1],
            kv_heads * request.key.shape[-1],
            kv_heads * request.value.shape[-1],
        )
        query, key, value = (number * size for number in numbers)
        rest = [number * wide for number in numbers]
        return cls(query, key, value, rest[0], rest[1], rest[2], heads * request.value.shape[-1] * wide, heads, wide)


@dataclass(frozen=True)
class Traffic:
    """Bytes that each process sends in one call, by what they are."""

    request: Request
    given: tuple[Shards, Shards]
    route: Route
    gradients: tuple[bool, bool] = (True, True)  # of queries, of keys and values

    @cached_property
    def widths(self) -> RowBytes:
        """Of its rows."""
        return RowBytes.of(self.request)

    @property
    def tells_lse(self) -> bool:
        """Whether the rows' lse goes home."""
        return "lse" in self.request.aux or self.request.sink is not None

    def forward(self, rank: int) -> int:
        """In the forward pass."""
        w, aux, way = self.widths, self.request.aux, self.route
        there, back = self._moved(rank)
        rows = ("entropy", "peak", "peak_at", "distance", "max_logit")
        per_row = sum(name in aux for name in rows) + self.tells_lse
        total = (way.world - 1) * SIZE
        total += there[0] * w.query + there[1] * (w.key + w.value)
        total += self.sent(rank) * (w.key + w.value)
        total += back[0] * (w.out + per_row * w.lanes * DOUBLE)
        if "received" in aux:
            total += self.sent(rank) * w.key + self.returned(rank) * w.lanes * w.itemsize
            total += back[1] * w.lanes * w.itemsize
        return total

    def backward(self, rank: int) -> int:
        """In the backward pass."""
        w, (queries, keys) = self.widths, self.gradients
        there, back = self._moved(rank)
        per_row = ("entropy" in self.request.aux) + self.tells_lse
        total = there[0] * (w.out + per_row * w.lanes * DOUBLE)
        total += self.sent(rank) * (w.key + w.value)
        total += back[0] * w.wide_query * queries
        return total + keys * (self.returned(rank) + back[1]) * (w.wide_key + w.wide_value)

    def sent(self, rank: int) -> int:
        """Keys that go from this process to others in one round."""
        others = [reader for reader in range(self.route.world) if reader != rank]
        return sum(span.length for reader in others for span in self.route.columns(reader, rank))

    def returned(self, rank: int) -> int:
        """Keys of others for which it gives something back."""
        others = [source for source in range(self.route.world) if source != rank]
        return sum(span.length for source in others for span in self.route.columns(rank, source))

    def _moved(self, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows and keys that leave this process before, and after, if halves change places."""
        ways = list(zip(self.given, (self.route.queries, self.route.keys), strict=True))
        there = [_leaving(source, target, rank) for source, target in ways]
        back = [_leaving(target, source, rank) for source, target in ways]
        return (there[0], there[1]), (back[0], back[1])


def _leaving(source: Shards, target: Shards, rank: int) -> int:
    if source == target:
        return 0
    others = [other for other in range(len(source.spans)) if other != rank]
    return sum(move.length for other in others for move in source.moves(target, rank, other))


def traffic(
    request: Request,
    layout: str,
    queries: Sequence[int],
    keys: Sequence[int],
    gradients: tuple[bool, bool] = (True, True),
) -> Traffic:
    """That of a call, whose plane is the whole, for shards of these lengths."""
    given = (shards_of(layout, queries), shards_of(layout, keys))
    return Traffic(request, given, route(request.mask, request.plane, layout, queries, keys), gradients)


def memory(model: Traffic, rank: int) -> int:
    """About the most bytes of tensors that a process holds beyond its inputs, outputs and gradients.

    Forward: rows and keys that came for the exchange, outputs in double, and of the keys one block in use, the next and
    one on its way out. Backward: gradients of a block too, in use, on their way out and on their way in.
    """
    w, way = model.widths, model.route
    moved = (way.queries, way.keys) != model.given
    rows, keys = way.queries.lengths[rank], way.keys.lengths[rank]
    kept = moved * (rows * (w.query + w.out) + keys * (w.key + w.value)) + rows * w.lanes * DOUBLE
    forward = kept + rows * (DOUBLE * w.out // w.itemsize)
    copies = moved + (w.wide_query != w.query)  # of gradients in the precision that accumulates
    backward = kept + copies * (rows * (w.out + w.wide_query) + keys * (w.wide_key + w.wide_value))
    steps = [_step(model, rank, step) for step in range(way.world)]
    return max(forward + max(step[0] for step in steps), backward + max(step[1] for step in steps))


def _step(model: Traffic, rank: int, step: int) -> tuple[int, int]:
    """Bytes that one step adds, forward and backward."""
    w, way = model.widths, model.route
    world, wide = way.world, w.wide_key + w.wide_value

    def needed(reader: int, source: int) -> int:
        return sum(span.length for span in way.columns(reader % world, source % world))

    later = step + 1 < world
    travel = (step > 0) * needed(rank, rank - step)
    travel += later * (needed(rank, rank - step - 1) + needed(rank + step + 1, rank))
    back = needed(rank, rank - step)
    back += (step > 1) * (needed(rank, rank - step + 1) + needed(rank + step - 1, rank))
    half = w.wide_query != w.query
    forward = local = 0
    for part in way.rectangles[rank][(rank - step) % world]:
        height, width = part.rows.length, part.columns.length
        inputs = half * (height * w.wide_query + width * wide)
        forward = max(forward, inputs + height * (w.out + 5 * w.lanes * w.itemsize))
        rows = height * (6 * w.out + w.wide_query + 8 * w.lanes * w.itemsize)
        local = max(local, inputs + rows + 2 * width * wide)
    keys = travel * (w.key + w.value)
    return keys + forward, keys + back * wide + local


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
