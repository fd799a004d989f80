"""Report: which calls the override answered, and which it left to torch and why."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

NOTHING = (
    "no call of scaled_dot_product_attention or nn.MultiheadAttention came by; a model that multiplies and normalizes "
    "by itself (attn_implementation='eager') is not seen, nor is another thread"
)


@dataclass(frozen=True)
class InterceptedCall:
    """One kind of call: torch's function, the calling layer, shapes, and options beyond plain attention (`asked`).
    `by` is the engine that answered, or the reason why none did."""

    function: str
    layer: str
    query: tuple[int, ...]
    key: tuple[int, ...]
    dtype: str
    asked: str
    by: str


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """How often each kind of call was answered by regard (`served`) and by torch (`left_alone`)."""

    served: Counter[InterceptedCall] = field(default_factory=Counter)
    left_alone: Counter[InterceptedCall] = field(default_factory=Counter)

    def __repr__(self) -> str:
        return f"<Report: {_calls(self.served)} served, {self.left_alone.total()} left alone>"

    def __str__(self) -> str:
        """Two tables. Calls that differ in sizes alone share a line, which shows the smallest and the largest."""
        if not self.served and not self.left_alone:
            return NOTHING
        parts = []
        for title, calls, last in (("served", self.served, "engine"), ("left alone", self.left_alone, "because")):
            if calls:
                parts.append(f"{title}: {_calls(calls)}")
                parts += _table(("calls", "function", "layer", "query", "key", "type", "asked", last), _rows(calls))
        return "\n".join(parts)


def _calls(calls: Counter[InterceptedCall]) -> str:
    return "1 call" if calls.total() == 1 else f"{calls.total()} calls"


def _rows(calls: Counter[InterceptedCall]) -> Iterable[tuple[str, ...]]:
    alike: dict[tuple[object, ...], list[tuple[InterceptedCall, int]]] = {}
    for call, count in calls.items():
        name = (call.function, call.layer, len(call.query), len(call.key), call.dtype, call.asked, call.by)
        alike.setdefault(name, []).append((call, count))
    for same in alike.values():
        first = same[0][0]
        query, key = _sizes([call.query for call, _ in same]), _sizes([call.key for call, _ in same])
        total = str(sum(count for _, count in same))
        yield total, first.function, first.layer, query, key, first.dtype, first.asked or "-", first.by


def _sizes(shapes: list[tuple[int, ...]]) -> str:
    if not shapes[0]:
        return "-"
    axes = [(min(axis), max(axis)) for axis in zip(*shapes, strict=True)]
    return f"({', '.join(str(low) if low == high else f'{low}…{high}' for low, high in axes)})"


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [names, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  " + "  ".join([line[0].rjust(widths[0]), *map(str.ljust, line[1:], widths[1:])]).rstrip() for line in lines
    ]
