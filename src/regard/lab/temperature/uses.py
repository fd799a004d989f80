"""Uses of temperature: models trained with τ, asked at another τ, and students of a teacher at τ."""

import copy
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor
from torch.special import entr

from regard.inspection.records import Estimate
from regard.lab.setting import Setting
from regard.lab.statistics import number, positive, share
from regard.lab.tasks.matching import SCALED, Distilling, Matcher, Matching, MatchingExamples, best_loss, loss, right
from regard.lab.training import Trained, train

TEMPERATURES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
TRAINED = (0.5, 1.0, 2.0)  # temperatures of trainings
LABELS = 0.0
SOFT = (LABELS, 1.0, 2.0, 4.0)  # what students learn from
DRAWN = 10  # answers drawn from one distribution
NARROW, CHOICES, NOISE, TEACHING = 16, 16, 1.5, 4
AFTER, ASKED, TAUGHT = "trained with τ", "asked at τ", "students"


@dataclass(frozen=True)
class AnswerScores:
    """Scores of a model's weights on new examples."""

    loss: float
    right: float  # share of queries whose largest weight is on the right key
    weight: float  # on the right key
    different: float  # expected number of different keys in `DRAWN` draws


@dataclass(frozen=True)
class TemperatureTraining:
    """The results of one seed, each by temperature."""

    trained: dict[float, Trained]
    scores: dict[str, dict[float, AnswerScores]]  # by AFTER, ASKED and TAUGHT
    gain: dict[float, float]  # mean of the diagonal of W_Qᵀ W_K
    moved: dict[float, float]  # largest change of an output when τ changes and W_Q makes up for it
    target_keys: dict[float, float]  # effective number of keys in what each student learns from
    best: AnswerScores


Runs = list[TemperatureTraining]  # by seed


def matching(setting: Setting, seed: int, tau: float) -> Matching:
    """The training with a temperature."""
    return Matching(
        *(seed, setting.choose(full=600, quick=200), 2e-2, 0.1, 20),
        keys=CHOICES,
        d_query=NARROW,
        d_key=NARROW,
        noise=NOISE,
        mapped=False,
        score=SCALED,
        width=NARROW,
        temperature=tau,
        sets=8,
    )


def trained_and_asked(setting: Setting, seed: int, new: MatchingExamples) -> TemperatureTraining:
    """Train with every temperature, evaluate at every temperature, and train students."""
    tasks = {tau: matching(setting, seed, tau) for tau in TRAINED}
    trained = {tau: train(task) for tau, task in tasks.items()}
    problem = tasks[1.0].problem
    lesson = problem.draw(TEACHING, torch.Generator().manual_seed(seed + 2))
    models = {tau: _model(each) for tau, each in trained.items()}
    teacher = models[1.0]
    fields = {**asdict(tasks[1.0]), "steps": setting.choose(full=300, quick=150)}
    lessons = {soft: Distilling(**fields, examples=TEACHING, soft=soft, taught=tasks[1.0].steps) for soft in SOFT}
    students = {soft: _model(train(task)) for soft, task in lessons.items()}
    best = problem.best(new).softmax(-1)
    with torch.no_grad():
        targets = {soft: teacher(lesson.query, lesson.key, soft) for soft in SOFT if soft}
        return TemperatureTraining(
            trained,
            {
                AFTER: {tau: answer(model(new.query, new.key), new) for tau, model in models.items()},
                ASKED: {tau: answer(teacher(new.query, new.key, tau), new) for tau in TEMPERATURES},
                TAUGHT: {soft: answer(model(new.query, new.key), new) for soft, model in students.items()},
            },
            {tau: float(model.product().diagonal().mean()) for tau, model in models.items()},
            {tau: moved_by(teacher, new, tau) for tau in TEMPERATURES},
            {LABELS: 1.0} | {soft: float(entr(each).sum(-1).exp().mean()) for soft, each in targets.items()},
            replace(answer(best, new), loss=best_loss(problem, new)),
        )


def moved_by(model: Matcher, given: MatchingExamples, tau: float) -> float:
    """How far outputs move when the temperature becomes τ and W_Q is multiplied by it."""
    other = copy.deepcopy(model)
    other.temperature = tau
    assert other.w_query is not None
    other.w_query.weight.data.mul_(tau)
    apart: Tensor = other(given.query, given.key) - model(given.query, given.key)
    return float(apart.abs().max())


def answer(weights: Tensor, given: MatchingExamples) -> AnswerScores:
    """The scores of weights."""
    on = weights.gather(-1, given.shown.unsqueeze(-1)).mean()
    different = (1 - (1 - weights) ** DRAWN).sum(-1).mean()  # the expected number, no draw needed
    return AnswerScores(float(loss(weights, given.shown)), right(weights, given.shown), float(on), float(different))


def _model(trained: Trained) -> Matcher:
    assert isinstance(trained.model, Matcher)
    return trained.model


def scored(runs: Runs, models: str, tau: float, name: str) -> Estimate:
    """A score of the models trained with τ, of the model of τ = 1 asked at τ, or of the students taught at τ."""
    values = [float(getattr(each.scores[models][tau], name)) for each in runs]
    return share(values) if name in ("right", "weight") else positive(values)


def gain(runs: Runs, tau: float) -> Estimate:
    """What W_Q and W_K multiply q · k / √d_k by, in units of what is best at τ = 1."""
    best = NARROW**0.5 / NOISE**2  # √d / σ² makes the true probabilities
    return positive([each.gain[tau] / best for each in runs])


def moved(runs: Runs) -> float:
    """The largest difference of outputs after τ went into W_Q."""
    return max(difference for each in runs for difference in each.moved.values())


def differences(runs: Runs, models: str, name: str, first: float, second: float) -> Estimate:
    """A score at one temperature less that at another, training by training."""
    return number(
        [getattr(each.scores[models][first], name) - getattr(each.scores[models][second], name) for each in runs]
    )
