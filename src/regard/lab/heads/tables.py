"""Tables of the experiment on heads."""

from regard.inspection.records import Cell, Table
from regard.inspection.statistics import mean
from regard.lab.heads.measure import CALLED, KINDS, MEANINGS, STARTS
from regard.lab.heads.results import (
    HEADS,
    KNOWN,
    QUESTIONS,
    SEED,
    TEXTS,
    Random,
    Run,
    Runs,
    alike,
    fitting,
    patterns,
    width_of,
)
from regard.lab.training.over import number, share


def similarity_table(random: Random, runs: Runs) -> Table:
    """Random and trained, plain and centered, beside the source's row."""
    start = next(iter(STARTS))
    rows: list[tuple[Cell, ...]] = [
        (
            heads,
            SEED[heads],
            *(mean(random[start, meaning, KNOWN][heads]) for meaning in ("cosine", "centered")),
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
        f"deviation {start}. Untrained and trained: the same models before and after"
    )
    return Table(columns, rows, title)


def learned_table(runs: Runs) -> Table:
    """What each number of heads learns."""
    rows: list[tuple[Cell, ...]] = [
        (
            heads,
            width_of(runs) // heads,
            *(share([each.right[question] for each in runs[heads]]) for question in QUESTIONS),
            patterns(runs, heads),
        )
        for heads in HEADS
    ]
    columns = ("heads", "d_k", "the one before", "the first", "the twin", f"patterns, of {len(KINDS)}")
    title = (
        f"Trained at one width, {width_of(runs)}: share of right answers to {TEXTS} new texts (guessing: 0.125), and "
        f"kinds of items that get {CALLED:.0%} or more of the weight of a head"
    )
    return Table(columns, rows, title)


def head_table(run: Run) -> Table:
    """Every head of one model."""
    rows = [
        (int(str(row["head"])) + 1, *(row[name] for name in ("entropy", *KINDS)), called)
        for row, called in zip(run.after.table, run.after.kinds, strict=True)
    ]
    return Table(
        ("head", "entropy (nats)", *KINDS, "called"), rows, "c.heads() of the first model with 4 heads, trained"
    )


def fit_table(random: Random) -> Table:
    """Which random heads could have given the source's row."""
    rows: list[tuple[Cell, ...]] = []
    for start in STARTS:
        for meaning in MEANINGS:
            numbers = fitting(random, start, meaning)
            shown = numbers[len(numbers) // 2] if numbers else KNOWN
            means = [f"{float(random[start, meaning, shown][heads].mean()):.2f}" for heads in HEADS[1:]]
            fit = ", ".join(map(str, numbers)) or "none"
            rows.append((start, meaning, fit, f"{', '.join(means)} ({shown} tokens)"))
    tried = sorted({tokens for _, _, tokens in random})
    title = (
        f"Random heads that give {', '.join(f'{SEED[heads]:.2f}' for heads in HEADS[1:])} within 95% of single draws, "
        f"of {', '.join(map(str, tried))} tokens"
    )
    return Table(("deviation of W", "similarity", "fits with tokens", "means, 2, 4 and 8 heads"), rows, title)


def training_table(runs: Runs) -> Table:
    """How long the trainings took."""
    every = [each.trained.record["seconds"] for group in runs.values() for each in group]
    return Table(("trainings", "seconds each"), [(len(every), number(every))], "Training, one thread")
