"""tricks: flash attention, chunks and the cache of keys and values: what each saves, and what it costs.

Bytes are counted and not measured: of the formula as written and in chunks by weighing shapes, of regard's two engines
that work block by block, as flash attention does, from `plan`. Operations are those of the products. Both are the same
in every run; what a stopwatch says stands apart.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.inspection.records import Cell, Line, Lines, Panel, Picture, Table
from regard.lab.cost import growth_order, milliseconds, one_thread
from regard.lab.maps import normal
from regard.lab.report import CONCEPTS, Claim, Compared, Report, Timing, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import mean
from regard.lab.tricks import ways
from regard.lab.tricks.ways import (
    AGAIN,
    CHUNK,
    CHUNKS,
    NAIVE,
    TILED,
    WIDTH,
    GenerationCost,
    GenerationCount,
    generated,
    projections,
    small_model,
    without,
)
from regard.nn import generate
from regard.progress import report

BUDGET = 1 << 30  # bytes
TRAINED = (NAIVE, CHUNKS, AGAIN, TILED)
CHECKED = 12  # tokens generated both ways while torch's counter runs
MEBI = 1 << 20


@dataclass(frozen=True)
class ForwardCost:
    """One way: bytes by length and operations at the longest, forward alone; and its error in each repetition."""

    bytes: dict[int, int]
    operations: int
    longest: int
    error: Tensor

    @property
    def order(self) -> float:
        """The power of n that the bytes grow with, between the last two lengths."""
        near, far = list(self.bytes)[-2:]
        return growth_order(self.bytes[near], self.bytes[far], far / near)


@dataclass(frozen=True)
class TrickResults:
    """Everything that is the same in every run."""

    forward: dict[str, ForwardCost]
    training: dict[str, dict[int, tuple[int, int]]]
    costs: list[GenerationCost]
    counted: GenerationCount
    projections: float

    @property
    def flash(self) -> str:
        """The fastest engine there is: the last."""
        return list(self.forward)[-1]

    def more(self, name: str) -> float:
        """Operations of a forward and a backward pass, of what the formula as written takes."""
        longest = max(self.training[name])
        return self.training[name][longest][1] / self.training[NAIVE][longest][1]

    def training_order(self, name: str) -> float:
        """The power of n that the bytes of training grow with."""
        near, far = list(self.training[name])[-2:]
        return growth_order(self.training[name][near][0], self.training[name][far][0])


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=10, quick=3)
    with one_thread():
        results = measured(setting, repetitions)
    return Report(
        "tricks",
        "What do flash attention, chunks and a cache of keys and values save, and what do they cost?",
        (forward_table(results), training_table(results), generation_table(results)),
        (Panel((forward_picture(results), training_picture(results))), generation_picture(results)),
        finding(results),
        (Compared(f"{CONCEPTS}, section 10", claims(results)),),
        setting.record(repetitions, width=WIDTH, queries_in_a_chunk=CHUNK),
        clock(setting, results.flash),
    )


def measured(setting: Setting, repetitions: int) -> TrickResults:
    """Bytes, operations, errors and generation."""
    lengths = setting.choose(full=(512, 2048, 8192, 32768), quick=(512, 1024, 2048, 4096))
    trained = setting.choose(full=(256, 512, 1024, 2048), quick=(128, 256, 512))
    errors = wrong(setting, repetitions)
    forward = {}
    for name in setting.each("weighing", list(ways.ways())):
        held = {length: ways.forward_bytes(name, length) for length in lengths}
        work, longest = ways.forward_operations(name, lengths[-1]), ways.longest(name, BUDGET, lengths[-1])
        forward[name] = ForwardCost(held, work, longest, errors[name])
    training = {
        name: {length: ways.training(name, length) for length in trained}
        for name in setting.each("weighing the training of", TRAINED)
    }
    report("generating", 0, 1)
    counts = setting.choose(full=(16, 64, 256, 1024, 4096), quick=(16, 64, 256, 1024))
    counted = generated(small_model(setting.seed, "reference"), CHECKED)
    return TrickResults(forward, training, [GenerationCost(count) for count in counts], counted, projections(CHECKED))


def wrong(setting: Setting, repetitions: int) -> dict[str, Tensor]:
    """Root mean square of the error in float32, of what float64 gives, one number per repetition."""
    length, generator = 512, setting.generator()
    results: dict[str, list[Tensor]] = {name: [] for name in ways.ways()}
    for _ in range(repetitions):
        exact = [normal(generator, 1, 1, length, WIDTH) for _ in range(3)]
        truth = ways.naive(*exact)
        for name, way in ways.ways().items():
            with torch.no_grad():
                out = way(*(each.float() for each in exact)).double()
            results[name].append(((out - truth).square().mean() / truth.square().mean()).sqrt())
    return {name: torch.stack(each) for name, each in results.items()}


def forward_table(results: TrickResults) -> Table:
    """Bytes, their growth, reach, operations and errors."""
    first = next(iter(results.forward.values()))
    near, far = list(first.bytes)[1], list(first.bytes)[-1]
    rows = [
        (
            name,
            f"{each.bytes[near] / MEBI:.2f}",
            f"{each.bytes[far] / MEBI:,.2f}",
            f"n^{each.order:.2f}",
            f"{each.longest:,}",
            f"{each.operations / first.operations:.2f}",
            mean(each.error * 1e7),
        )
        for name, each in results.forward.items()
    ]
    columns = (
        *("way", f"MiB, n = {near:,}", f"MiB, n = {far:,}", "grows as", "n in 1 GiB", "operations"),
        "error · 10⁷",
    )
    title = (
        f"One head of width {WIDTH}, forward: memory beyond inputs and output, operations of naive = 1, relative error "
        "in float32 (mean and 95% interval)"
    )
    return Table(columns, rows, title)


def training_table(results: TrickResults) -> Table:
    """The same for a forward and a backward pass."""
    longest = max(results.training[NAIVE])
    rows = []
    for name in TRAINED:
        held = f"{results.training[name][longest][0] / MEBI:.2f}"
        rows.append((name, held, f"n^{results.training_order(name):.2f}", f"{results.more(name):.3f}"))
    title = f"Forward and backward, n = {longest:,}; “again” computes the weights of a chunk once more to go back"
    return Table(("way", "MiB", "grows as", "operations"), rows, title)


def generation_table(results: TrickResults) -> Table:
    """Operations with and without a cache."""
    rows = [
        (
            cost.count,
            f"{cost.without / 1e6:,.1f}",
            f"{cost.cached / 1e6:,.1f}",
            f"{cost.without / cost.cached:,.0f}×",
            f"{cost.held / 1024:,.0f}",
        )
        for cost in results.costs
    ]
    numbers, tokens = ("the same" if same else "other" for same in (exact(results), results.counted.same))
    title = (
        f"Generating n tokens with a model of 2 layers, width 64, by formula; counted at n = {CHECKED}: {numbers} "
        f"numbers, {tokens} tokens with and without"
    )
    return Table(("n", "MFLOP without", "MFLOP with cache", "saved", "cache, KiB"), rows, title)


def exact(results: TrickResults) -> bool:
    """Whether the formulas give what was counted."""
    cost, counted = GenerationCost(CHECKED), results.counted
    return (cost.without, cost.cached, cost.held) == (counted.without, counted.cached, counted.held)


def forward_picture(results: TrickResults) -> Picture:
    """Memory against n."""
    lines = [
        Line(name, list(each.bytes), [held / MEBI for held in each.bytes.values()])
        for name, each in results.forward.items()
    ]
    return Lines(lines, "n", "MiB", "Memory, forward", log_x=True, log_y=True)


def training_picture(results: TrickResults) -> Picture:
    """Memory of training against n."""
    lines = [
        Line(name, list(each), [held / MEBI for held, _ in each.values()]) for name, each in results.training.items()
    ]
    return Lines(lines, "n", "MiB", "Memory, forward and backward", log_x=True, log_y=True)


def generation_picture(results: TrickResults) -> Picture:
    """Operations of generation against n."""
    counts = [cost.count for cost in results.costs]
    lines = [
        Line("every token anew", counts, [cost.without / 1e6 for cost in results.costs]),
        Line("with a cache", counts, [cost.cached / 1e6 for cost in results.costs]),
    ]
    return Lines(lines, "tokens generated", "MFLOP", "Generation with and without a cache", log_x=True, log_y=True)


def clock(setting: Setting, flash: str) -> Timing:
    """Milliseconds of every way against n, of training at one length, and of generation."""
    lengths, rounds = setting.choose(full=((256, 512, 1024, 2048, 4096), 7), quick=((256, 512, 1024), 3))
    every = {**ways.ways(), "torch's own": scaled_dot_product_attention}
    forward: dict[int, dict[str, float]] = {}
    for length in setting.each("timing n =", lengths):
        inputs = torch.randn(3, 1, 2, length, WIDTH, generator=setting.generator())
        forward[length] = milliseconds({name: partial(way, *inputs) for name, way in every.items()}, rounds)
    rows: list[tuple[Cell, ...]] = [
        (length, *(times[name] for name in every), f"{times[NAIVE] / times[flash]:.1f}×")
        for length, times in forward.items()
    ]
    speed = f"{NAIVE} ÷ {flash}"
    table = Table(("n", *every, speed), rows, f"Milliseconds forward, 2 heads, one thread, best of {rounds}")
    lines = [Line(name, list(forward), [times[name] for times in forward.values()]) for name in every]
    generation, curves = generation_clock(setting)
    ratios = [times[NAIVE] / times[flash] for times in forward.values()]
    return Timing(
        (table, training_clock(setting), generation, speed_table(ratios)),
        (Panel((Lines(lines, "n", "ms", "Measured time, forward", log_x=True, log_y=True), curves)),),
    )


def speed_table(ratios: list[float]) -> Table:
    """What is said of the speed, beside what the stopwatch says."""
    inside = sum(2 <= ratio <= 4 for ratio in ratios)
    word = "confirmed" if inside == len(ratios) else "partly" if max(ratios) > 1 else "not confirmed"
    verdict = f"{word}: within 2–4× at {inside} of {len(ratios)} lengths"
    row = ("flash is faster than naive", "2–4×", f"{min(ratios):.1f}× to {max(ratios):.1f}×", verdict)
    return Table(("claim", "the seed", "here", "verdict"), [row], f"{CONCEPTS}, section 10, by the stopwatch")


def training_clock(setting: Setting) -> Table:
    """Milliseconds of a forward and a backward pass."""
    length, rounds = setting.choose(full=(2048, 5), quick=(512, 3))
    every = ways.ways() | {AGAIN: partial(ways.chunked, again=True)}
    inputs = torch.randn(3, 1, 2, length, WIDTH, generator=setting.generator()).unbind()
    leaves = [each.clone().requires_grad_() for each in inputs]

    def both(way: ways.Way) -> None:
        with torch.enable_grad():
            torch.autograd.grad(way(*leaves).sum(), leaves)

    times = milliseconds({name: partial(both, way) for name, way in every.items()}, rounds)
    rows: list[tuple[Cell, ...]] = [(name, took, f"{times[NAIVE] / took:.1f}×") for name, took in times.items()]
    return Table(("way", "ms", "faster than naive"), rows, f"Forward and backward, n = {length:,}, best of {rounds}")


def generation_clock(setting: Setting) -> tuple[Table, Picture]:
    """Milliseconds of generation with and without a cache."""
    counts, rounds = setting.choose(full=((16, 32, 64, 128, 256), 3), quick=((16, 48, 96), 2))
    prompt, of, times = torch.zeros(1, 1, dtype=torch.long), small_model(setting.seed, "auto"), {}
    for count in setting.each("timing generation, n =", counts):
        works = {
            "every token anew": partial(without, of, prompt, count),
            "with a cache": partial(generate, of, prompt, count),
        }
        times[count] = milliseconds(works, rounds)
    names = list(times[counts[0]])
    rows: list[tuple[Cell, ...]] = [
        (count, *took.values(), f"{took[names[0]] / took[names[1]]:.1f}×") for count, took in times.items()
    ]
    table = Table(("n", *names, "saved"), rows, f"Milliseconds of generating n tokens, best of {rounds}")
    lines = [Line(name, list(counts), [took[name] for took in times.values()]) for name in names]
    return table, Lines(lines, "tokens generated", "ms", "Measured time, generation", log_x=True, log_y=True)


def claims(results: TrickResults) -> tuple[Claim, ...]:
    """What is said of the three tricks."""
    naive, flash, chunks = (results.forward[name] for name in (NAIVE, results.flash, CHUNKS))
    longest = results.costs[-1]
    saved, longer = longest.without / longest.cached, chunks.longest / naive.longest
    counts = "not said of counts: a stopwatch's, and this machine's"
    cached = f"{confirmed(saved > 1)}; a new query still meets all keys"
    return (
        Claim("flash: memory from O(n²)", "n²", f"n^{naive.order:.2f}", confirmed(abs(naive.order - 2) < 0.05)),
        Claim("flash: … to O(n)", "n", f"n^{flash.order:.2f}", confirmed(flash.order < 1.05)),
        Claim("flash: 2–4× faster than naive", "2–4×", "see the times", counts),
        Claim("cache: only Q for the new token", 1, results.projections, _projected(results.projections)),
        Claim(
            "cache: nothing computed anew", "everything kept", f"{saved:,.0f}× less at n = {longest.count:,}", cached
        ),
        Claim("chunks: no full n × n matrix", "less", f"n^{chunks.order:.2f}", confirmed(chunks.order < 1.05)),
        Claim("chunks: trade compute for memory", "yes", *_traded(results)),
        Claim("chunks: longer sequences", "longer", f"{longer:,.0f}× as long in 1 GiB", confirmed(longer > 1)),
    )


def _projected(projections: float) -> str:
    """Whether a cached step projects Q alone, or more."""
    more = "its K, V and output too" if projections == 4 else "more than Q"
    return "confirmed" if projections == 1 else f"corrected: {more}"


def _traded(results: TrickResults) -> tuple[str, str]:
    """Operations forward and in training, and whether there was a trade."""
    forward = results.forward[CHUNKS].operations / results.forward[NAIVE].operations
    training = results.more(AGAIN)
    verdict = "confirmed" if forward > 1 else "corrected: in training only" if training > 1 else "not confirmed"
    return f"forward × {forward:.2f}, training × {training:.2f}", verdict


def finding(results: TrickResults) -> str:
    """One sentence, from the numbers."""
    naive, flash = results.forward[NAIVE], results.forward[results.flash]
    far, last = max(naive.bytes), results.costs[-1]
    return (
        f"At n = {far:,} a head takes {naive.bytes[far] / MEBI:,.0f} MiB as written and {flash.bytes[far] / MEBI:.0f} "
        f"block by block, growing as n^{naive.order:.2f} and n^{flash.order:.2f}, with "
        f"{flash.operations / naive.operations:.2f} times the operations forward and {results.more(TILED):.2f} times "
        f"in training; to generate {last.count:,} tokens takes {last.without / last.cached:,.0f} times as much work "
        f"without a cache as with one."
    )
