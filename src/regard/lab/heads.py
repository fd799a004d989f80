"""heads: how alike the heads of a layer are, at random and trained, and whether several learn what one cannot.

The similarity of two heads is the cosine between all weights of their maps, Σ A·B / (|A| · |B|); centered, of the maps
less the mean of their rows, 1/n. An average is over all pairs of different heads; one head alone has 1. The trained
layers have one width and 1 to 8 heads. Every item wants what three others hold: the one before it, the first of all,
and its twin, the other item of its type. That takes three patterns, two of places and one of content.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.inspection.capture import capture
from regard.inspection.heads import head_table
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.records import Cell, Estimate, Grid, Line, Lines, Panel, Picture, Table
from regard.lab.maps import normal, weights
from regard.lab.report import (
    MINI_COURSE,
    RESULTS,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    compared,
    near,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import curve, mean, number, placement, share, training_time
from regard.lab.tasks.relations import QUESTIONS, ItemTexts, Relating, right, three_questions
from regard.lab.training import Trained, train

WIDTH = 64
KINDS = ("previous", "first", "duplicate")  # columns of c.heads(), one for each question
CALLED = 0.5  # a head that gives this share of its weight to one kind of item is called after it
INSIDE = 0.025  # a figure beyond this quantile of single draws, at either end, does not fit
XAVIER = "1/√d (Xavier)"
STARTS = {XAVIER: 1 / math.sqrt(WIDTH), "1": 1.0}  # the standard deviation of the numbers in W_Q and W_K
ROWS = {  # of the source's table
    1: "| 1         | 1.00                |",
    2: "| 2         | 0.12                |",
    4: "| 4         | 0.17                |",
    8: "| 8         | 0.19                |",
}
SEED = {heads: float(row.split("|")[2]) for heads, row in ROWS.items()}
HEADS = tuple(SEED)
KNOWN = 20  # keys that fit the other tables of the source
TEXTS = 256
RandomHeads = dict[tuple[str, str, int], dict[int, Tensor]]  # by start, meaning and tokens: draws by number of heads
LEARNED, CLOSE = 0.95, 0.05  # a share of right answers that is called learned; a difference that is called small


def average(similarity: Tensor) -> Tensor:
    """The mean over all pairs of two different heads, (…, head, head) to (…); 1 if there is one head only."""
    heads = similarity.shape[-1]
    if heads == 1:
        return torch.ones_like(similarity[..., 0, 0])
    own = similarity.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (similarity.sum((-2, -1)) - own) / (heads * (heads - 1))


#: what "similarity" may mean: of two maps A and B, Σ A·B / (|A| · |B|); of maps less the mean of their rows, 1/n; and
#: the size of that, without its sign
MEANINGS: dict[str, Callable[[AttentionMatrix], Tensor]] = {
    "cosine": lambda maps: average(maps.similarity()),
    "centered": lambda maps: average(maps.similarity(centered=True)),
    "|centered|": lambda maps: average(maps.similarity(centered=True).abs()),
}


def random_heads(generator: torch.Generator, draws: int, heads: int, tokens: int, start: str) -> AttentionMatrix:
    """Maps of random tokens under random projections, (draw, head, query, key)."""
    x, d_k = normal(generator, draws, 1, tokens, WIDTH), WIDTH // heads
    query, key = (x @ (STARTS[start] * normal(generator, draws, heads, WIDTH, d_k)) for _ in range(2))
    return AttentionMatrix.from_weights(weights(query, key))


@dataclass(frozen=True)
class HeadProfile:
    """The heads of one layer: how alike they are, by meaning, and the table of what they attend to."""

    alike: dict[str, float]
    table: Table

    @property
    def kinds(self) -> list[str]:
        """What each head is called: the kind of item that gets most of its weight, if that is enough."""
        names = []
        for row in self.table:
            shares = {name: float(str(row[name])) for name in KINDS}
            best = max(shares, key=lambda name: shares[name])
            names.append(best if shares[best] >= CALLED else "mixed")
        return names

    @property
    def patterns(self) -> int:
        """How many kinds have a head of their own."""
        return len(set(self.kinds) - {"mixed"})

    def best(self, kind: str) -> float:
        """The largest share of its weight that a head gives to a kind."""
        return max(float(str(cell)) for cell in self.table[kind])


def profile_heads(model: nn.Module, texts: ItemTexts) -> HeadProfile:
    """What the heads of a model do with texts."""
    with torch.no_grad():
        captured = capture(model, *texts.inputs)
    table = head_table(captured, which=("entropy", *KINDS), ids=texts.types)
    return HeadProfile({name: float(meaning(captured[0]).mean()) for name, meaning in MEANINGS.items()}, table)


@dataclass(frozen=True)
class HeadsTraining:
    """One training: right answers by question, and the heads before and after it."""

    trained: Trained
    right: dict[str, float]
    before: HeadProfile
    after: HeadProfile


Runs = dict[int, list[HeadsTraining]]  # by number of heads


def alike(runs: Runs, heads: int, meaning: str, before: bool = False) -> Estimate:
    """The similarity of the heads of the models."""
    return number([(each.before if before else each.after).alike[meaning] for each in runs[heads]])


def patterns(runs: Runs, heads: int, before: bool = False) -> Estimate:
    """Kinds of items that have a head of their own."""
    return number([float((each.before if before else each.after).patterns) for each in runs[heads]])


def everything(runs: Runs, heads: int, less: int = 0) -> Estimate:
    """Right answers to all questions; or how many more there are than with `less` heads, training by training."""
    right = [sum(each.right.values()) / len(each.right) for each in runs[heads]]
    if not less:
        return share(right)
    others = [sum(each.right.values()) / len(each.right) for each in runs[less]]
    return number([one - other for one, other in zip(right, others, strict=True)])


def fitting(random: RandomHeads, start: str, meaning: str) -> list[int]:
    """Numbers of tokens with which every figure of the source's row lies well inside single draws of random heads."""
    lengths = []
    for (*key, tokens), draws in random.items():
        if key == [start, meaning]:
            places = [placement(figure, draws[heads]) for heads, figure in SEED.items()]
            if all(INSIDE <= place <= 1 - INSIDE for place in places):
                lengths.append(tokens)
    return lengths


def run(setting: Setting) -> Report:
    """Run the experiment."""
    draws, repetitions = setting.choose(full=400, quick=60), setting.choose(full=5, quick=3)
    generator = setting.generator()
    random: RandomHeads = {}
    lengths = setting.choose(full=(4, 5, 6, 7, 8, 10, 14, KNOWN), quick=(4, 5, 6, 8, KNOWN))
    for tokens in setting.each("random heads, tokens:", lengths):
        for start in STARTS:
            maps = {heads: random_heads(generator, draws, heads, tokens, start) for heads in HEADS}
            for name, meaning in MEANINGS.items():
                random[start, name, tokens] = {heads: meaning(each) for heads, each in maps.items()}
    seeds = setting.seeds(repetitions, generator)
    runs = {heads: [measured(setting, heads, seed) for seed in seeds] for heads in HEADS}
    return Report(
        "heads",
        "How alike are the heads of a layer, do they learn different patterns, and what can several learn that one "
        "cannot?",
        (similarity_table(random, runs), learned_table(runs), one_model_table(runs[4][0]), fit_table(random)),
        (map_picture(runs[4][0]), line_picture(random, runs)),
        finding(random, runs),
        compared(*row_claims(random, runs), *learned_claims(runs), several_claim(runs)),
        setting.record(draws, trainings_of_each_kind=repetitions, steps=runs[1][0].trained.task.steps),
        Timing((training_time(each.trained for group in runs.values() for each in group),)),
        why="Models have many small heads instead of one large one; this shows what that is good for, and what a low "
        "similarity of heads does not prove.",
        setup="A text has eight items, two of each type. Every item must tell what three others hold: the one before "
        "it, the first of all, and its twin, the other item of its type. One layer of a fixed width, cut into 1, 2, 4 "
        "or 8 heads, learns that. The similarity of two heads is the cosine between all weights of their maps.",
        takeaway=takeaway(runs),
    )


def measured(setting: Setting, heads: int, seed: int) -> HeadsTraining:
    """One training, with the heads before and after it."""
    task = three_questions(setting, seed, heads)
    trained = train(task)
    texts = task.texts(TEXTS, torch.Generator().manual_seed(seed + 2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        untrained = task.model().eval()
    before, after = (profile_heads(model, texts) for model in (untrained, trained.model))
    return HeadsTraining(trained, right(task, trained.model, texts), before, after)


def similarity_table(random: RandomHeads, runs: Runs) -> Table:
    """Random and trained, plain and centered, beside the source's row."""
    rows: list[tuple[Cell, ...]] = [
        (
            heads,
            SEED[heads],
            *(mean(random[XAVIER, meaning, KNOWN][heads]) for meaning in ("cosine", "centered")),
            *(alike(runs, heads, meaning, before) for before in (True, False) for meaning in ("cosine", "centered")),
        )
        for heads in HEADS
    ]
    columns = (
        *("heads", "the seed", "random cosine", "random centered", "untrained cosine", "untrained centered"),
        *("trained cosine", "trained centered"),
    )
    title = (
        f"Average similarity of two heads; mean and 95% interval. Random: {KNOWN} random tokens, W_Q and W_K with "
        f"deviation {XAVIER}. Untrained and trained: the same models before and after"
    )
    return Table(columns, rows, title)


def answers(runs: Runs, heads: int, question: str) -> Estimate:
    """Right answers to one question."""
    return share([each.right[question] for each in runs[heads]])


def learned_table(runs: Runs) -> Table:
    """What each number of heads learns."""
    rows: list[tuple[Cell, ...]] = [
        (heads, WIDTH // heads, *(answers(runs, heads, question) for question in QUESTIONS), patterns(runs, heads))
        for heads in HEADS
    ]
    columns = ("heads", "d_k", "the one before", "the first", "the twin", f"patterns, of {len(KINDS)}")
    title = (
        f"Trained at one width, {WIDTH}: share of right answers to {TEXTS} new texts (guessing: 0.125), and "
        f"kinds of items that get {CALLED:.0%} or more of the weight of a head"
    )
    return Table(columns, rows, title)


def one_model_table(run: HeadsTraining) -> Table:
    """Every head of one model."""
    rows = [
        (int(str(row["head"])) + 1, *(row[name] for name in ("entropy", *KINDS)), called)
        for row, called in zip(run.after.table, run.after.kinds, strict=True)
    ]
    columns = ("head", "entropy (nats)", *KINDS, "called")
    return Table(columns, rows, "c.heads() of the first model with 4 heads, trained")


def fit_table(random: RandomHeads) -> Table:
    """Which random heads could have given the source's row."""
    rows: list[tuple[Cell, ...]] = []
    for start in STARTS:
        for meaning in MEANINGS:
            lengths = fitting(random, start, meaning)
            tokens = lengths[len(lengths) // 2] if lengths else KNOWN
            means = [f"{float(random[start, meaning, tokens][heads].mean()):.2f}" for heads in HEADS[1:]]
            fit = ", ".join(map(str, lengths)) or "none"
            rows.append((start, meaning, fit, f"{', '.join(means)} ({tokens} tokens)"))
    tried = sorted({tokens for _, _, tokens in random})
    title = (
        f"Random heads that give {', '.join(f'{SEED[heads]:.2f}' for heads in HEADS[1:])} within 95% of single draws, "
        f"of {', '.join(map(str, tried))} tokens"
    )
    return Table(("deviation of W", "similarity", "fits with tokens", "means, 2, 4 and 8 heads"), rows, title)


def map_picture(run: HeadsTraining) -> Picture:
    """The heads of one model on one text."""
    task = run.trained.task
    assert isinstance(task, Relating)
    texts = task.texts(1, torch.Generator().manual_seed(task.seed + 4))
    with torch.no_grad():
        captured = capture(run.trained.model, *texts.inputs)
    labels = [chr(ord("A") + kind) for kind in texts.types[0].tolist()]
    grids = [
        Grid(captured[0, head].dense()[0].tolist(), labels, labels, f"head {head + 1}: {called}", limits=(0.0, 1.0))
        for head, called in enumerate(run.after.kinds)
    ]
    return Panel(grids, "Trained: each item looks for three others (letters are types)")


def line_picture(random: RandomHeads, runs: Runs) -> Picture:
    """Similarities and right answers against the number of heads."""
    several = HEADS[1:]
    similarities = [
        curve("random", several, [mean(random[XAVIER, "cosine", KNOWN][heads]) for heads in several]),
        curve("trained", several, [alike(runs, heads, "cosine") for heads in several]),
        curve("trained, centered", several, [alike(runs, heads, "centered") for heads in several]),
        Line("the seed", several, [SEED[heads] for heads in several]),
    ]
    right = [curve(name, HEADS, [answers(runs, heads, name) for heads in HEADS]) for name in QUESTIONS]
    average_of_two = Lines(similarities, "heads", "similarity", "Average of two heads")
    return Panel((average_of_two, Lines(right, "heads", "share of right answers", f"Width {WIDTH}, several heads")))


def row_claims(random: RandomHeads, runs: Runs) -> tuple[Claim, ...]:
    """The source's row beside random and trained heads."""
    listed = []
    for heads, row in ROWS.items():
        chance = mean(random[XAVIER, "cosine", KNOWN][heads]).mean
        note = "" if heads == 1 else f"random heads over {KNOWN} tokens: {chance:.2f}"
        what = f"similarity (cosine) of two trained heads, {heads} heads" if heads > 1 else "similarity of one head"
        rule = near(SEED[heads], CLOSE, "partly")
        listed.append(Claim(quoted(RESULTS, row), what, alike(runs, heads, "cosine"), rule, note))
    ways = sum(bool(fitting(random, start, meaning)) for start in STARTS for meaning in MEANINGS)
    tried = len(STARTS) * len(MEANINGS)
    what = f"kinds of untrained random heads, of {tried}, that give the same row by chance"
    drops = quoted(RESULTS, "Multiple heads: learn DIFFERENT patterns (similarity drops to ~0.12-0.19)")
    note = "a low similarity is no sign of learning if random heads have it too"
    return (*listed, Claim(drops, what, ways, DecisionRule(((0.5, "confirmed"), (math.inf, "corrected"))), note))


def learned_claims(runs: Runs) -> tuple[Claim, ...]:
    """Heads that specialize."""
    more = number([each.after.patterns - each.before.patterns for each in runs[4]])
    near = share([each.after.best("previous") for each in runs[4]])
    different = quoted(RESULTS, "Multiple heads: learn DIFFERENT patterns (similarity drops to ~0.12-0.19)")
    adjacent = quoted(RESULTS, 'Head 3: positional patterns ("adjacent words")')
    aspects = quoted(MINI_COURSE, "Each head can focus on different aspects of the sequence")
    what = "kinds of items with a head of their own after training, less those before"
    return (
        Claim(different, f"{what}, 4 heads", more, above(0)),
        Claim(aspects, f"{what}, 4 heads", more, above(0)),
        Claim(adjacent, "weight of the best head on the item before", near, above(CALLED)),
    )


def several_claim(runs: Runs) -> Claim:
    """One head against several at one width."""
    what = "right answers of 4 heads less those of 1 head, at one width"
    relationships = quoted(MINI_COURSE, "Improves the model's ability to model complex relationships")
    return Claim(relationships, what, everything(runs, 4, less=1), above(0))


def takeaway(runs: Runs) -> Takeaway:
    """What several heads learn."""
    return Takeaway(
        "Several heads learn several patterns at once, each its own, where one head of the same width has to mix them.",
        "Here several heads do not answer more than one head of the same width does.",
        (
            Evidence("right answers of 4 heads less those of 1 head", everything(runs, 4, less=1), above(0)),
            Evidence("kinds of items with a head of their own, 4 heads", patterns(runs, 4), above(1)),
        ),
    )


def finding(random: RandomHeads, runs: Runs) -> str:
    """One sentence, from the numbers."""
    shares = ", ".join(f"{everything(runs, heads).mean:.0%}" for heads in HEADS)
    trained_row = ", ".join(f"{alike(runs, heads, 'cosine').mean:.2f}" for heads in HEADS[1:])
    random_row = ", ".join(f"{mean(random[XAVIER, 'cosine', KNOWN][heads]).mean:.2f}" for heads in HEADS[1:])
    fit = [tokens for start in STARTS for meaning in MEANINGS for tokens in fitting(random, start, meaning)]
    also = ""
    if fit:
        also = f"; random heads of {min(fit)} to {max(fit)} tokens can give the seed's row too, as the last table says"
    return (
        f"1, 2, 4 and 8 heads of one width give {shares} right answers to three questions, with "
        f"{patterns(runs, 4).mean:.1f} of {len(KINDS)} patterns in heads of their own at 4; 2, 4 and 8 trained heads "
        f"have similarities of {trained_row}, random ones of {random_row}{also}."
    )
