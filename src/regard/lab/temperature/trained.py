"""Models trained with, asked at, and taught by temperatures, on a problem whose best answer is known.

The weights of the one attention are the model's answer (`regard.lab.matching`), so its temperature is that of the
output too: what is said of sampling and distillation is meant of the output's softmax.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.lab.matching.model import SCALED, Matcher
from regard.lab.matching.problem import Examples, best_loss, loss, right
from regard.lab.matching.task import Distilling, Matching
from regard.lab.setting import Setting
from regard.lab.training import Trained, train

TRAINED = (0.5, 1.0, 2.0)  # temperatures of trainings
ASKED = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)  # those at which the model of τ = 1 is asked
LABELS = 0.0
SOFT = (LABELS, 1.0, 2.0, 4.0)  # what students learn from
DRAWN = 10  # answers drawn from one distribution
WIDTH, KEYS, NOISE, TEACHING = 16, 16, 1.5, 4


@dataclass(frozen=True)
class Answer:
    """What a model says of new examples: loss, largest weight right, weight on the right key, keys drawn of ten."""

    loss: float
    right: float
    weight: float
    different: float


@dataclass(frozen=True)
class Run:
    """One seed. `moved` is how far the outputs of the model of τ = 1 are from those of one with another τ and a W_Q
    that makes up for it; `told` are the keys in use in what each student learns from."""

    trained: dict[float, Trained]
    after: dict[float, Answer]
    gain: dict[float, float]
    moved: dict[float, float]
    asked: dict[float, Answer]
    students: dict[float, Answer]
    told: dict[float, float]
    best: Answer


def matching(setting: Setting, seed: int, tau: float) -> Matching:
    """What is trained with a temperature."""
    return Matching(
        seed=seed,
        steps=setting.choose(full=600, quick=200),
        rate=2e-2,
        rise=0.1,
        looks=20,
        keys=KEYS,
        d_query=WIDTH,
        d_key=WIDTH,
        noise=NOISE,
        mapped=False,
        score=SCALED,
        width=WIDTH,
        temperature=tau,
        sets=8,
    )


def student(setting: Setting, seed: int, soft: float) -> Distilling:
    """What is taught by the model of τ = 1."""
    given = matching(setting, seed, 1.0)
    same = {name: getattr(given, name) for name in given.__dataclass_fields__ if name != "steps"}
    return Distilling(
        **same, steps=setting.choose(full=300, quick=150), examples=TEACHING, soft=soft, taught=given.steps
    )


def examples(setting: Setting, sets: int) -> Examples:
    """New examples to ask every model."""
    return matching(setting, setting.seed, 1.0).problem.draw(sets, setting.generator())


def run(setting: Setting, seed: int, new: Examples) -> Run:
    """Train, ask and teach."""
    tasks = {tau: matching(setting, seed, tau) for tau in TRAINED}
    trained = {tau: train(task) for tau, task in tasks.items()}
    problem = tasks[1.0].problem
    lesson = problem.draw(TEACHING, torch.Generator().manual_seed(seed + 2))
    models = {tau: _model(each) for tau, each in trained.items()}
    teacher = models[1.0]
    students = {soft: _model(train(student(setting, seed, soft))) for soft in SOFT}
    best = problem.best(new).softmax(-1)
    with torch.no_grad():
        told = {soft: teacher(lesson.query, lesson.key, soft) for soft in SOFT if soft}
        return Run(
            trained,
            {tau: answer(model(new.query, new.key), new) for tau, model in models.items()},
            {tau: float(model.product().diagonal().mean()) for tau, model in models.items()},
            {tau: moved(teacher, new, tau) for tau in ASKED},
            {tau: answer(teacher(new.query, new.key, tau), new) for tau in ASKED},
            {soft: answer(model(new.query, new.key), new) for soft, model in students.items()},
            {LABELS: 1.0} | {soft: keys_in_use(weights) for soft, weights in told.items()},
            Answer(best_loss(problem, new), *_shares(best, new)),
        )


def best_gain() -> float:
    """The factor of q · k / √d_k that makes the true probabilities at τ = 1: √d / σ²."""
    return float(WIDTH**0.5 / NOISE**2)


def moved(model: Matcher, given: Examples, tau: float) -> float:
    """How far outputs move when the temperature becomes τ and W_Q is multiplied by it."""
    other = copy.deepcopy(model)
    other.temperature = tau
    assert other.w_query is not None
    other.w_query.weight.data.mul_(tau)
    apart: Tensor = other(given.query, given.key) - model(given.query, given.key)
    return float(apart.abs().max())


def answer(weights: Tensor, given: Examples) -> Answer:
    """What the weights say."""
    return Answer(float(loss(weights, given.shown)), *_shares(weights, given))


def _shares(weights: Tensor, given: Examples) -> tuple[float, float, float]:
    on = weights.gather(-1, given.shown.unsqueeze(-1)).mean()
    different = (1 - (1 - weights) ** DRAWN).sum(-1).mean()  # the expected number, no draw needed
    return right(weights, given.shown), float(on), float(different)


def keys_in_use(weights: Tensor) -> float:
    """The mean of e^H."""
    return float(torch.special.entr(weights).sum(-1).exp().mean())


def _model(trained: Trained) -> Matcher:
    assert isinstance(trained.model, Matcher)
    return trained.model
