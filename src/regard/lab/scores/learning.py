"""What each score learns: a noisy query is matched with its key, with equal or different widths."""

import math
from dataclasses import dataclass

import torch

from regard.engine.attend import attend
from regard.inspection.records import Estimate
from regard.lab.maps import attend_statistics, normal, weights
from regard.lab.report import (
    DecisionRule,
)
from regard.lab.setting import Setting
from regard.lab.statistics import positive, share
from regard.lab.tasks.matching import LEARNED, Matching, best_loss, loss, right
from regard.lab.training import Trained, train
from regard.spec.scores import Additive, Cosine, Dot, ScaledDot, Score

KEYS, NARROW, WIDE, NOISE, HIDDEN = 16, 16, 24, 1.5, 64
GUESSING = 1 / KEYS
LIKE_BEST = 0.9  # a share of the best possible right answers that is called as good
TRAINED = ("additive", "additive + bias", "dot", "scaled dot", "general", "cosine", "cosine × 10", "MLP of [q; k]")
SAME, OTHER = f"d_q = d_k = {NARROW}", f"d_q = {WIDE}, d_k = {NARROW}"
BARE: dict[str, Score] = {"dot": Dot(), "scaled dot": ScaledDot(), "cosine": Cosine()}


@dataclass(frozen=True)
class TrainedScore:
    """One score trained on one problem: loss and right answers on new examples, and the best possible."""

    trained: list[Trained]
    losses: list[float]
    right: Estimate
    best_loss: float
    best_right: float

    @property
    def loss(self) -> Estimate:
        """The loss over the trainings."""
        return positive(self.losses)


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
    """Every score on both problems, and on new examples; if quick, on the problem with different widths."""
    seeds = setting.seeds(trainings)
    by_score = {}
    for problem in setting.choose(full=(SAME, OTHER), quick=(OTHER,)):
        for score in TRAINED:
            tasks = [training_task(setting, score, problem, seed) for seed in seeds]
            trained, rows = [train(task) for task in tasks], []
            for task, each in zip(tasks, trained, strict=True):
                new = task.problem.draw(setting.choose(full=200, quick=60), setting.generator())
                with torch.no_grad():
                    answer = each.model(new.query, new.key)
                of_best = best_loss(task.problem, new), right(task.problem.best(new), new.shown)
                rows.append((float(loss(answer, new.shown)), right(answer, new.shown), *of_best))
            losses, rights, least, most = torch.tensor(rows, dtype=torch.float64).T
            best = float(least.mean()), float(most.mean())
            by_score[score, problem] = TrainedScore(trained, losses.tolist(), share(rights), *best)
    return by_score


def without_training(setting: Setting, score: str) -> tuple[float, float]:
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


def learning_rule(setting: Setting, of: TrainedScore) -> DecisionRule:
    """Near the best possible is confirmed; near guessing is corrected, but not after the few steps of a quick run."""
    low = "not shown" if setting.quick else "corrected"
    middle = "not shown" if setting.quick else "partly"
    return DecisionRule(((2 * GUESSING, low), (LIKE_BEST * of.best_right, middle), (math.inf, "confirmed")))
