"""scores: the six score functions side by side, what each costs and what it learns.

Costs and memory are counted, times are measured on the tiled engine, which computes all six. What is learned is a
problem whose best answer is known and bilinear (`lab/tasks/matching.py`): which key is a query a noisy picture of?
"""

import torch

from regard.inspection.records import Table
from regard.lab.report import SCORE_FUNCTIONS, Claim, Compared, Report, confirmed
from regard.lab.scores.cost import (
    LENGTH,
    SCORES,
    WIDTH,
    by_length,
    by_width,
    clock,
    cost_table,
    held,
    memory_picture,
    memory_table,
    parameters,
    powers,
)
from regard.lab.scores.learned import (
    BARE,
    HIDDEN,
    KEYS,
    NARROW,
    OTHER,
    WIDE,
    TrainedScores,
    bare_table,
    learned,
    learned_picture,
    learned_table,
    oddness,
    refusal,
)
from regard.lab.setting import Setting
from regard.lab.tasks.matching import LEARNED
from regard.spec.scores import Score

GUESSING = 1 / KEYS
LIKE_BEST = 0.9  # a share of the best possible right answers that is called as good
# dates of the papers; a run cannot decide them
TIMELINE = (
    ("2014", "additive", "Bahdanau, Cho and Bengio", "first neural attention", "regard.scores.Additive"),
    ("2015", "dot, general, concat", "Luong, Pham and Manning", "simpler, faster", "Dot, General, ConcatMLP"),
    ("2017", "scaled dot", "Vaswani and others", "keeps the variance at 1", "regard.scores.ScaledDot"),
)


def timeline_table() -> Table:
    """Authors and years of the scores."""
    return Table(("year", "score", "authors", "what is new", "here"), TIMELINE, "Timeline (literature)")


def learns(by_score: TrainedScores, score: str, problem: str) -> bool:
    """Whether a trained score comes near the best possible."""
    each = by_score[score, problem]
    return each.right.mean >= LIKE_BEST * each.best_right


def _right(by_score: TrainedScores, score: str) -> str:
    return f"{by_score[score, OTHER].right.mean:.0%}"


def advice_table(setting: Setting, by_score: TrainedScores) -> Table:
    """The scenarios of the seed, what it recommends, and what this run says."""
    generator = setting.generator()
    bytes_of = {name: held(made(generator, WIDTH), LENGTH, WIDTH, "reference") for name, made in SCORES.items()}
    saved, loss = bytes_of["additive"] / bytes_of["scaled dot"], by_score["cosine", OTHER].loss.mean
    best = f"{by_score['dot', OTHER].best_right:.0%}"
    rows = [
        ("new Transformer model", "scaled dot", f"right {_right(by_score, 'scaled dot')} of {best} behind W_Q, W_K"),
        (
            "different widths",
            "additive, or project",
            f"project: {_right(by_score, 'scaled dot')}; general: {_right(by_score, 'general')}; additive: "
            f"{_right(by_score, 'additive')}, with a bias {_right(by_score, 'additive + bias')}",
        ),
        ("maximum efficiency", "scaled dot", f"{saved:.0f} × less memory than additive (dense)"),
        ("interpretability", "cosine", f"right {_right(by_score, 'cosine')}; loss {loss:.2f}: its weights stay flat"),
        ("legacy system", "as it was", "each of the six can be had"),
    ]
    return Table(("scenario", "the seed", "here"), rows, "Which score when")


def claims(setting: Setting, by_score: TrainedScores, odd: float) -> tuple[Claim, ...]:
    """What the seed says of costs, widths and use."""
    generator = setting.generator()
    order = {name: powers(name, generator) for name in SCORES}
    counts = {name: parameters(made(generator, WIDTH)) for name, made in SCORES.items()}
    refused = [name for name, score in BARE.items() if refusal(score)]
    takes = [name for name in ("additive", "general", "MLP of [q; k]") if not refusal(_wide(name))]
    flexible, project, cosine = (by_score[name, OTHER] for name in ("additive", "scaled dot", "cosine"))
    free = counts["dot"] + counts["scaled dot"]
    learned, projected = (learns(by_score, name, OTHER) for name in ("additive", "scaled dot"))
    needs_bias = odd < 1e-6 and flexible.right.mean < 2 * GUESSING
    odd_here = f"s(−q, −k) = −s(q, k){f' to {odd:.0e}' if odd else ''}"
    odd_verdict = f"not said: it {'needs a bias' if needs_bias else 'learned all the same'}"
    flat = cosine.loss.mean > 2 * cosine.best_loss
    bounded = f"partly: loss, best {cosine.best_loss:.2f}; too flat" if flat else "confirmed"
    compared = f"scaled {project.right.mean:.2f}, general {by_score['general', OTHER].right.mean:.2f}"
    refuse = f"{len(refused)} of {len(BARE)} refuse"
    recommended = [f"{confirmed(holds, 'corrected')}: share right" for holds in (learned, projected)]
    return (
        _power("additive: FLOPs a pair", "O(d²)", order["additive"][0], 2),
        _power("dot, scaled: FLOPs a pair", "O(d)", order["scaled dot"][0], 1),
        _power("additive: parameters", "O(d²)", order["additive"][1], 2),
        Claim("dot, scaled: parameters", "none", free, confirmed(not free)),
        Claim("dot, scaled, cosine: one width", "must", refuse, confirmed(len(refused) == len(BARE))),
        Claim("additive: any widths", "may", f"taken by {', '.join(takes)}", confirmed("additive" in takes)),
        Claim("different widths: additive", "recommended", flexible.right, recommended[0]),
        Claim("additive: odd in (q, k)", "not said", odd_here, odd_verdict),
        Claim("different widths: project first", "recommended", project.right, recommended[1]),
        Claim("cosine: bounded, interpretable", "recommended", cosine.loss, bounded),
        Claim("W_Q, W_K handle compatibility", "yes", compared, confirmed(projected)),
    )


def _wide(name: str) -> Score:
    """A learned score that takes two widths."""
    with torch.random.fork_rng(devices=[]):
        made: Score = LEARNED[name](WIDE, NARROW, HIDDEN)()
    return made


def _power(says: str, figure: str, power: float, wanted: int) -> Claim:
    """A claim about a power of d."""
    verdict = "confirmed" if abs(power - wanted) < 0.05 else f"corrected: O(d{'' if round(power) == 1 else '²'})"
    return Claim(says, figure, f"d^{power:.2f}", verdict)


def run(setting: Setting) -> Report:
    """Run the experiment."""
    trainings = setting.choose(full=3, quick=2)
    by_score = learned(setting, trainings)
    odd = oddness(setting.generator())
    held = by_length(setting.generator()), by_width(setting.generator())
    return Report(
        "scores",
        "What do the six score functions cost, what does each learn, and when is which the right one?",
        (
            cost_table(setting.generator()),
            learned_table(by_score),
            bare_table(setting),
            advice_table(setting, by_score),
            timeline_table(),
            memory_table(*held),
        ),
        (learned_picture(by_score), memory_picture(*held)),
        finding(by_score, odd),
        (Compared(f"{SCORE_FUNCTIONS}, comparison and recommendations", claims(setting, by_score, odd)),),
        setting.record(trainings, steps=by_score["dot", OTHER].trained[0].task.steps),
        clock(setting),
    )


def finding(by_score: TrainedScores, odd: float) -> str:
    """One sentence, from the numbers."""
    best = by_score["dot", OTHER].best_right
    right = {score: by_score[score, problem].right.mean for score, problem in by_score if problem == OTHER}
    ranked = sorted(right, key=lambda score: -right[score])
    said = ", ".join(f"{score} {right[score]:.0%}" for score in ranked)
    symmetric = "s(−q, −k) = −s(q, k)" if odd < 1e-6 else "its form"
    return (
        f"Queries and keys of different width, matched through a hidden map: the best possible is right {best:.0%} of "
        f"the time (guessing: {1 / KEYS:.0%}), and trained scores reach {said}; without a bias additive attention has "
        f"{symmetric}, while a match does not care for the sign of both."
    )
