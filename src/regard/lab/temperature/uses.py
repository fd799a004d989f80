"""The uses of temperatures that the seed names: in training, at inference, and in distillation.

The weights of the one attention are the model's output (`lab/tasks/matching.py`), so its temperature is also that of
the output: claims about sampling and distillation are about the output's softmax. The best answer is known.
"""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from regard.inspection.records import Bars, Cell, Estimate, Line, Lines, Panel, Picture, Table
from regard.lab.report import Claim, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import curve, during, number, share
from regard.lab.tasks.matching import SCALED, Distilling, Matcher, Matching, MatchingExamples, best_loss, loss, right
from regard.lab.training import Trained, train

TRAINED = (0.5, 1.0, 2.0)  # temperatures of trainings
INFERENCE = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)  # of the model trained with τ = 1
LABELS = 0.0
SOFT = (LABELS, 1.0, 2.0, 4.0)  # what students learn from
DRAWN = 10  # answers drawn from one distribution
WIDTH, KEYS, NOISE, TEACHING = 16, 16, 1.5, 4
ALIKE = 0.05  # losses in nats that differ by less are called the same


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
    after: dict[float, AnswerScores]  # of the models trained with τ
    gain: dict[float, float]  # mean of the diagonal of W_Qᵀ W_K
    moved: dict[float, float]  # largest change of an output when τ changes and W_Q makes up for it
    inference: dict[float, AnswerScores]  # of the model trained with τ = 1
    students: dict[float, AnswerScores]
    target_keys: dict[float, float]  # effective number of keys in what each student learns from
    best: AnswerScores


Runs = list[TemperatureTraining]  # by seed


def matching(setting: Setting, seed: int, tau: float) -> Matching:
    """The training with a temperature."""
    return Matching(
        *(seed, setting.choose(full=600, quick=200), 2e-2, 0.1, 20),
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
    """The training of a student by the model of τ = 1."""
    teacher = matching(setting, seed, 1.0)
    fields = {**asdict(teacher), "steps": setting.choose(full=300, quick=150)}
    return Distilling(**fields, examples=TEACHING, soft=soft, taught=teacher.steps)


def examples(setting: Setting, sets: int) -> MatchingExamples:
    """New examples on which every model is evaluated."""
    return matching(setting, setting.seed, 1.0).problem.draw(sets, setting.generator())


def measured(setting: Setting, seed: int, new: MatchingExamples) -> TemperatureTraining:
    """Train with every temperature, evaluate at every temperature, and train students."""
    tasks = {tau: matching(setting, seed, tau) for tau in TRAINED}
    trained = {tau: train(task) for tau, task in tasks.items()}
    problem = tasks[1.0].problem
    lesson = problem.draw(TEACHING, torch.Generator().manual_seed(seed + 2))
    models = {tau: _model(each) for tau, each in trained.items()}
    teacher = models[1.0]
    students = {soft: _model(train(student(setting, seed, soft))) for soft in SOFT}
    best = problem.best(new).softmax(-1)
    with torch.no_grad():
        targets = {soft: teacher(lesson.query, lesson.key, soft) for soft in SOFT if soft}
        return TemperatureTraining(
            trained,
            {tau: answer(model(new.query, new.key), new) for tau, model in models.items()},
            {tau: float(model.product().diagonal().mean()) for tau, model in models.items()},
            {tau: moved_by(teacher, new, tau) for tau in INFERENCE},
            {tau: answer(teacher(new.query, new.key, tau), new) for tau in INFERENCE},
            {soft: answer(model(new.query, new.key), new) for soft, model in students.items()},
            {LABELS: 1.0} | {soft: keys_in_use(weights) for soft, weights in targets.items()},
            AnswerScores(best_loss(problem, new), *_shares(best, new)),
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
    return AnswerScores(float(loss(weights, given.shown)), *_shares(weights, given))


def _shares(weights: Tensor, given: MatchingExamples) -> tuple[float, float, float]:
    on = weights.gather(-1, given.shown.unsqueeze(-1)).mean()
    different = (1 - (1 - weights) ** DRAWN).sum(-1).mean()  # the expected number, no draw needed
    return right(weights, given.shown), float(on), float(different)


def keys_in_use(weights: Tensor) -> float:
    """The mean of e^H."""
    return float(torch.special.entr(weights).sum(-1).exp().mean())


def _model(trained: Trained) -> Matcher:
    assert isinstance(trained.model, Matcher)
    return trained.model


def _of(runs: Runs, pick: Callable[[TemperatureTraining], AnswerScores], name: str) -> Estimate:
    values = [float(getattr(pick(each), name)) for each in runs]
    return share(values) if name in ("right", "weight") else number(values)


def after(runs: Runs, tau: float, name: str = "loss") -> Estimate:
    """A score of the models trained with τ."""
    return _of(runs, lambda each: each.after[tau], name)


def inference(runs: Runs, tau: float, name: str) -> Estimate:
    """A score of the model of τ = 1 at another τ."""
    return _of(runs, lambda each: each.inference[tau], name)


def taught(runs: Runs, soft: float, name: str) -> Estimate:
    """A score of the students taught at a temperature."""
    return _of(runs, lambda each: each.students[soft], name)


def gain(runs: Runs, tau: float) -> Estimate:
    """What W_Q and W_K multiply q · k / √d_k by, in units of what is best at τ = 1."""
    best = WIDTH**0.5 / NOISE**2  # √d / σ² makes the true probabilities
    return number([each.gain[tau] / best for each in runs])


def moved(runs: Runs) -> float:
    """The largest difference of outputs after τ went into W_Q."""
    return max(difference for each in runs for difference in each.moved.values())


def training_table(runs: Runs) -> Table:
    """Trained with τ."""
    rows: list[tuple[Cell, ...]] = []
    for tau in TRAINED:
        factor, moves = gain(runs, tau), _size(max(each.moved[tau] for each in runs))
        rows.append((f"{tau:g}", after(runs, tau), after(runs, tau, "right"), factor, factor.mean / tau, moves))
    best = [_of(runs, lambda each: each.best, name) for name in ("loss", "right")]
    rows.append(("best possible", *best, "τ", 1.0, ""))
    title = (
        f"Trained with τ to find which of {KEYS} keys a noisy query shows; mean and 95% interval over {len(runs)} "
        "trainings"
    )
    columns = ("τ", "loss", "right", "gain of W_Q and W_K", "gain ÷ τ", "τ · W_Q moves outputs by")
    return Table(columns, rows, title)


def _size(difference: float) -> str:
    return f"{difference:.0e}" if difference else "0"


def asking_table(runs: Runs) -> Table:
    """The model of τ = 1 at another τ."""
    names = ("loss", "right", "weight", "different")
    rows: list[tuple[Cell, ...]] = [(f"{tau:g}", *(inference(runs, tau, name) for name in names)) for tau in INFERENCE]
    columns = ("τ", "loss", "right", "weight on it", f"different in {DRAWN} draws")
    return Table(columns, rows, "The model trained with τ = 1, asked at another τ")


def student_table(runs: Runs) -> Table:
    """Students by what they learn from."""
    rows: list[tuple[Cell, ...]] = []
    for soft in SOFT:
        name = "right answers" if soft == LABELS else f"teacher, τ = {soft:g}"
        keys = number([each.target_keys[soft] for each in runs])
        rows.append((name, keys, taught(runs, soft, "loss"), taught(runs, soft, "right")))
    rows.append(("(the teacher)", "", inference(runs, 1.0, "loss"), inference(runs, 1.0, "right")))
    title = f"Students that see {TEACHING * KEYS} examples, over and over; asked new ones"
    return Table(("learns from", "keys in a target", "loss", "right"), rows, title)


def pictures(runs: Runs) -> tuple[Picture, ...]:
    """Training, inference and distillation."""
    losses = [during([each.trained[tau] for each in runs], "new examples", f"τ = {tau:g}") for tau in TRAINED]
    gains = [curve("learned", TRAINED, [gain(runs, tau) for tau in TRAINED]), Line("best", TRAINED, TRAINED)]
    new = Lines(losses, "step", "loss (nats)", "New examples")
    factors = Lines(gains, "τ of the training", "gain", "W_Q and W_K make up for τ")
    training = Panel((new, factors), f"Trained with τ, mean and range of {len(runs)} runs")
    loss = Lines([_curve(runs, "loss")], "τ", "loss (nats)", "Trained with τ = 1, asked at τ: loss", log_x=True)
    key = Lines([_curve(runs, "right"), _curve(runs, "weight")], "τ", "share", "The right key", log_x=True)
    sampling = Lines([_curve(runs, "different")], "τ", "keys", f"Different keys in {DRAWN} draws", log_x=True)
    series = {"right, new examples": [taught(runs, soft, "right").mean for soft in SOFT]}
    labels = ["answers" if soft == LABELS else f"τ = {soft:g}" for soft in SOFT]
    students = Bars(labels, series, "share", f"Students of {TEACHING * KEYS} examples")
    return training, Panel((loss, key)), Panel((sampling, students))


def _curve(runs: Runs, name: str) -> Line:
    names = {"right": "largest weight", "weight": "weight on it"}
    return curve(names.get(name, ""), INFERENCE, [inference(runs, tau, name) for tau in INFERENCE])


def claims(runs: Runs) -> tuple[Claim, ...]:
    """When to use which temperature."""
    losses = [after(runs, tau).mean for tau in TRAINED]
    matters = "corrected: any τ will do" if max(losses) - min(losses) < ALIKE else "confirmed: τ matters"
    ratio = gain(runs, TRAINED[-1]).mean / gain(runs, TRAINED[0]).mean
    cost = inference(runs, 0.7, "loss").mean - inference(runs, 1.0, "loss").mean
    same = inference(runs, 0.7, "right") == inference(runs, 1.0, "right")
    keys = [inference(runs, tau, "different").mean for tau in (1.0, 1.5)]
    weight = [inference(runs, tau, "weight").mean for tau in (1.0, 0.5)]
    hot = [inference(runs, tau, "different").mean for tau in (2.0, 5.0)]
    better = number([each.students[1.0].loss - each.students[2.0].loss for each in runs])
    scores = [taught(runs, soft, "right").mean for soft in (LABELS, 1.0, 2.0)]
    answers = f"{'the same' if same else 'other'} answers, {'too sure' if cost > 0 else 'better'}"
    focused = f"{confirmed(not same or cost <= 0, 'partly')}: {answers}"
    undone = f"outputs differ by {_size(moved(runs))}"
    return (
        Claim("training", "1.0", f"loss {_row(losses)} at {_row(TRAINED, 'g')}", matters),
        Claim("Warm as regularization", "1.0–2.0", f"gain × {ratio:.1f} for τ × 4", _undone(ratio)),
        Claim("inference, focused", "0.7–1.0", f"{cost:+.3f} nats at 0.7", focused),
        Claim("Cold for precise retrieval", "0.5–1.0", f"weight on it {_row(weight)}", _rises(weight)),
        Claim("sampling, diverse", "1.0–1.5", f"{_row(keys, '.1f')} keys in {DRAWN}", _rises(keys)),
        Claim("Hot for exploration", "2.0+", f"{_row(hot, '.1f')} keys in {DRAWN}", _rises(hot)),
        Claim("distillation", "2.0+", f"right {_row(scores)}", f"{_sure(better)}: answers, τ = 1, τ = 2"),
        Claim("τ at inference, not in training", "in most", undone, "confirmed: τ · W_Q undoes τ"),
    )


def _row(numbers: list[float] | tuple[float, ...], form: str = ".2f") -> str:
    return ", ".join(format(each, form) for each in numbers)


def _rises(numbers: list[float]) -> str:
    return confirmed(numbers == sorted(numbers) and numbers[0] < numbers[-1])


def _undone(ratio: float) -> str:
    """Whether W_Q and W_K took over at least half of the factor of 4, on a log scale."""
    return "corrected: undone by training" if ratio > 2 else "confirmed: not undone"


def _sure(difference: Estimate) -> str:
    return "confirmed" if difference.low > 0 else "not shown" if difference.mean > 0 else "not confirmed"


def finding(runs: Runs) -> str:
    """Two sentences, from the numbers."""
    losses, gains = ([each(runs, tau).mean for tau in TRAINED] for each in (after, gain))
    best = min(INFERENCE, key=lambda tau: inference(runs, tau, "loss").mean)
    return (
        f"A model can undo τ by multiplying W_Q with it (outputs differ by {_size(moved(runs))}), and does: trained "
        f"with τ = {_row(TRAINED, 'g')} its gain is {_row(gains)} of what is best at "
        f"τ = 1, its loss {_row(losses)}; after training τ is a knob, and the loss is lowest at τ = {best:g}; students "
        f"of {TEACHING * KEYS} examples are right {taught(runs, LABELS, 'right').mean:.0%} of the time if they see "
        f"answers, and {taught(runs, 1.0, 'right').mean:.0%}, {taught(runs, 2.0, 'right').mean:.0%} and "
        f"{taught(runs, 4.0, 'right').mean:.0%} if they see a teacher at τ = 1, 2 and 4."
    )
