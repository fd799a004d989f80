"""What scores learn: which key a query shows, with equal widths, and with other widths and a hidden map."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.attend import attend
from regard.inspection.records import Bars, Cell, Estimate, Line, Lines, Panel, Picture, Table
from regard.lab.maps import attend_statistics, normal, weights
from regard.lab.setting import Setting
from regard.lab.statistics import during, number, share
from regard.lab.tasks.matching import LEARNED, PRODUCTS, Matching, best_loss, loss, right
from regard.lab.training import Trained, train
from regard.spec.scores import Additive, Cosine, Dot, ScaledDot, Score

KEYS, NARROW, WIDE, NOISE, HIDDEN = 16, 16, 24, 1.5, 64
TRAINED = ("additive", "additive + bias", "dot", "scaled dot", "general", "cosine", "cosine × 10", "MLP of [q; k]")
SAME, OTHER = f"d_q = d_k = {NARROW}", f"d_q = {WIDE}, d_k = {NARROW}"
BARE: dict[str, Score] = {"dot": Dot(), "scaled dot": ScaledDot(), "cosine": Cosine()}


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
            by_score[score, problem] = _asked(setting, tasks, [train(each) for each in tasks])
    return by_score


def _asked(setting: Setting, tasks: list[Matching], trained: list[Trained]) -> TrainedScore:
    rows = []
    for each, model in zip(tasks, trained, strict=True):
        new = each.problem.draw(setting.choose(full=200, quick=60), setting.generator())
        with torch.no_grad():
            answer = model.model(new.query, new.key)
        best = each.problem.best(new)
        rows.append(
            (
                float(loss(answer, new.shown)),
                right(answer, new.shown),
                best_loss(each.problem, new),
                right(best, new.shown),
            )
        )
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


def problems(by_score: TrainedScores) -> list[str]:
    """What was trained."""
    return list(dict.fromkeys(problem for _, problem in by_score))


def learned_table(by_score: TrainedScores) -> Table:
    """Losses and right answers."""
    rows: list[tuple[Cell, ...]] = []
    for score in TRAINED:
        model = by_score[score, OTHER].trained[0].model
        how = "behind W_Q, W_K" if score in PRODUCTS else "own parameters"
        both = [
            cell for which in problems(by_score) for cell in (by_score[score, which].loss, by_score[score, which].right)
        ]
        rows.append((score, how, sum(parameter.numel() for parameter in model.parameters()), *both))
    best = [
        cell
        for which in problems(by_score)
        for cell in (by_score["dot", which].best_loss, by_score["dot", which].best_right)
    ]
    rows.append(("best possible", "", "", *best))
    columns = [name for which in problems(by_score) for name in (f"loss, {which}", f"right, {which}")]
    title = (
        f"Trained: which of {KEYS} keys does a noisy query show (guessing: loss {math.log(KEYS):.2f}, right "
        f"{1 / KEYS:.0%}); mean and 95% interval over {len(by_score['dot', OTHER].trained)} trainings"
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
