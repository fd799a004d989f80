"""tricks: flash attention, chunks and the cache of keys and values: what each saves, and what it costs.

Bytes are counted and not measured: for the formula as written and in chunks from the shapes of their tensors, for
regard's two engines that work block by block, as flash attention does, from `plan`. Operations are those of the
products. Both are the same in every run; measured times stand apart.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.inspection.records import Line, Lines, Panel, Picture, Table
from regard.lab.cost import growth_order, one_thread
from regard.lab.maps import normal
from regard.lab.report import (
    CONCEPTS,
    Claim,
    Compared,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    below,
    compared,
    near,
    quoted,
    within,
)
from regard.lab.setting import Setting
from regard.lab.statistics import mean
from regard.lab.stopwatch import Times, timed
from regard.lab.tricks import ways
from regard.lab.tricks.ways import AGAIN, CHUNK, CHUNKS, NAIVE, TILED, WIDTH, GenerationCost, generation_cost
from regard.nn import generate
from regard.progress import report

BUDGET = 1 << 30  # bytes
TRAINED = (NAIVE, CHUNKS, AGAIN, TILED)
CHECKED = 12  # tokens generated both ways while torch's counter runs
MEBI = 1 << 20
ANEW, CACHED = "every token anew", "with a cache"


@dataclass(frozen=True)
class PassCost:
    """Bytes of one way by length, and operations at the longest."""

    bytes: dict[int, int]
    operations: int

    @property
    def order(self) -> float:
        """The power of n that the bytes grow with, between the last two lengths."""
        near, far = list(self.bytes)[-2:]
        return growth_order(self.bytes[near], self.bytes[far], far / near)


@dataclass(frozen=True)
class TrickResults:
    """Everything that is the same in every run, by way: a forward pass, its error in each repetition and the longest
    text in `BUDGET`, a forward and backward pass; and generation by formula (`costs`) and as counted."""

    forward: dict[str, PassCost]
    errors: dict[str, Tensor]
    longest: dict[str, int]
    training: dict[str, PassCost]
    costs: list[GenerationCost]
    counted: GenerationCost
    same_tokens: bool
    projections: float

    @property
    def flash(self) -> str:
        """The fastest engine there is: the last."""
        return list(self.forward)[-1]

    def more(self, name: str) -> float:
        """Operations of a forward and a backward pass, in units of what the formula as written takes."""
        return self.training[name].operations / self.training[NAIVE].operations


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=10, quick=3)
    with one_thread():
        results = measured(setting, repetitions)
    return Report(
        "tricks",
        "What do flash attention, chunks and a cache of keys and values save, and what do they cost?",
        (forward_table(results), training_table(results), generation_table(results)),
        (memory_picture(results), generation_picture(results)),
        finding(results),
        compared(*claims(results)),
        setting.record(repetitions, width=WIDTH, queries_in_a_chunk=CHUNK),
        clock(setting, results.flash),
        why="These three tricks are why long texts fit into memory and why chat models answer without rereading "
        "everything for every word.",
        setup="The same attention is computed as the formula is written, with all n × n weights in memory; in chunks "
        f"of {CHUNK} queries; and block by block with a running softmax, as flash attention does. Bytes and operations "
        "are counted, not measured. Then a small language model writes a text, reading everything anew for each token "
        "or keeping the keys and values of the tokens before (the cache).",
        takeaway=takeaway(results),
    )


def measured(setting: Setting, repetitions: int) -> TrickResults:
    """Bytes, operations, errors and generation."""
    lengths = setting.choose(full=(512, 2048, 8192, 32768), quick=(512, 1024, 2048, 4096))
    trained = setting.choose(full=(256, 512, 1024, 2048), quick=(128, 256, 512))
    forward, longest, training = {}, {}, {}
    for name in setting.each("counting", list(ways.ways())):
        nbytes = {length: ways.forward_bytes(name, length) for length in lengths}
        forward[name] = PassCost(nbytes, ways.forward_operations(name, lengths[-1]))
        longest[name] = ways.longest(name, BUDGET, lengths[-1])
    for name in setting.each("counting the training of", TRAINED):
        counts = {length: ways.training(name, length) for length in trained}
        training[name] = PassCost({length: nbytes for length, (nbytes, _) in counts.items()}, counts[trained[-1]][1])
    report("generating", 0, 1)
    tokens = setting.choose(full=(16, 64, 256, 1024, 4096), quick=(16, 64, 256, 1024))
    return TrickResults(
        forward,
        errors(setting, repetitions),
        longest,
        training,
        [generation_cost(count) for count in tokens],
        *ways.generated(ways.small_model(setting.seed, "reference"), CHECKED),
        ways.projections(CHECKED),
    )


def errors(setting: Setting, repetitions: int) -> dict[str, Tensor]:
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
    naive = results.forward[NAIVE]
    near, far = list(naive.bytes)[1], list(naive.bytes)[-1]
    rows = [
        (
            name,
            f"{each.bytes[near] / MEBI:.2f}",
            f"{each.bytes[far] / MEBI:,.2f}",
            f"n^{each.order:.2f}",
            f"{results.longest[name]:,}",
            f"{each.operations / naive.operations:.2f}",
            mean(results.errors[name] * 1e7),
        )
        for name, each in results.forward.items()
    ]
    memory = (f"MiB, n = {near:,}", f"MiB, n = {far:,}", "grows as", "n in 1 GiB")
    title = (
        f"One head of width {WIDTH}, forward: memory beyond inputs and output, operations of naive = 1, relative error "
        "in float32 (mean and 95% interval)"
    )
    return Table(("way", *memory, "operations", "error · 10⁷"), rows, title)


def training_table(results: TrickResults) -> Table:
    """The same for a forward and a backward pass."""
    longest = max(results.training[NAIVE].bytes)
    rows = [
        (name, f"{each.bytes[longest] / MEBI:.2f}", f"n^{each.order:.2f}", f"{results.more(name):.3f}")
        for name, each in results.training.items()
    ]
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
            f"{cost.cache_bytes / 1024:,.0f}",
        )
        for cost in results.costs
    ]
    exact = results.counted == generation_cost(CHECKED)
    numbers, tokens = ("the same" if same else "other" for same in (exact, results.same_tokens))
    title = (
        f"Generating n tokens with a model of 2 layers, width 64, by formula; counted at n = {CHECKED}: {numbers} "
        f"numbers, {tokens} tokens with and without"
    )
    return Table(("n", "MFLOP without", "MFLOP with cache", "saved", "cache, KiB"), rows, title)


def memory_picture(results: TrickResults) -> Picture:
    """Memory against n, forward and in training."""
    pictures = []
    for title, costs in (("forward", results.forward), ("forward and backward", results.training)):
        lines = [
            Line(name, list(each.bytes), [nbytes / MEBI for nbytes in each.bytes.values()])
            for name, each in costs.items()
        ]
        pictures.append(Lines(lines, "n", "MiB", f"Memory, {title}", log_x=True, log_y=True))
    return Panel(pictures)


def generation_picture(results: TrickResults) -> Picture:
    """Operations of generation against n."""
    counts = [cost.count for cost in results.costs]
    lines = [
        Line(ANEW, counts, [cost.without / 1e6 for cost in results.costs]),
        Line(CACHED, counts, [cost.cached / 1e6 for cost in results.costs]),
    ]
    return Lines(lines, "tokens generated", "MFLOP", "Generation with and without a cache", log_x=True, log_y=True)


def clock(setting: Setting, flash: str) -> Timing:
    """Milliseconds of every way against n, of training at one length, and of generation."""
    lengths, turns = setting.choose(full=((256, 512, 1024, 2048, 4096), 7), quick=((256, 512, 1024), 3))
    every = {**ways.ways(), "torch's own": scaled_dot_product_attention}
    inputs = {length: torch.randn(3, 1, 2, length, WIDTH, generator=setting.generator()) for length in lengths}
    times = timed({n: {name: partial(way, *x) for name, way in every.items()} for n, x in inputs.items()}, turns)
    forward = times.table("n", "Forward, 2 heads", (NAIVE, flash))
    training, generation = training_clock(setting), generation_clock(setting)
    generated = generation.table("tokens", "Generating so many tokens", (ANEW, CACHED))
    drawn = (
        *times.pictures("n", "Measured time, forward"),
        *generation.pictures("tokens generated", "Measured time, generation"),
    )
    return Timing((forward, training, generated, *speed_tables(times, flash)), (Panel(drawn),) if drawn else ())


def speed_tables(times: Times, flash: str) -> tuple[Table, ...]:
    """What is said of the speed, beside what was measured at the shortest and the longest length, if it is steady."""
    quote, rule = quoted(CONCEPTS, "2-4× faster than naive implementation"), within(2, 4, "partly")
    claims = tuple(
        Claim(quote, f"time of the formula over that block by block, n = {n:,}", ratio, rule)
        for n in (min(times.by_size), max(times.by_size))
        if (ratio := times.ratio(n, NAIVE, flash)) is not None
    )
    return (Compared(f"{quote.document}, {quote.heading}, measured", claims).table(),) if claims else ()


def training_clock(setting: Setting) -> Table:
    """Milliseconds of a forward and a backward pass."""
    length, turns = setting.choose(full=(2048, 5), quick=(512, 3))
    every = ways.ways() | {AGAIN: partial(ways.chunked, again=True)}
    inputs = torch.randn(3, 1, 2, length, WIDTH, generator=setting.generator()).unbind()
    leaves = [each.clone().requires_grad_() for each in inputs]

    def both(way: ways.Way) -> None:
        with torch.enable_grad():
            torch.autograd.grad(way(*leaves).sum(), leaves)

    times = timed({length: {name: partial(both, way) for name, way in every.items()}}, turns)
    return times.table("n", "Forward and backward, 2 heads")


def generation_clock(setting: Setting) -> Times:
    """Milliseconds of generation with and without a cache."""
    counts, turns = setting.choose(full=((16, 32, 64, 128, 256), 3), quick=((16, 48, 96), 2))
    prompt, model = torch.zeros(1, 1, dtype=torch.long), ways.small_model(setting.seed, "auto")
    calls = {
        count: {ANEW: partial(ways.without, model, prompt, count), CACHED: partial(generate, model, prompt, count)}
        for count in counts
    }
    return timed(calls, turns)


def claims(results: TrickResults) -> tuple[Claim, ...]:
    """What is said of the three tricks."""
    naive, flash, chunks = (results.forward[name] for name in (NAIVE, results.flash, CHUNKS))
    last = results.costs[-1]
    saved, longer = last.without / last.cached, results.longest[CHUNKS] / results.longest[NAIVE]
    memory = quoted(CONCEPTS, "Reduces memory from O(n²) to O(n)")
    trade = quoted(CONCEPTS, "Trade compute for memory")
    power = "power of n with which the bytes grow"
    return (
        Claim(memory, f"{power}, as written", naive.order, near(2, 0.05)),
        Claim(memory, f"{power}, block by block", flash.order, below(1.05)),
        Claim(
            quoted(CONCEPTS, "Only compute Q for new token"),
            "projections of the new token that a step with a cache computes",
            results.projections,
            near(1, 0.5),
            "its K, V and output too; saved are K and V of the old tokens",
        ),
        Claim(
            quoted(CONCEPTS, "Avoids recomputing everything at each step"),
            f"work without a cache over work with one, {last.count:,} tokens",
            saved,
            above(1),
            "a new query still meets all keys",
        ),
        Claim(quoted(CONCEPTS, "Don't materialize full n×n matrix"), f"{power}, in chunks", chunks.order, below(1.05)),
        Claim(
            trade,
            "operations in chunks over those as written, forward",
            chunks.operations / naive.operations,
            above(1),
            "forward nothing is traded",
        ),
        Claim(
            trade,
            "operations in chunks over those as written, in training",
            results.more(AGAIN),
            above(1),
            "weights are computed again in the backward pass",
        ),
        Claim(
            quoted(CONCEPTS, "Enables longer sequences"),
            "longest text in 1 GiB, chunks over as written",
            longer,
            above(1),
        ),
    )


def takeaway(results: TrickResults) -> Takeaway:
    """What the tricks save."""
    naive, flash, last = results.forward[NAIVE], results.forward[results.flash], results.costs[-1]
    return Takeaway(
        "Block by block, attention needs memory for n tokens instead of n² weights at the same number of operations; a "
        "cache spares a growing text from being read again for every token.",
        "Block by block, attention does not save memory at the same number of operations here.",
        (
            Evidence("power of n with which the bytes grow, as written", naive.order, near(2, 0.05)),
            Evidence("power of n with which the bytes grow, block by block", flash.order, below(1.05)),
            Evidence("operations block by block over as written", flash.operations / naive.operations, near(1, 0.05)),
            Evidence(
                f"work without a cache over with one, {last.count:,} tokens", last.without / last.cached, above(2)
            ),
        ),
    )


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
