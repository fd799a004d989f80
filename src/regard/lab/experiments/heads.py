"""heads: how alike the heads of a layer are, at random and trained, and whether several learn what one cannot.

The similarity of two heads is the cosine between all weights of their maps, Σ A·B / (|A| · |B|); centered, of the maps
less the mean of their rows, 1/n. An average is over all pairs of different heads; one head alone has 1. The trained
layers have one width and 1 to 8 heads. Every item wants what three others hold: the one before it, the first of all,
and its twin, the other item of its type. That takes three patterns, two of places and one of content.
"""

import torch

from regard.inspection.records import Panel
from regard.inspection.statistics import mean
from regard.lab import sources
from regard.lab.heads import pictures, tables
from regard.lab.heads.measure import CALLED, KINDS, MEANINGS, STARTS, looked_at, random_heads
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
    everything,
    fitting,
    patterns,
)
from regard.lab.relations.task import Relating, right
from regard.lab.report import Claim, Compared, Report, Timing, settings
from regard.lab.setting import Setting
from regard.lab.training import train
from regard.lab.training.over import share

LEARNED, CLOSE = 0.95, 0.05  # a share of right answers that is called learned; a difference that is called small


def run(setting: Setting) -> Report:
    """Run the experiment."""
    draws, repetitions = setting.choose(full=400, quick=60), setting.choose(full=5, quick=3)
    generator = setting.generator()
    random: Random = {}
    for tokens in setting.each(
        "random heads, tokens:", setting.choose(full=(4, 5, 6, 7, 8, 10, 14, KNOWN), quick=(4, 5, 6, 8, KNOWN))
    ):
        for start in STARTS:
            maps = {heads: random_heads(generator, draws, heads, tokens, start) for heads in HEADS}
            for name, meaning in MEANINGS.items():
                random[start, name, tokens] = {heads: meaning(each) for heads, each in maps.items()}
    seeds = torch.randint(2**31, (repetitions,), generator=generator).tolist()
    runs = {heads: [trained(setting, heads, seed) for seed in seeds] for heads in HEADS}
    return Report(
        "heads",
        "How alike are the heads of a layer, do they learn different patterns, and what can several learn that one "
        "cannot?",
        (
            tables.similarity_table(random, runs),
            tables.learned_table(runs),
            tables.head_table(runs[4][0]),
            tables.fit_table(random),
        ),
        (
            pictures.map_picture(runs[4][0]),
            Panel((pictures.similarity_picture(random, runs), pictures.learned_picture(runs))),
        ),
        finding(random, runs),
        (
            Compared(f"{sources.RESULTS}, Experiment 3", row_claims(random, runs) + learned_claims(runs)),
            Compared(f"{sources.MINI_COURSE}, Multi-Head Attention", several_claims(runs)),
        ),
        {**settings(setting, draws), "trainings of each kind": repetitions, "steps": runs[1][0].trained.task.steps},
        Timing((tables.training_table(runs),), ()),
    )


def task(setting: Setting, heads: int, seed: int) -> Relating:
    """What is trained: eight items, two of each type, that ask three questions."""
    return Relating(
        seed=seed,
        steps=setting.choose(full=200, quick=80),
        rate=1e-2,
        rise=0.1,
        looks=5,
        questions=QUESTIONS,
        types=4,
        copies=2,
        payloads=8,
        placed=True,
        width=64,
        heads=heads,
        shared=False,
        joined=True,
        reading="linear",
        batch=setting.choose(full=64, quick=24),
    )


def trained(setting: Setting, heads: int, seed: int) -> Run:
    """One training, looked at before and after."""
    asked = task(setting, heads, seed)
    found = train(asked)
    texts = asked.texts(TEXTS, torch.Generator().manual_seed(seed + 2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = asked.model().eval()
    return Run(found, right(asked, found.model, texts), looked_at(fresh, texts), looked_at(found.model, texts))


def row_claims(random: Random, runs: Runs) -> tuple[Claim, ...]:
    """The source's row beside random and trained heads."""
    start = next(iter(STARTS))
    listed = []
    for heads in HEADS:
        found, chance = alike(runs, heads, "cosine"), mean(random[start, "cosine", KNOWN][heads]).mean
        off = found.mean - SEED[heads]
        close = abs(off) <= CLOSE
        verdict = f"{'confirmed: trained close' if close else f'partly: trained {off:+.2f}'}; random heads {chance:.2f}"
        listed.append(
            Claim(
                f"similarity, {heads} {'head' if heads == 1 else 'heads'}",
                SEED[heads],
                found,
                "confirmed: always" if heads == 1 else verdict,
            )
        )
    ways = [f"{meaning}, W of {start}" for start in STARTS for meaning in MEANINGS if fitting(random, start, meaning)]
    verdict = "corrected: untrained heads can give the row too" if ways else "confirmed: no random heads tried here do"
    listed.append(
        Claim("the row shows that heads learn", "yes", f"{len(ways)} of {len(STARTS) * len(MEANINGS)}", verdict)
    )
    return tuple(listed)


def learned_claims(runs: Runs) -> tuple[Claim, ...]:
    """Heads that specialize."""
    after, before = patterns(runs, 4), patterns(runs, 4, before=True)
    told = _verdict(after.mean > before.mean and after.mean >= 2)
    near, like = (share([each.after.best(kind) for each in runs[4]]) for kind in ("previous", "duplicate"))
    return (
        Claim(
            "heads learn different patterns",
            "yes",
            after,
            f"{told}: kinds with a head of their own, {before.mean:.1f} before",
        ),
        Claim("a head for adjacent words", "yes", near, f"{_verdict(near.mean >= CALLED)}: weight on the one before"),
        Claim("a head for like words", "yes", like, f"{_verdict(like.mean >= CALLED)}: weight on the same type"),
    )


def several_claims(runs: Runs) -> tuple[Claim, ...]:
    """One head against several at one width."""
    one, four = (everything(runs, heads) for heads in (1, 4))
    more = everything(runs, 4, less=1)
    learned = "confirmed" if four.mean >= LEARNED > one.mean else "partly" if more.low > 0 else "not shown"
    return (
        Claim(
            "several heads model more relations",
            "better",
            f"{one.mean:.2f} to {four.mean:.2f}",
            f"{learned}: right answers, 1 to 4 heads of one width",
        ),
    )


def _verdict(holds: bool) -> str:
    return "confirmed" if holds else "not shown"


def finding(random: Random, runs: Runs) -> str:
    """One sentence, from the numbers."""
    start = next(iter(STARTS))
    shares = ", ".join(f"{everything(runs, heads).mean:.0%}" for heads in HEADS)
    trained_row, random_row = (
        ", ".join(f"{each:.2f}" for each in row)
        for row in (
            [alike(runs, heads, "cosine").mean for heads in HEADS[1:]],
            [mean(random[start, "cosine", KNOWN][heads]).mean for heads in HEADS[1:]],
        )
    )
    fit = [tokens for start in STARTS for meaning in MEANINGS for tokens in fitting(random, start, meaning)]
    also = (
        f"; random heads of {min(fit)} to {max(fit)} tokens can give the seed's row too, as the last table says"
        if fit
        else ""
    )
    return (
        f"1, 2, 4 and 8 heads of one width give {shares} right answers to three questions, with "
        f"{patterns(runs, 4).mean:.1f} of {len(KINDS)} patterns in heads of their own at 4; 2, 4 and 8 trained heads "
        f"have similarities of {trained_row}, random ones of {random_row}{also}."
    )
