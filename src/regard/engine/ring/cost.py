"""What a ring would send, hold and take: the same sums that its passes make, without a process."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.cached import cached_property
from regard.engine.request import Request
from regard.engine.ring.agree import SIZE
from regard.engine.ring.route import Route, route
from regard.engine.ring.shards import Shards, shards_of

DOUBLE = 8  # bytes of an lse, of statistics while they are merged, and of a key's number


@dataclass(frozen=True)
class Widths:
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
    def of(cls, request: Request) -> "Widths":
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
    def widths(self) -> Widths:
        """Of its rows."""
        return Widths.of(self.request)

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
