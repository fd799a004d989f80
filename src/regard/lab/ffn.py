"""ffn: attention against the feed-forward layer: what each costs as texts grow, and what each can learn alone.

Costs are operations of the matrix products, by formula and counted on real layers. Then the two parts of a Transformer
block are trained alone and together on tokens that carry bits: to fetch a bit from another token, to compute the parity
of a token's own bits, and to do both. The models have no norms, because a norm is nonlinear and neither part has one.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import binary_cross_entropy_with_logits

from regard.inspection.records import Bars, Cell, Estimate, Line, Lines, Picture, Table
from regard.lab.cost import growth_order, one_thread, operations
from regard.lab.layers import block_diagram
from regard.lab.report import (
    CONCEPTS,
    Claim,
    DecisionRule,
    Evidence,
    Quote,
    Report,
    Takeaway,
    Timing,
    above,
    below,
    compared,
    near,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import mean, positive, share, training_time
from regard.lab.stopwatch import timed
from regard.lab.training import Task, Trained, train
from regard.nn import FeedForward, MultiHeadAttention

WIDTHS = (256, 512, 768, 1024, 4096)
DRAWN = 768
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
CHECKED = (64, 48)  # width and tokens of the layers on which torch's counter runs
KNOWN = 0.95  # a share of right answers that is called known
LINEAR = 0.8  # and one that is not: a linear rule gets up to 3/4 of the parities of two or three bits
ATTENTION, FEED, BOTH, DEEP = "attention alone", "feed-forward alone", "both", "attention × 3"
KINDS = {ATTENTION: "a", FEED: "f", BOTH: "af", DEEP: "aaa"}  # attention × 3 has as many parameters as both
ROUTE, ALONE, TRANSFORM, TOGETHER = "route", "transform, 1 token", "transform", "route, transform"
QUESTIONS = {
    ROUTE: "every token tells the first bit of the marked one",
    ALONE: "a text of one token tells the parity of its bits",
    TRANSFORM: "every token tells the parity of its own bits",
    TOGETHER: "every token tells the parity of the marked one's bits",
}


@dataclass(frozen=True)
class BlockCost:
    """Operations of one block of a width over n tokens; the feed-forward layer's hidden one is 4 times as wide."""

    width: int
    length: int

    @property
    def projections(self) -> int:
        """W_Q, W_K, W_V and W_O."""
        return 8 * self.length * self.width**2

    @property
    def pairs(self) -> int:
        """Scores and weighted values."""
        return 4 * self.length**2 * self.width

    @property
    def attention(self) -> int:
        """Projections and pairs."""
        return self.projections + self.pairs

    @property
    def feed(self) -> int:
        """W₁ and W₂."""
        return 16 * self.length * self.width**2


def crossing(width: int) -> int:
    """The first length at which attention costs more than the feed-forward layer, searched for."""
    length = 1
    while BlockCost(width, length).attention <= BlockCost(width, length).feed:
        length += 1
    return length


class BlockParts(torch_nn.Module):
    """(batch, length, features) to one logit per token, through the parts, each in a residual branch."""

    def __init__(self, kind: str, features: int, width: int, heads: int) -> None:
        super().__init__()
        self.enter = torch_nn.Linear(features, width)
        self.parts = torch_nn.ModuleList(
            MultiHeadAttention(width, heads, engine="reference") if part == "a" else FeedForward(width)
            for part in KINDS[kind]
        )
        self.leave = torch_nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, length)."""
        x = self.enter(x)
        for part in self.parts:
            x = x + part(x)
        logits: Tensor = self.leave(x)
        return logits.squeeze(-1)


def drawn(texts: int, length: int, bits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens (text, token, bit and mark) of −1 and 1, the mark last, and the place of the marked token of each text."""
    tokens = torch.randint(2, (texts, length, bits + 1), generator=generator) * 2.0 - 1
    place = torch.randint(length, (texts,), generator=generator)
    tokens[..., -1] = -1.0
    tokens[torch.arange(texts), place, -1] = 1.0
    return tokens, place


def answers(question: str, tokens: Tensor, place: Tensor) -> Tensor:
    """0 or 1 for every token: the first bit or the parity, of the marked token or of its own bits."""
    bits = tokens[..., :-1]
    if question in (ROUTE, TOGETHER):
        bits = bits[torch.arange(len(bits)), place].unsqueeze(1).expand_as(bits)
    return ((bits[..., 0] if question == ROUTE else bits.prod(-1)) > 0).float()


@dataclass(frozen=True)
class Bits(Task):
    """One question to one kind of model."""

    question: str
    kind: str
    length: int
    bits: int
    batch: int
    width: int = 32
    heads: int = 4

    @property
    def name(self) -> str:
        return f"ffn {self.question}, {self.kind.replace('×', 'x')} {self.seed}"

    def model(self) -> torch_nn.Module:
        return BlockParts(self.kind, self.bits + 1, self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        tokens, place = drawn(self.batch, self.length, self.bits, generator)
        return binary_cross_entropy_with_logits(model(tokens), answers(self.question, tokens, place))

    def right(self, model: torch_nn.Module, texts: int) -> float:
        """The share of right answers over other texts."""
        tokens, place = drawn(texts, self.length, self.bits, torch.Generator().manual_seed(self.seed + 1))
        with torch.no_grad():
            predicted = (model(tokens) > 0).float()
        return float((predicted == answers(self.question, tokens, place)).double().mean())


@dataclass(frozen=True)
class PartResults:
    """Counts on real layers, influence on other tokens, and right answers by question and kind."""

    counted: tuple[int, int]
    influence: dict[str, Tensor]
    right: dict[tuple[str, str], list[float]]
    runs: list[Trained]

    def known(self, question: str, kind: str) -> Estimate:
        """Right answers of all trainings."""
        return share(self.right[question, kind])


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=3, quick=2)
    with one_thread():
        results = measured(setting, repetitions)
    return Report(
        "ffn",
        "What do attention and the feed-forward layer cost as texts grow, and what can each learn without the other?",
        (cost_table(), crossing_table(results), *result_tables(results)),
        pictures(results),
        finding(results),
        compared(*claims(results)),
        setting.record(repetitions, steps=results.runs[0].task.steps),
        clock(setting, results),
        why="A Transformer block is these two layers and little else; knowing what each does explains why it has both.",
        setup="Tokens carry bits, and one token of each text is marked. Models of attention layers alone, of a "
        "feed-forward layer alone, and of both are trained to fetch a bit from the marked token (route), to compute "
        "the parity of bits, which no linear map can (transform), or to do both. Costs are counted operations.",
        takeaway=takeaway(results),
    )


def measured(setting: Setting, repetitions: int) -> PartResults:
    """Counts, influence and trainings."""
    generator = setting.generator()
    seeds = setting.seeds(repetitions, generator)
    right: dict[tuple[str, str], list[float]] = {}
    runs = []
    for question in QUESTIONS:
        for kind in KINDS:
            right[question, kind] = []
            for seed in seeds:
                task = training_task(setting, question, kind, seed)
                runs.append(train(task))
                right[question, kind].append(task.right(runs[-1].model, 2048 // task.length))
    return PartResults(count(), influence(setting, setting.choose(full=20, quick=5)), right, runs)


def training_task(setting: Setting, question: str, kind: str, seed: int) -> Bits:
    """What is trained: shorter if quick."""
    length = 1 if question == ALONE else 8
    steps, rate, bits = setting.choose(full=(250, 1e-2, 3), quick=(40, 2e-2, 2))
    return Bits(seed, steps, rate, 0.1, 1, question, kind, length, bits, batch=256 // length)


def count() -> tuple[int, int]:
    """Operations of a real attention layer and of a real feed-forward layer, by torch's counter."""
    width, length = CHECKED
    x = torch.zeros(1, length, width)
    with torch.no_grad():
        attention = MultiHeadAttention(width, 4, engine="tiled")
        return operations(lambda: attention(x)), operations(lambda: FeedForward(width)(x))


def influence(setting: Setting, repetitions: int) -> dict[str, Tensor]:
    """The largest change of another token's output when one token is replaced, relative to the change of its own."""
    changes: dict[str, list[Tensor]] = {"attention": [], "feed-forward": []}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(setting.seed)
        for _ in range(repetitions):
            x = torch.randn(1, 16, 64)
            other = x.clone()
            other[:, 3] = torch.randn(64)
            parts = {"attention": MultiHeadAttention(64, 4, engine="reference"), "feed-forward": FeedForward(64)}
            for name, part in parts.items():
                change = (part(other) - part(x))[0].norm(dim=-1)
                changes[name].append(torch.cat([change[:3], change[4:]]).max() / change[3])
    return {name: torch.stack(each) for name, each in changes.items()}


def cost_table() -> Table:
    """Operations against n, and the power of n they grow with."""
    rows: list[tuple[Cell, ...]] = []
    for length in LENGTHS:
        cost, twice = BlockCost(DRAWN, length), BlockCost(DRAWN, 2 * length)
        work = [f"{each / 1e9:.2f}" for each in (cost.projections, cost.pairs, cost.feed)]
        orders = growth_order(cost.attention, twice.attention), growth_order(cost.feed, twice.feed)
        rows.append((length, *work, f"{cost.attention / cost.feed:.2f}", *(f"n^{order:.2f}" for order in orders)))
    columns = ("n", "projections", "pairs", "feed-forward", "attention ÷ ff", "attention grows", "ff grows")
    return Table(columns, rows, f"GFLOP of one block, d_model = {DRAWN}, d_ff = {4 * DRAWN}")


def crossing_table(results: PartResults) -> Table:
    """From where on attention costs more."""
    rows = [(width, crossing(width) - 1, f"{(crossing(width) - 1) / width:g} · d_model") for width in WIDTHS]
    width = CHECKED[0]
    title = (
        f"Up to which n attention costs no more than the feed-forward layer; formulas and counts on layers of width "
        f"{width} {'agree' if agree(results) else 'differ'}"
    )
    return Table(("d_model", "n", "which is"), rows, title)


def agree(results: PartResults) -> bool:
    """Whether the formulas give what was counted."""
    cost = BlockCost(*CHECKED)
    return (cost.attention, cost.feed) == results.counted


def result_tables(results: PartResults) -> tuple[Table, Table]:
    """Right answers by question and kind, and whether a token influences the outputs of others."""
    rows: list[tuple[Cell, ...]] = [(name, *(results.known(name, kind) for kind in KINDS)) for name in QUESTIONS]
    bits = results.runs[0].task
    assert isinstance(bits, Bits)
    questions = "; ".join(f"{question}: {what}" for question, what in QUESTIONS.items())
    title = (
        f"Share of right answers on new texts, tokens of {bits.bits} bits (guessing: 0.5; where the marked one alone "
        f"knows, 0.56). {questions}"
    )
    changes = [(name, mean(each)) for name, each in results.influence.items()]
    replaced = "One token replaced: largest change at another, of that at its own"
    return Table(("question", *KINDS), rows, title), Table(("part", "change elsewhere"), changes, replaced)


def pictures(results: PartResults) -> tuple[Picture, ...]:
    """The block as a diagram, operations against n, and right answers as bars."""
    costs = [BlockCost(DRAWN, length) for length in LENGTHS]
    names = {"attention": "attention", "its pairs alone": "pairs", "feed-forward": "feed"}
    lines = [Line(name, LENGTHS, [getattr(cost, part) / 1e9 for cost in costs]) for name, part in names.items()]
    series = {kind: [results.known(question, kind).mean for question in QUESTIONS] for kind in KINDS}
    return (
        block_diagram(DRAWN),
        Lines(lines, "n", "GFLOP", f"One block, d_model = {DRAWN}", log_x=True, log_y=True),
        Bars(list(QUESTIONS), series, "right answers", "What each part learns (0.5 is guessing)"),
    )


def clock(setting: Setting, results: PartResults) -> Timing:
    """Milliseconds of either part against n."""
    width, lengths, turns = setting.choose(
        full=(256, (128, 256, 512, 1024, 2048, 4096), 5), quick=(128, (64, 128, 256, 512, 1024), 3)
    )
    attention, feed = MultiHeadAttention(width, 4), FeedForward(width)
    inputs = {length: torch.randn(1, length, width, generator=setting.generator()) for length in lengths}
    times = timed(
        {
            length: {"attention": partial(attention, x), "feed-forward": partial(feed, x)}
            for length, x in inputs.items()
        },
        turns,
    )
    title = f"Both parts, d_model = {width}; by operations they cross at n = {2 * width}"
    table = times.table("n", title, ("attention", "feed-forward"))
    return Timing((table, training_time(results.runs)), times.pictures("n", f"Measured time, d_model = {width}"))


GOOD = DecisionRule(((LINEAR, "corrected"), (KNOWN, "partly"), (math.inf, "confirmed")))
BAD = DecisionRule(((LINEAR, "confirmed"), (KNOWN, "partly"), (math.inf, "corrected")))


def claims(results: PartResults) -> tuple[Claim, ...]:
    """What is said of the two parts."""
    last, far = BlockCost(DRAWN, LENGTHS[-1]), BlockCost(DRAWN, 2 * LENGTHS[-1])
    first, second = (BlockCost(DRAWN, length) for length in (LENGTHS[0], 2 * LENGTHS[0]))
    complexity = quoted(CONCEPTS, "| **Complexity** | O(n²) | O(n) |")
    scope = quoted(CONCEPTS, "| **Scope** | All positions interact | Each position independent |")
    routing = quoted(CONCEPTS, "**Attention alone:** Good at routing, weak at transformation")
    feeding = quoted(CONCEPTS, "**FFN alone:** Good at transformation, no cross-position info")
    together = quoted(CONCEPTS, "**Together:** Route information, then transform it")
    power = "power of n with which the operations grow"
    linear = f"cheaper than the feed-forward layer up to n = {crossing(DRAWN) - 1:,}"
    alone = float(results.influence["feed-forward"].max())
    change = "change at another token when one is replaced, relative to its own"

    def answered(quote: Quote, question: str, kind: str, rule: DecisionRule, note: str = "") -> Claim:
        return Claim(quote, f"share of right answers, {kind}: {question}", results.known(question, kind), rule, note)

    return (
        Claim(
            complexity,
            f"{power}, attention, n = {far.length:,}",
            growth_order(last.attention, far.attention),
            above(1.5),
        ),
        Claim(
            complexity,
            f"{power}, attention, n = {second.length}",
            growth_order(first.attention, second.attention),
            above(1.5, "partly"),
            linear,
        ),
        Claim(complexity, f"{power}, feed-forward", growth_order(last.feed, far.feed), near(1, 0.01)),
        Claim(scope, f"{change}, attention", positive(results.influence["attention"]), above(0)),
        Claim(scope, f"largest {change}, feed-forward", alone, below(0)),
        answered(routing, ROUTE, ATTENTION, GOOD),
        answered(routing, ALONE, ATTENTION, BAD, "over one token it is linear"),
        answered(routing, TRANSFORM, ATTENTION, BAD, "among other tokens softmax is a nonlinearity"),
        answered(feeding, TRANSFORM, FEED, GOOD),
        answered(feeding, ROUTE, FEED, BAD),
        answered(together, TOGETHER, BOTH, GOOD),
    )


def takeaway(results: PartResults) -> Takeaway:
    """Why a block has both parts."""
    shares = "share of right answers"
    return Takeaway(
        "Attention fetches what other tokens hold, which a feed-forward layer cannot; a feed-forward layer transforms "
        "a single token, for which attention is linear; a block does both.",
        "Here a feed-forward layer fetches too, attention transforms a single token, or a block does not do both.",
        (
            Evidence(f"{shares}, {BOTH}: {TOGETHER}", results.known(TOGETHER, BOTH), above(LINEAR)),
            Evidence(f"{shares}, {FEED}: {ROUTE}", results.known(ROUTE, FEED), below(LINEAR)),
            Evidence(f"{shares}, {ATTENTION}: {ALONE}", results.known(ALONE, ATTENTION), below(LINEAR)),
        ),
    )


def finding(results: PartResults) -> str:
    """One sentence, from the numbers."""
    here = {pair: f"{results.known(*pair).mean:.0%}" for pair in results.right}
    limit = crossing(DRAWN) - 1
    bent = BAD.verdict(results.known(TRANSFORM, ATTENTION)) in ("partly", "corrected")
    return (
        f"At d_model = {DRAWN} attention costs less than the feed-forward layer up to n = {limit:,} "
        f"({limit / DRAWN:g} · d_model) and grows as n² only far beyond. Trained alone, attention tells a bit of "
        f"another token at {here[ROUTE, ATTENTION]} and the feed-forward layer at {here[ROUTE, FEED]}; the parity of "
        f"a single token's bits is told at {here[ALONE, ATTENTION]} by attention, which is linear there, and at "
        f"{here[ALONE, FEED]} by the feed-forward layer; among other tokens attention reaches "
        f"{here[TRANSFORM, ATTENTION]}{', for its softmax is a nonlinearity' if bent else ''}; to fetch and transform, "
        f"both together reach {here[TOGETHER, BOTH]}, alone they reach {here[TOGETHER, ATTENTION]} and "
        f"{here[TOGETHER, FEED]}."
    )
