"""plan: what a call would do, without doing it: which engine and why, how much work, how much memory."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, overload

from torch import Tensor

from regard.arrays import Array
from regard.engine.arguments import unknown_keywords
from regard.engine.attend import ENGINES, choose, module
from regard.engine.memory import MemoryCounter, dense_bytes, output_bytes, tiled_bytes
from regard.engine.nested import Padded, is_jagged
from regard.engine.request import Request, Spec, request
from regard.engine.tiled.engine import lower_tiled
from regard.engine.tiled.tiles import TiledCall, TileSpan
from regard.spec.biases import Bias
from regard.spec.dropout import Dropout
from regard.spec.masks import Mask
from regard.spec.masks.count import visible_pairs
from regard.spec.normalizers import Normalizer, Softmax
from regard.spec.scores import ScaledDot, Score
from regard.spec.scores.modified import Wrapped

if TYPE_CHECKING:
    from regard.engine.ring import Ring
    from regard.engine.ring.plan import RingPlan


@dataclass(frozen=True)
class Plan:
    """What `attend` would do.

    `flops` counts the matrix products of the forward pass, two per multiply-add, exactly as torch's own counter does
    (which does not see those of the native engine). `computed_pairs` of `native` come in whole vectors and may include
    a few past the last key. `bytes` is the peak memory of the forward pass beyond inputs and outputs; None where only
    torch knows. Both hold for finite inputs: NaN and Inf take more work. `visible_pairs` is an upper bound unless
    `visible_exact`.
    """

    engine: str
    reasons: dict[str, str]
    visible_pairs: int
    visible_exact: bool
    computed_pairs: int
    all_pairs: int
    flops: int
    bytes: int | None
    second_order: str

    def __str__(self) -> str:
        visible = f"{'' if self.visible_exact else 'at most '}{self.visible_pairs:,}"
        memory = "only torch knows"
        if self.bytes is not None:
            memory = f"{scaled(self.bytes, 1024, BYTES)} beyond inputs and outputs"
        lines = [
            f"engine          {self.engine}",
            f"visible pairs   {visible} of {self.all_pairs:,} ({_share(self.visible_pairs, self.all_pairs)})",
            f"computed pairs  {self.computed_pairs:,} ({_share(self.computed_pairs, self.all_pairs)})",
            f"forward         {scaled(self.flops, 1000, FLOPS)} in products",
            f"memory          {memory}",
            f"second order    {self.second_order}",
        ]
        lines += [f"{f'not {name}':<16}{why}" for name, why in self.reasons.items()]
        return "\n".join(lines)


SCALARS = 256  # bytes for the single numbers that torch makes in passing
FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP")
BYTES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
SECOND_ORDER = {
    "reference": "correct, in the memory of the dense formula (queries × keys)",
    "tiled": "correct, in the memory of the dense formula (queries × keys)",
    "native": "correct, by tiled's formula, in the memory of the dense formula (queries × keys)",
    "sdpa": "as torch gives it: none from its fused kernels",
    "flex": "none: FlexAttention has first derivatives only",
}


@overload
def plan(
    query: Tensor | Array,
    key: Tensor | Array,
    value: Tensor | Array,
    *,
    aux: tuple[str, ...] | str = ...,
    engine: str = ...,
    **spec: Unpack[Spec],
) -> Plan: ...


@overload
def plan(
    query: Tensor | Array,
    key: Tensor | Array,
    value: Tensor | Array,
    *,
    aux: tuple[str, ...] | str = ...,
    engine: "Ring",
    bandwidth: float | None = ...,
    flops: float | None = ...,
    **spec: Unpack[Spec],
) -> "RingPlan": ...


@overload
def plan(
    query: Tensor | Array,
    key: Tensor | Array,
    value: Tensor | Array,
    *,
    aux: tuple[str, ...] | str = ...,
    engine: str = ...,
    world: int,
    layout: str = ...,
    bandwidth: float | None = ...,
    flops: float | None = ...,
    **spec: Unpack[Spec],
) -> "RingPlan": ...


def plan(
    query: Any,
    key: Any,
    value: Any,
    *,
    score: Score = ScaledDot(),
    mask: Mask | Tensor | Array | str | None = None,
    bias: Bias | Tensor | Array | None = None,
    temperature: float | Tensor | Array = 1.0,
    normalizer: Normalizer = Softmax(),
    dropout: float | Dropout = 0.0,
    query_start: int | Tensor | Array | None = None,
    aux: tuple[str, ...] | str = (),
    engine: "str | Ring" = "auto",
    world: int | None = None,
    layout: str = "contiguous",
    bandwidth: float | None = None,
    flops: float | None = None,
    **unknown: object,
) -> "Plan | RingPlan":
    """What `attend` would do with the same arguments: engine, reasons, pairs, work and memory.

    Raises what `attend` would raise. One tile is run to see what it holds; no random number is drawn.

    With `world`, or a `Ring` as the engine, what a ring would do with the whole of these inputs: bytes sent and memory
    of each process, and the time of a step if each sends `bandwidth` bytes and computes `flops` operations a second.

    >>> import torch, regard
    >>> q, k, v = torch.randn(3, 1, 8, 4096, 64)
    >>> regard.plan(q, k, v, mask=regard.masks.local(129)).visible_pairs
    4193792
    """
    if unknown:
        raise unknown_keywords("plan", unknown, (*Spec.__annotations__, "aux", "engine"))
    if any(map(is_jagged, (query, key, value))):
        padded = Padded.of(
            (query, key, value), {"score": score, "mask": mask, "bias": bias, "query_start": query_start}, aux
        )
        (query, key, value), mask, query_start = padded.inputs, padded.mask, padded.query_start
    with MemoryCounter() as lowering:
        checked = request(
            query,
            key,
            value,
            score=score,
            mask=mask,
            bias=bias,
            temperature=temperature,
            normalizer=normalizer,
            # a rate gets a fixed seed: a draw would move torch's generator, and the next call would drop other weights
            dropout=Dropout(dropout, 0) if isinstance(dropout, float) else dropout,
            query_start=query_start,
            aux=aux,
        )
        if world is not None or not isinstance(engine, str):
            from regard.engine.ring.plan import ring_plan

            ring = (world or 0, layout) if isinstance(engine, str) else (engine.world, engine.layout)
            return ring_plan(checked, *ring, bandwidth, flops)
        name = choose(checked, engine)
        if name not in ("sdpa", "flex"):  # their plans need shapes alone
            checked.hold_numbers()
        lowered = lower_tiled(checked) if name == "tiled" else None
    plane = checked.plane
    everything = plane.batch * plane.heads * plane.queries * plane.keys
    held: int | None = None
    if name in ("native", "flex"):
        computed, held = module(name).cost(checked)
        products = 2 * computed * (checked.key.shape[-1] + checked.value.shape[-1]) + _prepared(checked)
    elif lowered is not None:
        schedule = lowered[0].schedule
        computed = (
            plane.batch
            * plane.heads
            * sum(
                (rows.stop - rows.start) * sum(span.width * span.times for span in spans)
                for rows, spans in schedule.outline
            )
        )
        products = _tiled_flops(checked, lowered[0])
        held = max(0, tiled_bytes(checked, *lowered, lowering) - output_bytes(checked))
    else:
        computed, products = everything, _dense_flops(checked)
        if name == "reference":
            held = max(0, dense_bytes(checked, lowering) - output_bytes(checked))
    visible, exact = visible_pairs(checked.mask, plane)
    return Plan(
        engine=name,
        reasons=_reasons(checked, name, engine),
        visible_pairs=visible,
        visible_exact=exact,
        computed_pairs=computed,
        all_pairs=everything,
        flops=products,
        bytes=None if held is None else held + SCALARS,
        second_order=SECOND_ORDER[name],
    )


def _reasons(checked: Request, chosen: str, engine: str) -> dict[str, str]:
    """Why each of the other engines will not run, as a sentence."""
    by_name = engine != "auto" or os.environ.get("REGARD_ENGINE", "auto") != "auto"
    reasons = {}
    for name in ENGINES:
        if name == chosen:
            continue
        why = module(name).supports(checked)
        if why is not None:
            reasons[name] = f"It cannot do this: {why}."
        elif by_name:
            reasons[name] = f"It could, but {chosen!r} was asked for by name."
        else:
            reasons[name] = f"It could, but it runs only when asked for: engine={name!r}."
    return reasons


def _tiled_flops(checked: Request, kernel: TiledCall) -> int:
    passes = 2 if "received" in checked.aux else 1
    total = 0
    costs: dict[tuple[int, int, int], int] = {}
    for rows, spans in kernel.schedule.outline:
        for span in spans:
            total += passes * _score_flops(checked, kernel, rows, span, costs)
        columns = sum(span.width * span.times for span in spans)
        if spans and not isinstance(checked.normalizer, Softmax):  # whole rows, gaps between the tiles included
            columns = spans[-1].stop - spans[0].start
        total += 2 * (rows.stop - rows.start) * columns * kernel.d_value
    return checked.plane.batch * checked.plane.heads * total + _prepared(checked)


def _score_flops(
    checked: Request, kernel: TiledCall, rows: slice, span: TileSpan, costs: dict[tuple[int, int, int], int]
) -> int:
    """Products of the scores in some tiles, for one batch row and head.

    Tiles of the same size cost the same: anywhere, or for a positional score on the same diagonal.
    """
    score, segment = kernel.logits.score, kernel.schedule.segment
    if not checked.score.positional:
        return span.times * score.flops(next(kernel.schedule.tiles(rows, span)).pairs)
    total = 0
    for first in range(span.start, span.stop, segment):
        key = rows.stop - rows.start, span.width, rows.start - first
        if key not in costs:
            costs[key] = score.flops(checked.plane.pairs(rows, slice(first, first + span.width)))
        total += costs[key]
    return total


def _dense_flops(checked: Request) -> int:
    plane, score = checked.plane, checked.score
    while isinstance(score, Wrapped):
        score = score.score
    # the reference writes v · φ(a + b) and the vectors of offsets as sums, which are no matrix products
    pair = 0 if score.form == "sum" else 2 * checked.key.shape[-1]
    pairs = plane.batch * plane.heads * plane.queries * plane.keys
    return pairs * (pair + 2 * checked.value.shape[-1]) + 2 * _prepared(checked)


def _prepared(checked: Request) -> int:
    plane = checked.plane
    queries, keys = plane.batch * plane.heads * plane.queries, plane.batch * plane.kv_heads * plane.keys
    return checked.score.prepare_flops(queries, keys, checked.query.shape[-1], checked.key.shape[-1])


def scaled(number: int, step: int, units: tuple[str, ...]) -> str:
    """A number in the largest unit that leaves it at least 1; each unit is `step` of the one before."""
    size = float(number)
    for unit in units:
        if size < step or unit == units[-1]:
            break
        size /= step
    return f"{size:,.0f} {unit}" if unit == units[0] else f"{size:,.1f} {unit}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"
