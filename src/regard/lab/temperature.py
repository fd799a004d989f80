"""temperature: how τ moves attention between one key and all keys, where the named regimes lie, and what τ is for.

Draws are self-attention of 20 random tokens with scores ÷ √d_k, whose variance is 1, as in a layer at initialization.
Learned scores have other variances, and τ acts on them as a change of variance.

The uses that the seed names, in training, at inference and in distillation, are tried on small trained models. The
weights of their one attention are the output (`lab/tasks/matching.py`), so its temperature is also that of the output:
claims about sampling and distillation are about the output's softmax. The best answer is known.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor
from torch.special import entr

from regard.inspection.records import Bars, Cell, Estimate, Line, Lines, Panel, Picture, Table
from regard.lab.maps import KEYS, attend_statistics, chunks, normal, weights
from regard.lab.report import CONCEPTS, Claim, Compared, Report, above_zero, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import curve, during, mean, number, share
from regard.lab.tasks.matching import SCALED, Distilling, Matcher, Matching, MatchingExamples, best_loss, loss, right
from regard.lab.training import Trained, train
from regard.spec.normalizers import Hard

WIDTH = 64
TEMPERATURES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
COLDEST = (0.1, 0.03, 0.01, 0.003, 0.001)
ONE_HOT, FLAT = 0.9, 0.9  # a largest weight that is almost all; a share of the keys that is almost all
TRAINED = (0.5, 1.0, 2.0)  # temperatures of trainings
LABELS = 0.0
SOFT = (LABELS, 1.0, 2.0, 4.0)  # what students learn from
DRAWN = 10  # answers drawn from one distribution
NARROW, CHOICES, NOISE, TEACHING = 16, 16, 1.5, 4
ALIKE = 0.05  # losses in nats that differ by less are called the same
AFTER, ASKED, TAUGHT = "trained with τ", "asked at τ", "students"


@dataclass(frozen=True)
class Regime:
    """A named range of τ, what the source says of it, and a test of that. At a border both names hold."""

    name: str
    low: float
    high: float
    says: str
    means: str
    test: Callable[[float, float], bool]

    def covers(self, tau: float) -> bool:
        """Whether τ has this name; 1.0 is Normal alone."""
        return self.low <= tau <= self.high and (tau != 1.0 or self.low == self.high)


# tests take the largest weight and the effective number of keys
REGIMES = (
    Regime("Very Cold", 0.1, 0.5, "almost one-hot", f"weight ≥ {ONE_HOT}", lambda peak, keys: peak >= ONE_HOT),
    Regime("Cold", 0.5, 1.0, "sharp, focused", "keys < half", lambda peak, keys: keys < KEYS / 2),
    Regime("Normal", 1.0, 1.0, "default behavior", "some spread", lambda peak, keys: 1 < keys < KEYS),
    Regime("Warm", 1.0, 2.0, "softer, spread out", "keys > half", lambda peak, keys: keys > KEYS / 2),
    Regime("Hot", 2.0, 5.0, "very flat, uniform", f"keys ≥ {FLAT:.0%}", lambda peak, keys: keys >= FLAT * KEYS),
)


@dataclass(frozen=True)
class TemperatureDraws:
    """One number per draw of 20 queries, each the mean over them; `hard` is the distance to hard attention."""

    entropy: Tensor
    effective: Tensor
    peak: Tensor
    hard: Tensor


ByTemperature = dict[float, TemperatureDraws]


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


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=400, quick=60)
    generator = setting.generator()
    shapes = [(count, 1, KEYS, WIDTH) for count in chunks(repetitions)]
    draws = [(normal(generator, *shape), normal(generator, *shape)) for shape in shapes]
    by_tau = {tau: measure(draws, tau) for tau in setting.each("τ =", sorted({*TEMPERATURES, *COLDEST}))}
    seeds = setting.seeds(setting.choose(full=4, quick=2), generator)
    problem = matching(setting, setting.seed, 1.0).problem
    new = problem.draw(setting.choose(full=400, quick=100), setting.generator())
    runs = [trained_and_asked(setting, seed, new) for seed in seeds]
    return Report(
        "temperature",
        "How does temperature move attention between a single key and all keys alike, and what is it good for?",
        (*regime_tables(by_tau), *use_tables(runs)),
        (regime_picture(by_tau), *use_pictures(runs)),
        finding(by_tau, runs),
        (
            Compared(f"{CONCEPTS}, section 4, Temperature effects", regime_claims(by_tau)),
            Compared(f"{CONCEPTS}, section 4, When to use temperature", use_claims(runs)),
        ),
        setting.record(repetitions, trainings=len(runs), steps=runs[0].trained[1.0].task.steps),
    )


def measure(draws: list[tuple[Tensor, Tensor]], tau: float) -> TemperatureDraws:
    """The same draws at this temperature, and how far they are from hard attention."""
    parts = []
    for query, key in draws:
        value = torch.eye(KEYS, dtype=query.dtype).expand(len(query), 1, -1, -1)
        soft, statistics = attend_statistics(query, key, value, "entropy", "peak", temperature=tau)
        apart = (soft - weights(query, key, normalizer=Hard(), engine="tiled")).abs().sum(-1) / 2
        rows = (statistics["entropy"], statistics["entropy"].exp(), statistics["peak"], apart)
        parts.append([each.mean((1, 2)) for each in rows])
    return TemperatureDraws(*(torch.cat(part) for part in zip(*parts, strict=True)))


def names(tau: float) -> str:
    """The regimes a temperature belongs to."""
    return " / ".join(regime.name for regime in REGIMES if regime.covers(tau))


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
    return share(values) if name in ("right", "weight") else number(values)


def gain(runs: Runs, tau: float) -> Estimate:
    """What W_Q and W_K multiply q · k / √d_k by, in units of what is best at τ = 1."""
    best = NARROW**0.5 / NOISE**2  # √d / σ² makes the true probabilities
    return number([each.gain[tau] / best for each in runs])


def moved(runs: Runs) -> float:
    """The largest difference of outputs after τ went into W_Q."""
    return max(difference for each in runs for difference in each.moved.values())


def regime_tables(by_tau: ByTemperature) -> tuple[Table, Table]:
    """Entropy, effective keys and peak at each temperature, and the limit τ → 0, where softmax is hard attention."""
    rows: list[tuple[Cell, ...]] = []
    for tau in TEMPERATURES:
        draws = by_tau[tau]
        rows.append((f"{tau:g}", names(tau), *map(mean, (draws.entropy, draws.effective, draws.peak))))
    title = f"{KEYS} keys, d_k = {WIDTH}, scores ÷ √d_k ÷ τ; mean and 95% interval"
    limit = [(f"{tau:g}", mean(by_tau[tau].hard), mean(by_tau[tau].effective)) for tau in COLDEST]
    return (
        Table(("τ", "regime", "entropy (nats)", "keys e^H", "peak"), rows, title),
        Table(("τ", "share of weight misplaced", "keys e^H"), limit, "Distance to hard attention, normalizer=Hard()"),
    )


def regime_picture(by_tau: ByTemperature) -> Picture:
    """Effective number of keys against τ, and the largest weight down to the limit."""
    every = sorted(by_tau)
    keys = curve("", TEMPERATURES, [mean(by_tau[tau].effective) for tau in TEMPERATURES])
    peak = curve("largest weight", every, [mean(by_tau[tau].peak) for tau in every])
    apart = curve("distance to hard", every, [mean(by_tau[tau].hard) for tau in every])
    in_use = Lines([keys], "τ", "effective keys e^H", f"Keys in use, of {KEYS}", log_x=True)
    return Panel((in_use, Lines([peak, apart], "τ", "share of the weight", "Toward hard attention", log_x=True)))


def use_tables(runs: Runs) -> tuple[Table, ...]:
    """Models trained with τ, the model of τ = 1 at another τ, and students by what they learn from."""
    training: list[tuple[Cell, ...]] = []
    for tau in TRAINED:
        factor, moves = gain(runs, tau), _size(max(each.moved[tau] for each in runs))
        results = (scored(runs, AFTER, tau, name) for name in ("loss", "right"))
        training.append((f"{tau:g}", *results, factor, factor.mean / tau, moves))
    best = number([each.best.loss for each in runs]), share([each.best.right for each in runs])
    training.append(("best possible", *best, "τ", 1.0, ""))
    names = ("loss", "right", "weight", "different")
    asked: list[tuple[Cell, ...]] = [
        (f"{tau:g}", *(scored(runs, ASKED, tau, name) for name in names)) for tau in TEMPERATURES
    ]
    students: list[tuple[Cell, ...]] = []
    for soft in SOFT:
        source = "right answers" if soft == LABELS else f"teacher, τ = {soft:g}"
        keys = number([each.target_keys[soft] for each in runs])
        students.append((source, keys, *(scored(runs, TAUGHT, soft, name) for name in ("loss", "right"))))
    students.append(("(the teacher)", "", *(scored(runs, ASKED, 1.0, name) for name in ("loss", "right"))))
    return (
        Table(
            ("τ", "loss", "right", "gain of W_Q and W_K", "gain ÷ τ", "τ · W_Q moves outputs by"),
            training,
            f"Trained with τ to find which of {CHOICES} keys a noisy query shows; mean and 95% interval over "
            f"{len(runs)} trainings",
        ),
        Table(
            ("τ", "loss", "right", "weight on it", f"different in {DRAWN} draws"),
            asked,
            "The model trained with τ = 1, asked at another τ",
        ),
        Table(
            ("learns from", "keys in a target", "loss", "right"),
            students,
            f"Students that see {TEACHING * CHOICES} examples, over and over; asked new ones",
        ),
    )


def _size(difference: float) -> str:
    return f"{difference:.0e}" if difference else "0"


def use_pictures(runs: Runs) -> tuple[Picture, ...]:
    """Training, inference and distillation."""
    losses = [during([each.trained[tau] for each in runs], "new examples", f"τ = {tau:g}") for tau in TRAINED]
    gains = [curve("learned", TRAINED, [gain(runs, tau) for tau in TRAINED]), Line("best", TRAINED, TRAINED)]
    new = Lines(losses, "step", "loss (nats)", "New examples")
    factors = Lines(gains, "τ of the training", "gain", "W_Q and W_K make up for τ")
    training = Panel((new, factors), f"Trained with τ, mean and range of {len(runs)} runs")
    loss = Lines([_curve(runs, "loss")], "τ", "loss (nats)", "Trained with τ = 1, asked at τ: loss", log_x=True)
    key = Lines([_curve(runs, "right"), _curve(runs, "weight")], "τ", "share", "The right key", log_x=True)
    sampling = Lines([_curve(runs, "different")], "τ", "keys", f"Different keys in {DRAWN} draws", log_x=True)
    series = {"right, new examples": [scored(runs, TAUGHT, soft, "right").mean for soft in SOFT]}
    labels = ["answers" if soft == LABELS else f"τ = {soft:g}" for soft in SOFT]
    students = Bars(labels, series, "share", f"Students of {TEACHING * CHOICES} examples")
    return training, Panel((loss, key)), Panel((sampling, students))


def _curve(runs: Runs, name: str) -> Line:
    names = {"right": "largest weight", "weight": "weight on it"}
    return curve(names.get(name, ""), TEMPERATURES, [scored(runs, ASKED, tau, name) for tau in TEMPERATURES])


def regime_claims(by_tau: ByTemperature) -> tuple[Claim, ...]:
    """Each named regime, tested at every temperature it covers."""
    listed = []
    for regime in REGIMES:
        taus = [tau for tau in TEMPERATURES if regime.covers(tau)]
        peaks = [mean(by_tau[tau].peak).mean for tau in taus]
        keys = [mean(by_tau[tau].effective).mean for tau in taus]
        passed = [tau for tau, peak, used in zip(taus, peaks, keys, strict=True) if regime.test(peak, used)]
        if passed == taus:
            verdict = f"confirmed: {regime.means} everywhere"
        elif passed:
            verdict = f"partly: {regime.means} at τ = {', '.join(f'{tau:g}' for tau in passed)}"
        else:
            verdict = f"corrected: {regime.means} nowhere"
        here = f"{_span(keys, '.1f')} keys, peak {_span(peaks, '.2f')}"
        listed.append(Claim(f"{regime.name}, τ = {_span(taus, 'g')}", regime.says, here, verdict))
    return tuple(listed)


def _span(numbers: list[float], form: str) -> str:
    ends = [format(number, form) for number in (numbers[0], numbers[-1])]
    return ends[0] if len(numbers) == 1 else f"{ends[0]}–{ends[1]}"


def use_claims(runs: Runs) -> tuple[Claim, ...]:
    """When to use which temperature."""
    losses = [scored(runs, AFTER, tau, "loss").mean for tau in TRAINED]
    matters = "corrected: any τ will do" if max(losses) - min(losses) < ALIKE else "confirmed: τ matters"
    ratio = gain(runs, TRAINED[-1]).mean / gain(runs, TRAINED[0]).mean
    cost = scored(runs, ASKED, 0.7, "loss").mean - scored(runs, ASKED, 1.0, "loss").mean
    same = scored(runs, ASKED, 0.7, "right") == scored(runs, ASKED, 1.0, "right")
    keys = [scored(runs, ASKED, tau, "different").mean for tau in (1.0, 1.5)]
    weight = [scored(runs, ASKED, tau, "weight").mean for tau in (1.0, 0.5)]
    hot = [scored(runs, ASKED, tau, "different").mean for tau in (2.0, 5.0)]
    better = number([each.scores[TAUGHT][1.0].loss - each.scores[TAUGHT][2.0].loss for each in runs])
    scores = [scored(runs, TAUGHT, soft, "right").mean for soft in (LABELS, 1.0, 2.0)]
    answers = f"{'the same' if same else 'other'} answers, {'too sure' if cost > 0 else 'better'}"
    focused = f"{confirmed(not same or cost <= 0, 'partly')}: {answers}"
    differ = f"outputs differ by {_size(moved(runs))}"
    # whether W_Q and W_K took over at least half of the factor of 4, on a log scale
    undone = "corrected: undone by training" if ratio > 2 else "confirmed: not undone"
    return (
        Claim("training", "1.0", f"loss {_row(losses)} at {_row(TRAINED, 'g')}", matters),
        Claim("Warm as regularization", "1.0–2.0", f"gain × {ratio:.1f} for τ × 4", undone),
        Claim("inference, focused", "0.7–1.0", f"{cost:+.3f} nats at 0.7", focused),
        Claim("Cold for precise retrieval", "0.5–1.0", f"weight on it {_row(weight)}", _rises(weight)),
        Claim("sampling, diverse", "1.0–1.5", f"{_row(keys, '.1f')} keys in {DRAWN}", _rises(keys)),
        Claim("Hot for exploration", "2.0+", f"{_row(hot, '.1f')} keys in {DRAWN}", _rises(hot)),
        Claim("distillation", "2.0+", f"right {_row(scores)}", f"{above_zero(better)}: answers, τ = 1, τ = 2"),
        Claim("τ at inference, not in training", "in most", differ, "confirmed: τ · W_Q undoes τ"),
    )


def _row(numbers: list[float] | tuple[float, ...], form: str = ".2f") -> str:
    return ", ".join(format(each, form) for each in numbers)


def _rises(numbers: list[float]) -> str:
    return confirmed(numbers == sorted(numbers) and numbers[0] < numbers[-1])


def finding(by_tau: ByTemperature, runs: Runs) -> str:
    """Three sentences, from the numbers."""
    low, high = TEMPERATURES[0], TEMPERATURES[-1]
    keys = {tau: mean(by_tau[tau].effective).mean for tau in (low, 0.5, 1.0, high)}
    one_hot = mean(by_tau[0.5].peak).mean >= ONE_HOT
    losses = [scored(runs, AFTER, tau, "loss").mean for tau in TRAINED]
    gains = [gain(runs, tau).mean for tau in TRAINED]
    best = min(TEMPERATURES, key=lambda tau: scored(runs, ASKED, tau, "loss").mean)
    students = {soft: f"{scored(runs, TAUGHT, soft, 'right').mean:.0%}" for soft in SOFT}
    return (
        f"From τ = {low:g} to {high:g} a query goes from {keys[low]:.1f} to {keys[high]:.1f} of {KEYS} keys in use; "
        f"τ = 0.5 still uses {keys[0.5]:.1f}{'' if one_hot else ', which is not one-hot'}, and at τ = {COLDEST[-1]:g} "
        f"all but {mean(by_tau[COLDEST[-1]].hard).mean:.1%} of the weight is where hard attention puts it "
        f"(unscaled scores of width {WIDTH} are scaled ones at τ = {1 / math.sqrt(WIDTH):g}). "
        f"A model can undo τ by multiplying W_Q with it (outputs differ by {_size(moved(runs))}), and does: trained "
        f"with τ = {_row(TRAINED, 'g')} its gain is {_row(gains)} of what is best at "
        f"τ = 1, its loss {_row(losses)}; after training τ is a knob, and the loss is lowest at τ = {best:g}; students "
        f"of {TEACHING * CHOICES} examples are right {students[LABELS]} of the time if they see answers, and "
        f"{students[1.0]}, {students[2.0]} and {students[4.0]} if they see a teacher at τ = 1, 2 and 4."
    )
