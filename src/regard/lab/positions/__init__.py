"""positions: what attention knows of order without a scheme, how each scheme tells it, and how far that reaches.

Each scheme is measured in three ways. A layer with initial weights gets the same tokens in another order, and then all
of them at another position. A small causal model is trained on short texts to name the token two positions before, and
evaluated on longer ones. And of the trained model: how its weights fall with the distance.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard import nn
from regard.inspection.records import Cell, Estimate, Line, Lines, Panel, Picture, Table
from regard.lab.cost import one_thread
from regard.lab.positions.schemes import (
    BACK,
    HEADS,
    MOVED,
    SCHEMES,
    TIMES,
    TOKENS,
    WIDTH,
    PositionRecall,
    Scheme,
    profile,
    right,
)
from regard.lab.report import (
    CONCEPTS,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    all_of,
    below,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import mean, number, positive, share, training_times
from regard.lab.training import Trained, train
from regard.spec.biases import ALiBi
from regard.spec.masks import Causal
from regard.spec.positions import rotary, sinusoidal

ZERO = 1e-12  # a relative change that is rounding
KNOWN, KEPT = 0.9, 0.9  # shares: right answers that show a scheme can do it, and of these what is still right
LEARNS = DecisionRule(((KNOWN, "cannot"), (math.inf, "can")))
LASTS = DecisionRule(((KEPT, "loses"), (math.inf, "keeps")))
CAUSAL = "none, causal mask"
DRAWN = tuple(scheme.name for scheme in SCHEMES if scheme.used)
RELATIVE = ("T5", "Shaw", "Transformer-XL", "rotary", "ALiBi")


@dataclass(frozen=True)
class OrderChanges:
    """Relative changes, one per repetition: of the output when tokens are shuffled or moved, and of the values."""

    shuffled: Tensor
    moved: Tensor
    values: Tensor


def order(scheme: Scheme, repetitions: int, generator: torch.Generator, causal: bool = False) -> OrderChanges:
    """New layers with weights and tables as they start, in float64, over random tokens.

    Without positions a shuffled text gives the shuffled output: `shuffled` is how far it is from that. `moved` is how
    much changes when the whole text begins at another place, `values` how much of the positions is in V.
    """
    rows = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        for _ in range(repetitions):
            rows.append(torch.stack(_changes(scheme, causal)))
    return OrderChanges(*torch.stack(rows, 1))


def _changes(scheme: Scheme, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    position = scheme.make(HEADS, WIDTH // HEADS, TOKENS + MOVED)
    if isinstance(position, nn.T5):
        position = nn.T5(HEADS)  # there is no mask, so both directions count
    added = position.double() if isinstance(position, nn.Sinusoidal | nn.Learned) else None
    layer = nn.MultiHeadAttention(
        WIDTH,
        HEADS,
        position=position if added is None else None,
        mask=Causal() if causal else None,
        engine="reference",
    ).double()

    def given(x: Tensor, start: int) -> Tensor:
        return x if added is None else added(x, start)

    def out(x: Tensor, start: int = 0) -> Tensor:
        output: Tensor = layer(given(x, start), query_start=start)
        return output

    x, shuffle = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64), torch.randperm(TOKENS)
    plain = out(x)
    return (
        _apart(out(x[:, shuffle]), plain[:, shuffle]),
        _apart(out(x, MOVED), plain),
        _apart(layer.v_proj(given(x, 0)), layer.v_proj(x)),
    )


def _apart(given: Tensor, expected: Tensor) -> Tensor:
    apart: Tensor = (given - expected).norm() / expected.norm()
    return apart


@dataclass(frozen=True)
class SchemeTrainings:
    """The trainings of one scheme: right answers by length, and weight by distance, each for every training."""

    runs: list[Trained]
    right: dict[int, list[float]]
    profile: Tensor

    def at(self, times: int) -> Estimate:
        """Right answers at so many trained lengths."""
        task = self.runs[0].task
        assert isinstance(task, PositionRecall)
        return share(self.right[times * task.length])

    @property
    def peak(self) -> int:
        """The distance that gets most weight."""
        return int(self.profile.mean(0).argmax())


BySchemeTrainings = dict[str, SchemeTrainings]


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=3, quick=2)
    generator = setting.generator()
    drawn = setting.choose(full=20, quick=5)
    with one_thread():
        orders = {scheme.name: order(scheme, drawn, generator) for scheme in SCHEMES}
        orders[CAUSAL] = order(SCHEMES[0], drawn, generator, causal=True)
        seeds = setting.seeds(repetitions, generator)
        trainings = {scheme.name: learned(setting, scheme.name, seeds) for scheme in SCHEMES}
    task = training_task(setting, "none", 0)
    return Report(
        "positions",
        "What does attention know of the order of its tokens, how does each scheme tell it, and does that hold for "
        "texts longer than the trained ones?",
        (order_table(orders), length_table(trainings, task.length), use_table()),
        pictures(trainings),
        finding(orders, trainings),
        compared(*claims(orders, trainings)),
        setting.record(repetitions, steps=task.steps, trained_length=task.length, vocabulary=task.vocabulary),
        Timing((training_times("scheme", {name: each.runs for name, each in trainings.items()}),)),
        why="“Dog bites man” and “man bites dog” have the same words; without a scheme for positions attention cannot "
        "tell them apart.",
        setup="First the tokens of random texts are shuffled: does the output only follow? Then a layer with each "
        f"scheme is trained to name the token {BACK} places back in texts of {task.length} random tokens, and asked "
        "about longer texts than it was trained on.",
        takeaway=takeaway(orders),
    )


def training_task(setting: Setting, scheme: str, seed: int) -> PositionRecall:
    """What is trained: shorter if quick."""
    steps, rate = setting.choose(full=(250, 1e-2), quick=(45, 2e-2))
    length, batch = setting.choose(full=(32, 32), quick=(16, 16))
    return PositionRecall(seed, steps, rate, 0.2, 1, scheme, length, TIMES[-1] * length, batch)


def learned(setting: Setting, scheme: str, seeds: list[int]) -> SchemeTrainings:
    """The scheme trained with every seed, and evaluated at every length."""
    runs = [train(training_task(setting, scheme, seed)) for seed in seeds]
    short, texts = training_task(setting, scheme, 0), setting.choose(full=32, quick=16)
    answers: dict[int, list[float]] = {}
    profiles = []
    for each in runs:
        generator = torch.Generator().manual_seed(each.task.seed + 1)
        for times in TIMES:
            tokens = torch.randint(short.vocabulary, (texts, times * short.length), generator=generator)
            if times == 1:
                profiles.append(profile(each.model, tokens, short.length // 2))
            answers.setdefault(tokens.shape[1], []).append(right(each.model, tokens, BACK, short.length // 2))
    return SchemeTrainings(runs, answers, torch.stack(profiles))


def order_table(orders: dict[str, OrderChanges]) -> Table:
    """What shuffling and moving change, and whether V knows positions."""
    rows: list[tuple[Cell, ...]] = [
        (name, *map(mean, (each.shuffled, each.moved, each.values))) for name, each in orders.items()
    ]
    title = (
        f"A layer over {TOKENS} random tokens, weights and tables as they start: relative change of its output, and of "
        "its values by the positions; mean and 95% interval"
    )
    return Table(("scheme", "tokens shuffled", f"all moved by {MOVED}", "values"), rows, title)


def length_table(trainings: BySchemeTrainings, length: int) -> Table:
    """Right answers at the trained length and beyond."""
    rows: list[tuple[Cell, ...]] = [(name, *(each.at(times) for times in TIMES)) for name, each in trainings.items()]
    columns = ("scheme", *(f"{times * length} tokens" for times in TIMES))
    runs = len(next(iter(trainings.values())).runs)
    title = (
        f"Trained on {length} tokens to tell which token stood {BACK} places before: share of right answers at the end "
        f"of new texts (guessing: {1 / 16:.3f}), {runs} trainings"
    )
    return Table(columns, rows, title)


def use_table() -> Table:
    """Models that use each scheme (literature)."""
    rows = [(scheme.name, scheme.enters, scheme.used) for scheme in SCHEMES if scheme.used]
    return Table(("scheme", "enters at", "used in"), rows, "Who uses which (literature, not measured)")


def pictures(trainings: BySchemeTrainings) -> tuple[Picture, ...]:
    """Right answers against the length, mean weight against the distance, and what is fixed before training."""
    answers, profiles = [], []
    for name in DRAWN:
        each = trainings[name]
        answers.append(Line(name, list(each.right), [each.at(times).mean for times in TIMES]))
        profiles.append(Line(name, list(range(each.profile.shape[1])), each.profile.mean(0).tolist()))
    slopes = [
        Line(f"slope 1/{1 / slope:.0f}", list(range(65)), [-slope * distance for distance in range(65)])
        for slope in ALiBi(4).slopes.tolist()
    ]
    return (
        Lines(answers, "length of the text", "right answers", "Past the trained length", log_x=True),
        Lines(profiles, "distance i − j", "mean weight", f"Trained to look {BACK} places back"),
        Panel((near_picture(), Lines(slopes, "distance i − j", "added to the logit", "Fixed: ALiBi, 4 heads"))),
    )


def near_picture() -> Picture:
    """Products of sinusoidal positions, and of equal queries and keys after rotation, without any training.

    With the same base both are the mean of the same cosines.
    """
    width, reach = 64, 64
    table = sinusoidal(reach, width, dtype=torch.float64)
    turned = rotary(torch.ones(1, 1, reach, width, dtype=torch.float64), base=500_000.0)[0, 0]
    lines = [
        Line(name, list(range(reach)), (each @ each[0] / (each[0] @ each[0])).tolist())
        for name, each in (("sinusoidal; rotary, base 10,000", table), ("rotary, base 500,000", turned))
    ]
    return Lines(lines, "distance i − j", "product, of distance 0", "Fixed: nearness")


def claims(orders: dict[str, OrderChanges], trainings: BySchemeTrainings) -> tuple[Claim, ...]:
    """What is said of positions."""
    schemes, count = list(DRAWN), len(DRAWN)
    largest = {name: float(each.shuffled.max()) for name, each in orders.items()}
    before = [scheme.name for scheme in SCHEMES if scheme.enters == "embeddings"]
    outside = [name for name in schemes if float(orders[name].values.max()) == 0]
    broken = [name for name in schemes if float(orders[name].shuffled.min()) > ZERO]
    apart = [name for name in RELATIVE if float(orders[name].moved.max()) < ZERO]
    peaked = [name for name in schemes if trainings[name].peak == BACK]
    change = "relative change of the output when tokens are shuffled"
    notion = quoted(CONCEPTS, "Attention has NO built-in notion of position")
    mask = DecisionRule(((ZERO, "confirmed"), (math.inf, "partly")))
    return (
        Claim(
            quoted(CONCEPTS, "If you shuffle input tokens, outputs shuffle the same way"),
            f"largest {change}, no mask",
            largest["none"],
            below(ZERO),
        ),
        Claim(notion, f"largest {change}, no mask", largest["none"], below(ZERO)),
        Claim(
            notion, f"{change}, causal mask", positive(orders[CAUSAL].shuffled), mask, "a causal mask tells the order"
        ),
        Claim(
            quoted(CONCEPTS, "Breaks permutation equivariance"),
            f"schemes that do, of {count}",
            len(broken),
            all_of(count),
        ),
        Claim(
            quoted(CONCEPTS, "Add position information **before** attention"),
            f"schemes that add it to the embeddings, of {count}",
            len(before),
            all_of(count),
            "the others act on queries and keys or on scores",
        ),
        Claim(
            quoted(CONCEPTS, "Position information flows into attention through Q and K"),
            f"schemes that leave V as it is, of {count}",
            len(outside),
            all_of(count),
            "what is added to embeddings reaches V too",
        ),
        Claim(
            quoted(CONCEPTS, "Encodes distance, not absolute"),
            f"relative schemes whose output stays when all tokens move by {MOVED}, of {len(RELATIVE)}",
            len(apart),
            all_of(len(RELATIVE)),
        ),
        Claim(
            quoted(CONCEPTS, "Position-dependent patterns can emerge"),
            f"trained schemes that look {BACK} back most, of {count}",
            len(peaked),
            above(0),
        ),
    )


def takeaway(orders: dict[str, OrderChanges]) -> Takeaway:
    """What attention knows of order."""
    change = "relative change of the output when tokens are shuffled"
    broken = sum(float(orders[name].shuffled.min()) > ZERO for name in DRAWN)
    return Takeaway(
        "Without a mask and without a scheme for positions attention does not know the order of its tokens; a causal "
        "mask or any scheme tells it.",
        "Here attention knows something of the order by itself, or a scheme does not tell it.",
        (
            Evidence(f"largest {change}, no mask, no scheme", float(orders["none"].shuffled.max()), below(ZERO)),
            Evidence(f"{change}, causal mask", positive(orders[CAUSAL].shuffled), above(ZERO)),
            Evidence(f"schemes with which it changes, of {len(DRAWN)}", broken, all_of(len(DRAWN))),
        ),
    )


def finding(orders: dict[str, OrderChanges], trainings: BySchemeTrainings) -> str:
    """Sentences, from the numbers."""
    learns = {name: LEARNS.verdict(each.at(1)) for name, each in trainings.items()}
    able = [name for name, word in learns.items() if word == "can"]
    lasting: dict[str, list[str]] = {"keeps": [], "loses": [], "not shown": []}
    for name in able:
        near, far = (trainings[name].right[times * _length(trainings)] for times in (1, TIMES[-1]))
        kept = number([after / before for before, after in zip(near, far, strict=True)])
        lasting[LASTS.verdict(kept)].append(name)
    length = _length(trainings)
    unsure = _list(lasting["not shown"])
    return (
        f"Without positions a shuffled text gives the shuffled output to {float(orders['none'].shuffled.max()):.0e}, a "
        f"causal mask alone changes it by {mean(orders[CAUSAL].shuffled).mean:.2f}. Trained on {length} tokens, "
        f"{_list(able)} can tell which token stood {BACK} places before; at {TIMES[-1] * length} tokens "
        f"{_list(lasting['keeps'])} still can, {_list(lasting['loses'])} no longer"
        f"{f' ({unsure}: not shown with this many runs)' if lasting['not shown'] else ''}."
    )


def _length(trainings: BySchemeTrainings) -> int:
    task = next(iter(trainings.values())).runs[0].task
    assert isinstance(task, PositionRecall)
    return task.length


def _list(names: list[str]) -> str:
    return "nobody" if not names else names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
