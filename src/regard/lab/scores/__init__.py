"""scores: the six score functions side by side, what each costs and what it learns.

Costs and memory are counted, times are measured on the tiled engine, which computes all six. What is learned is a
problem whose best answer is known and bilinear (`lab/tasks/matching.py`): which key is a query a noisy picture of?
Widths are equal, or different and related by a hidden map.
"""

import math
from functools import partial

import torch

from regard.engine.attend import attend
from regard.engine.plan import plan
from regard.inspection.records import Bars, Cell, Line, Lines, Panel, Picture, Table
from regard.lab.cost import growth_order, milliseconds
from regard.lab.maps import normal
from regard.lab.report import (
    SCORE_FUNCTIONS,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    all_of,
    below,
    compared,
    near,
    quoted,
)
from regard.lab.scores.figures import FORMULAS, TIMELINE, response_picture, timeline
from regard.lab.scores.learning import (
    BARE,
    GUESSING,
    HIDDEN,
    KEYS,
    LIKE_BEST,
    NARROW,
    OTHER,
    SAME,
    TRAINED,
    WIDE,
    TrainedScores,
    learned,
    learning_rule,
    oddness,
    refusal,
    without_training,
)
from regard.lab.setting import Setting
from regard.lab.statistics import during, parameters, positive
from regard.lab.tasks.matching import LEARNED, PRODUCTS
from regard.spec.scores import Additive, ConcatMLP, Cosine, Dot, General, ScaledDot, Score

WIDTH, LENGTH = 64, 256
SIZES = {"n": (64, 128, 256, 512, 1024), "d": (16, 32, 64, 128, 256)}  # lengths and widths
FIXED = {"n": f"d = {WIDTH}", "d": f"n = {LENGTH}"}
DRAWN = ("additive", "scaled dot")  # those that add hold the same, and so do those that multiply
ENGINES = {"dense": "reference", "tiled": "tiled"}
MEBI = 2**20
BytesBySize = dict[tuple[str, str], list[int]]  # by score and engine


def run(setting: Setting) -> Report:
    """Run the experiment."""
    trainings = setting.choose(full=3, quick=2)
    by_score = learned(setting, trainings)
    odd = oddness(setting.generator())
    bare = [
        (name, *without_training(setting, name), "refused" if refusal(score) else "taken")
        for name, score in BARE.items()
    ]
    memory = {axis: bytes_by_size(axis) for axis in SIZES}
    return Report(
        "scores",
        "What do the six score functions cost, what does each learn, and when is which the right one?",
        (
            cost_table(),
            learned_table(by_score),
            Table(("score", "loss", "right", OTHER), bare, f"The same without any training, {SAME}: no W_Q, no W_K"),
            advice_table(by_score),
            Table(("year", "score", "authors", "what is new", "here"), TIMELINE, "Timeline (literature)"),
            memory_table(memory),
        ),
        (response_picture(), timeline(), learned_picture(by_score), memory_picture(memory)),
        finding(setting, by_score, odd),
        compared(*claims(setting, by_score, odd)),
        setting.record(trainings, steps=by_score["dot", OTHER].trained[0].task.steps),
        clock(setting),
        why="A score decides how well a key fits a query; everything else in attention is built on it.",
        setup=f"Six formulas are compared. Costs are counted; then small models learn which of {KEYS} keys a noisy "
        "query shows, where the best possible answer is known. Products (dot, scaled dot, cosine) have no parameters "
        "and learn through W_Q and W_K, two matrices before them; the others have parameters of their own. Dense means "
        "that all scores are held at once, tiled that they are computed block by block.",
        takeaway=takeaway(setting, by_score),
    )


def score_functions(width: int) -> dict[str, Score]:
    """The six for queries and keys of one width. Their parameters are random: costs do not depend on them."""
    generator = torch.Generator().manual_seed(0)
    w_query, w_key, w = (normal(generator, width, width).float() / width**0.5 for _ in range(3))
    v = normal(generator, width).float() / width**0.5
    return {
        "additive": Additive(w_query, w_key, v),
        "dot": Dot(),
        "scaled dot": ScaledDot(),
        "general": General(w),
        "cosine": Cosine(),
        "MLP of [q; k]": ConcatMLP(w_query, w_key, torch.zeros(width), v, "relu"),
    }


def numbers(score: Score) -> int:
    """How many parameters a score has."""
    return sum(tensor.numel() for tensor in score.parameters.values())


def work(score: Score, length: int, width: int) -> int:
    """Operations of the scores of n queries and n keys, in products."""
    return length**2 * score.flops(width, width) + score.prepare_flops(length, length, width, width)


def forward_bytes(score: Score, length: int, width: int, engine: str) -> int:
    """Peak memory of a forward pass beyond inputs and outputs, in bytes."""
    query, key, value = (torch.zeros(1, 1, length, width) for _ in range(3))
    nbytes = plan(query, key, value, score=score, engine=engine).bytes
    assert nbytes is not None
    return nbytes


def cost_table() -> Table:
    """Counted, the same on any machine."""
    rows: list[tuple[Cell, ...]] = []
    for name, score in score_functions(WIDTH).items():
        once = score.prepare_flops(LENGTH, LENGTH, WIDTH, WIDTH) / (2 * LENGTH)
        nonlinear = WIDTH if score.form == "sum" else 0
        counts = (numbers(score), score.flops(WIDTH, WIDTH), nonlinear, round(once))
        memory = [forward_bytes(score, LENGTH, WIDTH, engine) / MEBI for engine in ENGINES.values()]
        rows.append((name, FORMULAS[name], *counts, work(score, LENGTH, WIDTH) / 1e6, *memory))
    columns = (
        *("score", "formula", "parameters", "FLOPs a pair", "tanh, relu a pair", "FLOPs a token"),
        *("MFLOPs in all", "MiB, dense", "MiB, tiled"),
    )
    return Table(columns, rows, f"Counted for {LENGTH} queries and {LENGTH} keys of width {WIDTH}, one head")


def length_and_width(axis: str, size: int) -> tuple[int, int]:
    """The length and width of a call where one of them is `size`."""
    return (size, WIDTH) if axis == "n" else (LENGTH, size)


def bytes_by_size(axis: str) -> BytesBySize:
    """Bytes at each length, or at each width."""
    sizes = [length_and_width(axis, size) for size in SIZES[axis]]
    scores = [score_functions(width) for _, width in sizes]
    return {
        (name, shown): [forward_bytes(each[name], *size, engine) for each, size in zip(scores, sizes, strict=True)]
        for name in FORMULAS
        for shown, engine in ENGINES.items()
    }


def memory_table(memory: dict[str, BytesBySize]) -> Table:
    """At the largest sizes, and how it grows there when the size doubles."""
    rows: list[tuple[Cell, ...]] = []
    for name in FORMULAS:
        cells: list[Cell] = [name]
        for shown in ENGINES:
            far, wide = memory["n"][name, shown], memory["d"][name, shown]
            cells += [far[-1] / MEBI, f"n^{growth_order(*far[-2:]):.2f}", f"d^{growth_order(*wide[-2:]):.2f}"]
        rows.append(tuple(cells))
    before, last = SIZES["n"][-2:]
    named = [
        (f"{shown}, n = {last:,}", f"{shown} grows from n = {before}", f"… from d = {SIZES['d'][-2]}")
        for shown in ENGINES
    ]
    title = (
        f"MiB of a forward pass beyond inputs and outputs: one head, d = {WIDTH} where n grows, n = {LENGTH} where d"
    )
    return Table(("score", *(column for group in named for column in group)), rows, title)


def memory_picture(memory: dict[str, BytesBySize]) -> Picture:
    """Bytes against n and d, of a score that adds and one that multiplies."""
    pictures = []
    for axis, sizes in SIZES.items():
        lines = [
            Line(f"{name}, {shown}", sizes, [each / MEBI for each in memory[axis][name, shown]])
            for name in DRAWN
            for shown in ENGINES
        ]
        pictures.append(Lines(lines, axis, "MiB", f"Memory against {axis}, {FIXED[axis]}", log_x=True, log_y=True))
    return Panel(pictures)


def learned_table(by_score: TrainedScores) -> Table:
    """Losses and right answers."""
    problems = list(dict.fromkeys(problem for _, problem in by_score))
    rows: list[tuple[Cell, ...]] = []
    for score in TRAINED:
        how = "behind W_Q, W_K" if score in PRODUCTS else "own parameters"
        results = [by_score[score, problem] for problem in problems]
        measures = [cell for each in results for cell in (each.loss, each.right)]
        rows.append((score, how, parameters(by_score[score, OTHER].trained[0].model), *measures))
    results = [by_score["dot", problem] for problem in problems]
    rows.append(("best possible", "", "", *(cell for each in results for cell in (each.best_loss, each.best_right))))
    columns = [name for problem in problems for name in (f"loss, {problem}", f"right, {problem}")]
    title = (
        f"Trained: which of {KEYS} keys does a noisy query show (guessing: loss {math.log(KEYS):.2f}, right "
        f"{GUESSING:.0%}); mean and 95% interval over {len(by_score['dot', OTHER].trained)} trainings"
    )
    return Table(("score", "learns by", "parameters", *columns), rows, title)


def learned_picture(by_score: TrainedScores) -> Picture:
    """Loss during training with different widths, and right answers at the end."""
    drawn = [score for score in TRAINED if score != "cosine × 10"]  # as many as there are colors
    lines: list[Line] = [during(by_score[score, OTHER].trained, "new examples", score) for score in drawn]
    series = {"right": [by_score[score, OTHER].right.mean for score in TRAINED]}
    short = {"additive + bias": "add. + b", "additive": "add.", "scaled dot": "scaled", "MLP of [q; k]": "MLP"}
    labels = [short.get(score, score.replace("cosine", "cos")) for score in TRAINED]
    bars = Bars(labels, series, "share", "Answers right, new examples")
    return Panel((Lines(lines, "step", "loss (nats)", f"Trained, {OTHER}"), bars))


def advice_table(by_score: TrainedScores) -> Table:
    """The scenarios of the seed, what it recommends, and what this run says."""
    additive, scaled = (
        forward_bytes(score_functions(WIDTH)[name], LENGTH, WIDTH, "reference") for name in ("additive", "scaled dot")
    )
    right = {score: f"{by_score[score, OTHER].right.mean:.0%}" for score in TRAINED}
    best, flat = f"{by_score['dot', OTHER].best_right:.0%}", by_score["cosine", OTHER].loss.mean
    widths = f"project: {right['scaled dot']}; general: {right['general']}; additive: {right['additive']}"
    rows = [
        ("new Transformer model", "scaled dot", f"right {right['scaled dot']} of {best} behind W_Q, W_K"),
        ("different widths", "additive, or project", f"{widths}, with a bias {right['additive + bias']}"),
        ("maximum efficiency", "scaled dot", f"{additive / scaled:.0f} × less memory than additive (dense)"),
        ("interpretability", "cosine", f"right {right['cosine']}; loss {flat:.2f}: its weights stay flat"),
        ("legacy system", "as it was", "each of the six can be had"),
    ]
    return Table(("scenario", "the seed", "here"), rows, "Which score when")


def claims(setting: Setting, by_score: TrainedScores, odd: float) -> tuple[Claim, ...]:
    """What the seed says of costs, widths and use."""
    near_d, far = score_functions(WIDTH), score_functions(2 * WIDTH)
    additive, scaled = (
        growth_order(near_d[name].flops(WIDTH, WIDTH), far[name].flops(2 * WIDTH, 2 * WIDTH))
        for name in ("additive", "scaled dot")
    )
    learned_numbers = growth_order(numbers(near_d["additive"]), numbers(far["additive"]))
    free = numbers(near_d["dot"]) + numbers(near_d["scaled dot"])
    refused = [name for name, score in BARE.items() if refusal(score)]
    with torch.random.fork_rng(devices=[]):
        takes = not refusal(LEARNED["additive"](WIDE, NARROW, HIDDEN)())
    flexible, project, cosine = (by_score[name, OTHER] for name in ("additive", "scaled dot", "cosine"))
    rule = learning_rule(setting, project)
    right = f"share right with widths {WIDE} and {NARROW}"
    biased = by_score["additive + bias", OTHER].right.mean
    oddness = f"s(−q, −k) = −s(q, k) to {odd:.0e}" if odd else "s(−q, −k) = −s(q, k)"
    best = f"best possible {project.best_right:.2f}"
    advice = quoted(SCORE_FUNCTIONS, "Additive or project first")
    handled = quoted(
        SCORE_FUNCTIONS,
        "The learnable compatibility is handled by the **Q, K projection matrices** (W_Q, W_K), not the score function "
        "itself.",
    )
    cost = quoted(SCORE_FUNCTIONS, "| **Additive** | O(d²) | O(d²) parameters |")
    once = "W₁q and W₂k are computed once for a token, not for a pair"
    power = "power of d with which"
    return (
        Claim(cost, f"{power} the operations of a pair grow, additive", additive, near(2, 0.05), once),
        Claim(cost, f"{power} the parameters grow, additive", learned_numbers, near(2, 0.05)),
        Claim(
            quoted(SCORE_FUNCTIONS, "| **Scaled** | O(d) | O(1) |"),
            f"{power} the operations of a pair grow, scaled dot",
            scaled,
            near(1, 0.05),
        ),
        Claim(
            quoted(SCORE_FUNCTIONS, "None in score function itself"),
            "parameters of dot and scaled dot",
            free,
            below(0),
        ),
        Claim(
            quoted(SCORE_FUNCTIONS, "Q and K must have same dimension"),
            f"products that refuse different widths, of {len(BARE)}",
            len(refused),
            all_of(len(BARE)),
        ),
        Claim(
            quoted(SCORE_FUNCTIONS, "Q and K can have different dimensions"),
            "1 if the additive score takes different widths",
            int(takes),
            above(0.5),
        ),
        Claim(
            advice,
            f"additive: {right}",
            flexible.right,
            rule,
            f"{oddness}, and a match of vectors centered on 0 is even; with a bias {biased:.2f}. Inputs that are not "
            "centered, as in `translation`, need none",
        ),
        Claim(advice, f"project first: {right}", project.right, rule, best),
        Claim(
            quoted(SCORE_FUNCTIONS, "Cosine (bounded scores)"),
            "loss of the cosine score over the best possible",
            positive([each / cosine.best_loss for each in cosine.losses]),
            DecisionRule(((2.0, "confirmed"), (math.inf, "partly"))),
            "bounded scores keep the weights flat; multiplied by 10 it learns as well as the others",
        ),
        Claim(handled, f"scaled dot behind W_Q and W_K: {right}", project.right, rule, best),
    )


def takeaway(setting: Setting, by_score: TrainedScores) -> Takeaway:
    """Why the scaled dot product won."""
    scaled = by_score["scaled dot", OTHER]
    low = "not shown" if setting.quick else "corrected"  # a quick run ends before they have learned
    near_best = DecisionRule(((LIKE_BEST * scaled.best_right, low), (math.inf, "confirmed")))
    sums, product = (
        forward_bytes(score_functions(WIDTH)[name], LENGTH, WIDTH, "reference") for name in ("additive", "scaled dot")
    )
    return Takeaway(
        "A scaled dot product behind W_Q and W_K finds nearly what can be found, with a fraction of the memory of "
        "scores that add.",
        "A scaled dot product behind W_Q and W_K does not find what can be found here, or needs as much memory as "
        "scores that add.",
        (
            Evidence(
                f"share right, scaled dot, {OTHER} (best possible {scaled.best_right:.2f})", scaled.right, near_best
            ),
            Evidence(f"memory of additive over scaled dot, dense, n = {LENGTH}", sums / product, above(10)),
        ),
    )


def finding(setting: Setting, by_score: TrainedScores, odd: float) -> str:
    """Sentences, from the numbers."""
    best = by_score["dot", OTHER].best_right
    learns = DecisionRule(((LIKE_BEST * best, "less"), (math.inf, "near the best")))
    words = {score: learns.verdict(by_score[score, OTHER].right) for score in TRAINED}
    able = [
        f"{score} ({by_score[score, OTHER].right.mean:.0%})" for score in TRAINED if words[score] == "near the best"
    ]
    rest = [
        f"{score} ({by_score[score, OTHER].right.mean:.0%})" for score in TRAINED if words[score] != "near the best"
    ]
    steps = by_score["dot", OTHER].trained[0].task.steps
    others = f"after {steps} steps not yet: {', '.join(rest)}" if setting.quick else f"the others: {', '.join(rest)}"
    symmetric = "s(−q, −k) = −s(q, k)" if odd < 1e-6 else "its form"
    return (
        f"Queries and keys of different width, matched through a hidden map: the best possible is right {best:.0%} of "
        f"the time (guessing: {GUESSING:.0%}). Near it come {', '.join(able) or 'none'}; {others}. Without a bias "
        f"additive attention has {symmetric}, while a match does not care for the sign of both."
    )


def clock(setting: Setting) -> Timing:
    """Milliseconds of one forward pass against n and against d: one head, all on one engine, taken in turn."""
    tables, pictures = [], []
    for axis, every in SIZES.items():
        sizes = setting.choose(full=every, quick=every[0:3:2])
        measured = []
        for size in setting.each(f"{axis} =", sizes):
            generator = setting.generator()
            length, width = length_and_width(axis, size)
            query, key, value = (normal(generator, 1, 1, length, width).float() for _ in range(3))
            calls = {
                name: partial(attend, query, key, value, score=score, engine="tiled")
                for name, score in score_functions(width).items()
            }
            measured.append(milliseconds(calls, rounds=setting.choose(full=4, quick=2)))
        rows = [(size, *times.values()) for size, times in zip(sizes, measured, strict=True)]
        title = f"Milliseconds on the tiled engine against {axis}, {FIXED[axis]}, one head, one thread; best of several"
        tables.append(Table((axis, *FORMULAS), rows, title))
        lines = [Line(name, sizes, [times[name] for times in measured]) for name in FORMULAS]
        pictures.append(Lines(lines, axis, "ms", f"Time against {axis}, {FIXED[axis]}", log_x=True, log_y=True))
    return Timing(tuple(tables), tuple(pictures))
