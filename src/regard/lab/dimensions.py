"""dimensions: how a model's width is cut into heads, and what that changes: not the work of the products, but √d_k.

Shapes of known models are from the literature; their parameters and operations are computed by formula, and counted:
parameters on a real layer, operations by torch's counter and by `plan`. What depends on the number of heads is then
measured on layers of BERT-base's width with initial weights.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regard.engine.attend import attend
from regard.engine.plan import plan
from regard.inspection.records import Arrow, Bars, Box, Cell, Diagram, Line, Lines, Panel, Table
from regard.lab.cost import milliseconds, one_thread, operations
from regard.lab.maps import attend_statistics
from regard.lab.report import (
    CONCEPTS,
    Claim,
    Evidence,
    Report,
    Takeaway,
    Timing,
    all_of,
    below,
    compared,
    near,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import curve, mean, parameters, positive
from regard.nn import MultiHeadAttention
from regard.progress import report
from regard.spec.scores import ScaledDot

LENGTH = 512  # tokens: the longest text of BERT
SHORT = 64  # tokens of the measured layers
HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96)  # each divides 768
SHOWN = ("BERT-base", "T5 v1.1 small", "SmolLM2-135M", "Llama 3.2 1B", "Gemma 2B")


@dataclass(frozen=True)
class LayerShape:
    """The sizes of one attention layer of a known model."""

    model: str
    d_model: int
    heads: int
    kv_heads: int
    d_k: int
    biases: bool

    @property
    def parameters(self) -> int:
        """W_Q, W_K, W_V and W_O, and their biases."""
        queries, keys = self.heads * self.d_k, self.kv_heads * self.d_k
        biases = queries + 2 * keys + self.d_model if self.biases else 0
        return self.d_model * (2 * queries + 2 * keys) + biases

    @property
    def projecting(self) -> int:
        """Operations of the four projections of a text: linear in its length."""
        return 2 * LENGTH * self.d_model * self.d_k * (2 * self.heads + 2 * self.kv_heads)

    @property
    def pairing(self) -> int:
        """Operations of scores and of weighted values: quadratic in the length."""
        return 4 * LENGTH**2 * self.heads * self.d_k

    def layer(self) -> MultiHeadAttention:
        """The layer, as shapes without numbers."""
        with torch.device("meta"):
            return MultiHeadAttention(
                self.d_model, self.heads, kv_heads=self.kv_heads, d_k=self.d_k, projection_bias=self.biases
            )

    def counted(self) -> tuple[int, int, int]:
        """Parameters and operations of that layer, counted: projections by torch's counter, pairs by `plan`."""
        layer, x = self.layer(), torch.empty(1, LENGTH, self.d_model, device="meta")
        joined = torch.empty(1, LENGTH, self.heads * self.d_k, device="meta")
        projecting = sum(
            operations(lambda part=part, given=given: part(given))  # type: ignore[misc]
            for part, given in ((layer.q_proj, x), (layer.k_proj, x), (layer.v_proj, x), (layer.out_proj, joined))
        )
        # the query heads of one key head, times the number of key heads
        query, key = torch.zeros(1, self.heads // self.kv_heads, LENGTH, self.d_k), torch.zeros(1, 1, LENGTH, self.d_k)
        pairing = self.kv_heads * plan(query, key, key, engine="tiled").flops
        return parameters(layer), projecting, pairing


BERT = LayerShape("BERT-base", 768, 12, 12, 64, True)
WIDTH = BERT.d_model
MODELS = (
    LayerShape("Transformer base", 512, 8, 8, 64, False),
    BERT,
    LayerShape("BERT-large", 1024, 16, 16, 64, True),
    LayerShape("GPT-2 small", 768, 12, 12, 64, True),
    LayerShape("GPT-2 XL", 1600, 25, 25, 64, True),
    LayerShape("GPT-3 175B", 12288, 96, 96, 128, True),
    LayerShape("T5-base", 768, 12, 12, 64, False),
    LayerShape("T5 v1.1 small", 512, 6, 6, 64, False),
    LayerShape("T5-3B", 1024, 32, 32, 128, False),
    LayerShape("T5-11B", 1024, 128, 128, 128, False),
    LayerShape("Llama 3.2 1B", 2048, 32, 8, 64, False),
    LayerShape("Llama 3 8B", 4096, 32, 8, 128, False),
    LayerShape("Llama 2 70B", 8192, 64, 8, 128, False),
    LayerShape("Gemma 2B", 2048, 8, 1, 256, False),
    LayerShape("Gemma 7B", 3072, 16, 16, 256, False),
    LayerShape("SmolLM2-135M", 576, 9, 3, 64, False),
)


@dataclass(frozen=True)
class HeadSplit:
    """A layer of BERT-base's width in h heads: operations counted, and one number per repetition of the others."""

    heads: int
    parameters: int
    operations: int
    exponentials: int
    spread: Tensor  # standard deviation of q · k
    used: Tensor  # keys in use with its own √d_k
    borrowed: Tensor  # and with the √d_k of BERT-base

    @property
    def d_k(self) -> int:
        """The width of a head."""
        return WIDTH // self.heads


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=20, quick=4)
    with one_thread():
        cuts = [measured(setting, heads, repetitions) for heads in setting.each("heads:", HEADS)]
    return Report(
        "dimensions",
        "What are d_model, d_k, d_v and h in known models, and what changes when a width is cut into more heads?",
        (model_table(), cut_table(cuts)),
        (shape_picture(), model_picture(), line_picture(cuts)),
        finding(cuts),
        compared(*claims(cuts)),
        setting.record(repetitions, tokens_of_the_table_of_models=LENGTH, tokens_measured=SHORT),
        clock(setting),
        why="A model is described by these four numbers; they decide what its attention costs and what √d_k is.",
        setup="d_model is how many numbers a token has, h how many heads there are, d_k the numbers of a query or key "
        f"in one head and d_v those of a value. Layers of {WIDTH} numbers, as in BERT-base, are cut into {HEADS[0]} to "
        f"{HEADS[-1]} heads; their work is counted, and random tokens pass through them with the weights that a layer "
        "starts with.",
        takeaway=takeaway(cuts),
        thumbnail=line_picture(cuts).pictures[1],
    )


def measured(setting: Setting, heads: int, repetitions: int) -> HeadSplit:
    """New layers with weights as they start, over new random tokens."""
    rows = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(setting.seed)
        for _ in range(repetitions):
            layer = MultiHeadAttention(WIDTH, heads, engine="tiled")
            x = torch.randn(1, SHORT, WIDTH)
            query, key = (part(x).unflatten(-1, (heads, -1)).transpose(1, 2) for part in (layer.q_proj, layer.k_proj))
            row = [(query @ key.mT).std()]
            for scale in (None, 1 / math.sqrt(BERT.d_k)):
                _, statistics = attend_statistics(query, key, key, "entropy", score=ScaledDot(scale))
                row.append(statistics["entropy"].exp().mean())
            rows.append(torch.stack(row))
        products = operations(lambda: layer(x))
    return HeadSplit(heads, parameters(layer), products, heads * SHORT**2, *torch.stack(rows, 1))


def model_table() -> Table:
    """Sizes, parameters and operations of known models, and whether the counts agree with the formulas."""
    rows = [
        (
            shape.model,
            shape.d_model,
            str(shape.heads) if shape.heads == shape.kv_heads else f"{shape.heads} over {shape.kv_heads}",
            shape.d_k,
            shape.heads * shape.d_k,
            f"{shape.parameters:,}",
            f"{shape.projecting / 1e9:.2f}",
            f"{shape.pairing / 1e9:.2f}",
            "agree" if shape.counted() == (shape.parameters, shape.projecting, shape.pairing) else "differ",
        )
        for shape in MODELS
    ]
    columns = (
        *("model", "d_model", "h", "d_k = d_v", "h · d_k", "parameters", "GFLOP, projections", "GFLOP, pairs"),
        "formula and count",
    )
    return Table(columns, rows, f"One attention layer of known models (sizes from the literature), {LENGTH} tokens")


def cut_table(cuts: list[HeadSplit]) -> Table:
    """What stays and what changes with the number of heads."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(cut.heads, cut.d_k, f"{cut.parameters:,}", f"{cut.operations / 1e6:.1f}", f"{cut.exponentials:,}"),
            f"{math.sqrt(cut.d_k):.2f}",
            *map(mean, (cut.spread, cut.used, cut.borrowed)),
        )
        for cut in cuts
    ]
    columns = (
        *("h", "d_k", "parameters", "MFLOP", "exponentials", "√d_k", "spread of q · k", "keys in use, ÷ √d_k"),
        f"keys in use, ÷ √{BERT.d_k}",
    )
    title = f"d_model = {WIDTH} in h heads, {SHORT} tokens, weights as they start; mean and 95% interval"
    return Table(columns, rows, title)


def shape_picture() -> Diagram:
    """The shapes of one attention layer of BERT-base, from the tokens to the output."""
    n, width, heads, d_k = LENGTH, BERT.d_model, BERT.heads, BERT.d_k
    row, split = f"{n} × {width}", f"{heads} heads\n{n} × {d_k}"
    boxes = [Box(f"tokens\n{row}", 0.8, 1.25, 1.2, 0.5)]
    for number, name in enumerate("QKV"):
        boxes.append(Box(f"{name}\n{row}", 2.7, 0.45 + 0.8 * number, 1.1, 0.5, number))
    for number, name in enumerate("QKV"):
        boxes.append(Box(f"{name} in {split}", 4.75, 0.45 + 0.8 * number, 1.35, 0.5, number))
    boxes += [
        Box(f"softmax(Q Kᵀ / √{d_k})\n{heads} × {n} × {n}", 6.85, 0.85, 1.7, 0.5, 3),
        Box(f"weights · V\n{heads} × {n} × {d_k}", 8.85, 1.65, 1.4, 0.5, 4),
        Box(f"side by side\n{row}", 10.6, 1.65, 1.2, 0.5),
        Box(f"output\n{row}", 12.4, 1.65, 1.1, 0.5),
    ]
    arrows = [Arrow(0, number, f"W_{name}") for number, name in enumerate("QKV", 1)]
    arrows += [Arrow(number, number + 3) for number in (1, 2, 3)]
    arrows += [Arrow(4, 7), Arrow(5, 7), Arrow(7, 8), Arrow(6, 8), Arrow(8, 9), Arrow(9, 10, "W_O")]
    note = f"d_model = {width}, h = {heads}, d_k = d_v = {width} / {heads} = {d_k}; {n} tokens"
    return Diagram(boxes, arrows, f"Shapes in one attention layer of {BERT.model}", note)


def model_picture() -> Bars:
    """Numbers of a token in some models: its input, its queries, and its keys."""
    shapes = [next(shape for shape in MODELS if shape.model == name) for name in SHOWN]
    series = {
        "d_model": [float(shape.d_model) for shape in shapes],
        "queries, h · d_k": [float(shape.heads * shape.d_k) for shape in shapes],
        "keys (and values)": [float(shape.kv_heads * shape.d_k) for shape in shapes],
    }
    return Bars([shape.model for shape in shapes], series, "numbers of a token", "Widths of known models")


def line_picture(cuts: list[HeadSplit]) -> Panel:
    """Work and √d_k as multiples of one head's; keys in use with the right √d_k, and with BERT-base's for all."""
    first, heads = cuts[0], [cut.heads for cut in cuts]
    work = [
        Line("products", heads, [cut.operations / first.operations for cut in cuts]),
        Line("exponentials", heads, [cut.exponentials / first.exponentials for cut in cuts]),
        Line("√d_k", heads, [math.sqrt(cut.d_k / first.d_k) for cut in cuts]),
    ]
    keys = [
        curve("÷ √d_k", heads, [mean(cut.used) for cut in cuts]),
        curve(f"÷ √{BERT.d_k} for all", heads, [mean(cut.borrowed) for cut in cuts]),
    ]
    changes = Lines(work, "heads h", "of one head", "What h changes", log_x=True, log_y=True)
    return Panel((changes, Lines(keys, "heads h", "effective keys e^H", f"Keys in use, of {SHORT}", log_x=True)))


def clock(setting: Setting) -> Timing:
    """Milliseconds of the attention itself against h, projections left out."""
    length, rounds = setting.choose(full=(LENGTH, 15), quick=(256, 4))
    calls = {}
    for heads in HEADS:
        query, key, value = torch.randn(3, 1, heads, length, WIDTH // heads, generator=setting.generator())
        calls[str(heads)] = partial(attend, query, key, value)
    report("timing", 0, 1)
    times = list(milliseconds(calls, rounds).values())
    bert = times[HEADS.index(BERT.heads)]
    rows = [(heads, WIDTH // heads, time, time / bert) for heads, time in zip(HEADS, times, strict=True)]
    title = f"Milliseconds of `attend` over {length} tokens of width {WIDTH}, one thread, best of {rounds}"
    table = Table(("h", "d_k", "ms", f"of h = {BERT.heads}"), rows, title)
    return Timing((table,), (Lines([Line("", HEADS, times)], "heads h", "ms", "Measured time", log_x=True),))


def claims(cuts: list[HeadSplit]) -> tuple[Claim, ...]:
    """What is said of the dimensions."""
    equal = [shape.model for shape in MODELS if shape.heads * shape.d_k == shape.d_model]
    most, least = cuts[0], cuts[-1]
    constant = quoted(CONCEPTS, "**Total computation stays constant:** 12 heads × 64 dimensions = 768 total")
    smaller = quoted(CONCEPTS, "**√d_k changes with head count:** More heads → smaller d_k → smaller √d_k")
    between = f"{least.heads} heads over 1 head"
    spread = positive(least.spread / most.spread.mean())
    return (
        Claim(quoted(CONCEPTS, "d_k = d_v = 768 / 12 = 64"), "768 / 12", BERT.d_model // BERT.heads, near(64, 0.5)),
        Claim(
            quoted(CONCEPTS, "d_k = d_v = \\frac{d_{model}}{h}"),
            f"known models in which it is so, of {len(MODELS)}",
            len(equal),
            all_of(len(MODELS)),
            "a custom, not a law; see h · d_k in the table",
        ),
        Claim(constant, "12 × 64", BERT.heads * BERT.d_k, near(768, 0.5)),
        Claim(constant, f"operations of products, {between}", least.operations / most.operations, near(1, 0.001)),
        Claim(constant, f"exponentials of softmax, {between}", least.exponentials / most.exponentials, near(1, 0.001)),
        Claim(smaller, f"√d_k, {between}", math.sqrt(least.d_k / most.d_k), below(0.99)),
        Claim(smaller, f"spread of q · k, {between}", spread, below(0.99)),
    )


def takeaway(cuts: list[HeadSplit]) -> Takeaway:
    """What cutting a width into heads changes."""
    one, most = cuts[0], cuts[-1]
    between = f"{most.heads} heads over 1"
    return Takeaway(
        "More heads of smaller width cost the same products; what changes is √d_k, and each cut needs its own.",
        "Cutting a width into more heads changes its products here, or makes no difference to the scores.",
        (
            Evidence(f"operations of products, {between}", most.operations / one.operations, near(1, 0.001)),
            Evidence(f"spread of q · k, {between}", positive(most.spread / one.spread.mean()), below(0.5)),
            Evidence(f"keys in use ÷ √d_k, {between}", positive(most.used / one.used.mean()), near(1, 0.1)),
        ),
    )


def finding(cuts: list[HeadSplit]) -> str:
    """One sentence, from the numbers."""
    bert = next(cut for cut in cuts if cut.heads == BERT.heads)
    same = len({cut.operations for cut in cuts}) == 1
    used = [mean(cut.used).mean for cut in cuts]
    return (
        f"From {cuts[0].heads} to {cuts[-1].heads} heads the products of a layer of width {WIDTH} "
        f"{'take the same' if same else 'do not take the same'} {bert.operations / 1e6:.1f} MFLOP while √d_k falls "
        f"from {math.sqrt(cuts[0].d_k):.1f} to {math.sqrt(cuts[-1].d_k):.1f}: divided by its own √d_k every cut uses "
        f"{min(used):.0f} to {max(used):.0f} of {SHORT} keys, divided by "
        f"BERT-base's {math.sqrt(BERT.d_k):.0f} one head uses {mean(cuts[0].borrowed).mean:.1f} and {cuts[-1].heads} "
        f"heads {mean(cuts[-1].borrowed).mean:.1f}."
    )
