"""scores: the six score functions side by side, what each costs and what it learns.

Costs and memory are counted, times are measured on the tiled engine, which computes all six (`scores/cost.py`). What is
learned is a problem whose best answer is known and bilinear (`lab/tasks/matching.py`): which key is a query a noisy
picture of? Widths are equal, or different and related by a hidden map.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.attend import attend
from regard.inspection.records import Bars, Cell, Estimate, Line, Lines, Panel, Picture, Table
from regard.lab.maps import attend_statistics, normal, weights
from regard.lab.report import SCORE_FUNCTIONS, Claim, Compared, Report, confirmed
from regard.lab.scores import cost
from regard.lab.setting import Setting
from regard.lab.statistics import during, number, parameters, share
from regard.lab.tasks.matching import LEARNED, PRODUCTS, Matching, best_loss, loss, right
from regard.lab.training import Trained, train
from regard.spec.scores import Additive, Cosine, Dot, ScaledDot, Score

KEYS, NARROW, WIDE, NOISE, HIDDEN = 16, 16, 24, 1.5, 64
GUESSING = 1 / KEYS
LIKE_BEST = 0.9  # a share of the best possible right answers that is called as good
TRAINED = ("additive", "additive + bias", "dot", "scaled dot", "general", "cosine", "cosine × 10", "MLP of [q; k]")
SAME, OTHER = f"d_q = d_k = {NARROW}", f"d_q = {WIDE}, d_k = {NARROW}"
BARE: dict[str, Score] = {"dot": Dot(), "scaled dot": ScaledDot(), "cosine": Cosine()}
# dates of the papers; a run cannot decide them
TIMELINE = (
    ("2014", "additive", "Bahdanau, Cho and Bengio", "first neural attention", "regard.scores.Additive"),
    ("2015", "dot, general, concat", "Luong, Pham and Manning", "simpler, faster", "Dot, General, ConcatMLP"),
    ("2017", "scaled dot", "Vaswani and others", "keeps the variance at 1", "regard.scores.ScaledDot"),
)


def run(setting: Setting) -> Report:
    """Run the experiment."""
    trainings = setting.choose(full=3, quick=2)
    by_score = learned(setting, trainings)
    odd = oddness(setting.generator())
    memory = cost.by_size(setting.generator(), cost.BY_LENGTH), cost.by_size(setting.generator(), cost.BY_WIDTH)
    return Report(
        "scores",
        "What do the six score functions cost, what does each learn, and when is which the right one?",
        (
            cost.cost_table(setting.generator()),
            learned_table(by_score),
            bare_table(setting),
            advice_table(setting, by_score),
            Table(("year", "score", "authors", "what is new", "here"), TIMELINE, "Timeline (literature)"),
            cost.memory_table(*memory),
        ),
        (learned_picture(by_score), cost.memory_picture(*memory)),
        finding(by_score, odd),
        (Compared(f"{SCORE_FUNCTIONS}, comparison and recommendations", claims(setting, by_score, odd)),),
        setting.record(trainings, steps=by_score["dot", OTHER].trained[0].task.steps),
        cost.clock(setting),
    )


@dataclass(frozen=True)
class TrainedScore:
    """One score on one problem, trained over and over: losses, right answers, and those of the true probabilities."""

    trained: list[Trained]
    losses: Tensor
    rights: Tensor
    best_loss: float
    best_right: float

    @property
    def loss(self) -> Estimate:
        """On new examples."""
        return number(self.losses)

    @property
    def right(self) -> Estimate:
        """Answers right, on new examples."""
        return share(self.rights)


TrainedScores = dict[tuple[str, str], TrainedScore]


def training_task(setting: Setting, score: str, problem: str, seed: int) -> Matching:
    """What is trained. Projections make as many numbers as a key has; learned sums have a hidden layer."""
    sums = score in LEARNED and score != "general"
    return Matching(
        seed=seed,
        steps=setting.choose(full=500, quick=90),
        rate=2e-2,
        rise=0.1,
        looks=10,
        keys=KEYS,
        d_query=WIDE if problem == OTHER else NARROW,
        d_key=NARROW,
        noise=NOISE,
        mapped=problem == OTHER,
        score=score,
        width=setting.choose(full=HIDDEN, quick=HIDDEN // 2) if sums else NARROW,
        temperature=1.0,
        sets=8,
    )


def learned(setting: Setting, trainings: int) -> TrainedScores:
    """Every score on both problems; if quick, on the one with different widths."""
    seeds = setting.seeds(trainings)
    by_score = {}
    for problem in setting.choose(full=(SAME, OTHER), quick=(OTHER,)):
        for score in TRAINED:
            tasks = [training_task(setting, score, problem, seed) for seed in seeds]
            by_score[score, problem] = evaluated(setting, tasks, [train(each) for each in tasks])
    return by_score


def evaluated(setting: Setting, tasks: list[Matching], trained: list[Trained]) -> TrainedScore:
    """Losses and right answers on new examples, of the models and of the true probabilities."""
    rows = []
    for each, model in zip(tasks, trained, strict=True):
        new = each.problem.draw(setting.choose(full=200, quick=60), setting.generator())
        with torch.no_grad():
            answer = model.model(new.query, new.key)
        of_best = best_loss(each.problem, new), right(each.problem.best(new), new.shown)
        rows.append((float(loss(answer, new.shown)), right(answer, new.shown), *of_best))
    losses, rights, least, most = torch.tensor(rows, dtype=torch.float64).T
    return TrainedScore(trained, losses, rights, float(least.mean()), float(most.mean()))


def bare(setting: Setting, score: str) -> tuple[float, float]:
    """Loss and right answers of a score without parameters, with equal widths and no training."""
    problem = training_task(setting, score, SAME, 0).problem
    new = problem.draw(200, setting.generator())
    answer = weights(new.query.unsqueeze(1), new.key.unsqueeze(1), score=BARE[score]).squeeze(1)
    return float(loss(answer, new.shown)), right(answer, new.shown)


def refusal(score: Score) -> str:
    """What a product says to different widths; empty if it takes them."""
    query, key = torch.zeros(1, 1, 2, WIDE), torch.zeros(1, 1, 2, NARROW)
    try:
        attend(query, key, key, score=score)
    except ValueError as error:
        return str(error)
    return ""


def oddness(generator: torch.Generator) -> float:
    """The largest |s(−q, −k) + s(q, k)| of an additive score, in units of its largest |s|: 0 if it is odd."""
    score = Additive(*(normal(generator, *size) for size in ((HIDDEN, NARROW), (HIDDEN, NARROW), (HIDDEN,))))
    query, key = normal(generator, 200, 1, 1, NARROW), normal(generator, 200, 1, 1, NARROW)
    there, back = (
        attend_statistics(sign * query, sign * key, key, "max_logit", score=score, engine="tiled")[1]["max_logit"]
        for sign in (1, -1)
    )
    return float((there + back).abs().max() / there.abs().max())


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


def bare_table(setting: Setting) -> Table:
    """Scores without parameters, as they are."""
    rows = [(score, *bare(setting, score), "refused" if refusal(given) else "taken") for score, given in BARE.items()]
    return Table(("score", "loss", "right", OTHER), rows, f"The same without any training, {SAME}: no W_Q, no W_K")


def learned_picture(by_score: TrainedScores) -> Picture:
    """Loss during training with different widths, and right answers at the end."""
    drawn = [score for score in TRAINED if score != "cosine × 10"]  # as many as there are colors
    lines: list[Line] = [during(by_score[score, OTHER].trained, "new examples", score) for score in drawn]
    series = {"right": [by_score[score, OTHER].right.mean for score in TRAINED]}
    short = {"additive + bias": "add. + b", "additive": "add.", "scaled dot": "scaled", "MLP of [q; k]": "MLP"}
    labels = [short.get(score, score.replace("cosine", "cos")) for score in TRAINED]
    return Panel(
        (
            Lines(lines, "step", "loss (nats)", f"Trained, {OTHER}"),
            Bars(labels, series, "share", "Answers right, new examples"),
        )
    )


def learns(by_score: TrainedScores, score: str, problem: str) -> bool:
    """Whether a trained score comes near the best possible."""
    each = by_score[score, problem]
    return each.right.mean >= LIKE_BEST * each.best_right


def advice_table(setting: Setting, by_score: TrainedScores) -> Table:
    """The scenarios of the seed, what it recommends, and what this run says."""
    generator = setting.generator()
    additive, scaled = (
        cost.forward_bytes(cost.SCORES[name](generator, cost.WIDTH), cost.LENGTH, cost.WIDTH, "reference")
        for name in ("additive", "scaled dot")
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
    generator = setting.generator()
    additive, scaled = (cost.powers(name, generator) for name in ("additive", "scaled dot"))
    free = sum(cost.parameters(cost.SCORES[name](generator, cost.WIDTH)) for name in ("dot", "scaled dot"))
    refused = [name for name, score in BARE.items() if refusal(score)]
    with torch.random.fork_rng(devices=[]):
        wide = {name: LEARNED[name](WIDE, NARROW, HIDDEN)() for name in ("additive", "general", "MLP of [q; k]")}
    takes = [name for name, score in wide.items() if not refusal(score)]
    flexible, project, cosine = (by_score[name, OTHER] for name in ("additive", "scaled dot", "cosine"))
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
        _power("additive: FLOPs a pair", "O(d²)", additive[0], 2),
        _power("dot, scaled: FLOPs a pair", "O(d)", scaled[0], 1),
        _power("additive: parameters", "O(d²)", additive[1], 2),
        Claim("dot, scaled: parameters", "none", free, confirmed(not free)),
        Claim("dot, scaled, cosine: one width", "must", refuse, confirmed(len(refused) == len(BARE))),
        Claim("additive: any widths", "may", f"taken by {', '.join(takes)}", confirmed("additive" in takes)),
        Claim("different widths: additive", "recommended", flexible.right, recommended[0]),
        Claim("additive: odd in (q, k)", "not said", odd_here, odd_verdict),
        Claim("different widths: project first", "recommended", project.right, recommended[1]),
        Claim("cosine: bounded, interpretable", "recommended", cosine.loss, bounded),
        Claim("W_Q, W_K handle compatibility", "yes", compared, confirmed(projected)),
    )


def _power(says: str, figure: str, power: float, expected: int) -> Claim:
    """A claim about a power of d."""
    verdict = "confirmed" if abs(power - expected) < 0.05 else f"corrected: O(d{'' if round(power) == 1 else '²'})"
    return Claim(says, figure, f"d^{power:.2f}", verdict)


def finding(by_score: TrainedScores, odd: float) -> str:
    """One sentence, from the numbers."""
    best = by_score["dot", OTHER].best_right
    right = {score: by_score[score, OTHER].right.mean for score in TRAINED}
    ranked = ", ".join(f"{score} {right[score]:.0%}" for score in sorted(right, key=lambda score: -right[score]))
    symmetric = "s(−q, −k) = −s(q, k)" if odd < 1e-6 else "its form"
    return (
        f"Queries and keys of different width, matched through a hidden map: the best possible is right {best:.0%} of "
        f"the time (guessing: {GUESSING:.0%}), and trained scores reach {ranked}; without a bias additive attention "
        f"has {symmetric}, while a match does not care for the sign of both."
    )
