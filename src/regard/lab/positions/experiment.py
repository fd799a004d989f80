"""positions: what attention knows of order without a scheme, how each scheme tells it, and how far that reaches.

Three things are asked of each scheme. A layer with weights as they start is shown the same tokens in another order, and
then all of them at another place. A small causal model is trained to tell which token stood two places before, on short
texts, and then asked on longer ones. And of the trained model: how its weight falls with the distance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Cell, Estimate, Line, Lines, Panel, Picture, Table
from regard.lab.cost import one_thread
from regard.lab.positions.task import SCHEMES, PositionRecall, Scheme, profile, right
from regard.lab.report import CONCEPTS, Claim, Compared, Report, Timing, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import mean, share, training_times
from regard.lab.training import Trained, train
from regard.nn import T5, Learned, MultiHeadAttention, Sinusoidal
from regard.spec.biases import ALiBi
from regard.spec.masks import Causal
from regard.spec.positions import rotary, sinusoidal

TOKENS, WIDTH, HEADS, MOVED = 24, 64, 4, 100
BACK = 2
TIMES = (1, 2, 4, 8)  # lengths, in trained lengths
ZERO = 1e-12  # a relative change that is rounding
KNOWN, KEPT = 0.9, 0.9  # shares: right answers that show a scheme can do it, and of these what is still right
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
    if isinstance(position, T5):
        position = T5(HEADS)  # there is no mask, so both directions count
    added = position if isinstance(position, Sinusoidal | Learned) else None
    layer = MultiHeadAttention(
        WIDTH,
        HEADS,
        position=position if added is None else None,
        mask=Causal() if causal else None,
        engine="reference",
    ).double()

    def given(x: Tensor, start: int) -> Tensor:
        return x if added is None else added.double()(x, start)

    def out(x: Tensor, start: int = 0) -> Tensor:
        output: Tensor = layer(given(x, start), query_start=start)
        return output

    x, shuffle = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64), torch.randperm(TOKENS)
    plain = out(x)
    values = layer.v_proj(given(x, 0))
    return (
        _apart(out(x[:, shuffle]), plain[:, shuffle]),
        _apart(out(x, MOVED), plain),
        _apart(values, layer.v_proj(x)),
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
        learned_by_scheme = {scheme.name: learned(setting, scheme.name, seeds) for scheme in SCHEMES}
    length = training_task(setting, "none", 0).length
    return Report(
        "positions",
        "What does attention know of the order of its tokens, how does each scheme tell it, and does that hold for "
        "texts longer than the trained ones?",
        (order_table(orders), length_table(learned_by_scheme, length), use_table()),
        (
            length_picture(learned_by_scheme),
            profile_picture(learned_by_scheme),
            Panel((near_picture(), slope_picture())),
        ),
        finding(orders, learned_by_scheme),
        (Compared(f"{CONCEPTS}, section 6", claims(orders, learned_by_scheme)),),
        setting.record(
            repetitions,
            steps=training_task(setting, "none", 0).steps,
            trained_length=length,
            vocabulary=training_task(setting, "none", 0).vocabulary,
        ),
        timing(learned_by_scheme),
    )


def training_task(setting: Setting, scheme: str, seed: int) -> PositionRecall:
    """What is trained: shorter if quick."""
    length = setting.choose(full=32, quick=16)
    return PositionRecall(
        seed=seed,
        steps=setting.choose(full=250, quick=45),
        rate=setting.choose(full=1e-2, quick=2e-2),
        rise=0.2,
        looks=1,
        scheme=scheme,
        length=length,
        longest=TIMES[-1] * length,
        back=BACK,
        vocabulary=16,
        width=32,
        heads=4,
        batch=setting.choose(full=32, quick=16),
    )


def learned(setting: Setting, scheme: str, seeds: list[int]) -> SchemeTrainings:
    """The scheme trained with every seed, and asked at every length."""
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
        (
            name,
            *(mean(each) for each in (learned_by_scheme.shuffled, learned_by_scheme.moved, learned_by_scheme.values)),
        )
        for name, learned_by_scheme in orders.items()
    ]
    title = (
        f"A layer over {TOKENS} random tokens, weights and tables as they start: relative change of its output, and of "
        "its values by the positions; mean and 95% interval"
    )
    return Table(("scheme", "tokens shuffled", f"all moved by {MOVED}", "values"), rows, title)


def length_table(learned_by_scheme: BySchemeTrainings, length: int) -> Table:
    """Right answers at the trained length and beyond."""
    rows: list[tuple[Cell, ...]] = [
        (name, *(each.at(times) for times in TIMES)) for name, each in learned_by_scheme.items()
    ]
    columns = ("scheme", *(f"{times * length} tokens" for times in TIMES))
    runs = len(next(iter(learned_by_scheme.values())).runs)
    title = (
        f"Trained on {length} tokens to tell which token stood {BACK} places before: share of right answers at the end "
        f"of new texts (guessing: {1 / 16:.3f}), {runs} trainings"
    )
    return Table(columns, rows, title)


def use_table() -> Table:
    """Models that use each scheme (literature)."""
    rows = [(scheme.name, scheme.enters, scheme.used) for scheme in SCHEMES if scheme.used]
    return Table(("scheme", "enters at", "used in"), rows, "Who uses which (literature, not measured)")


def length_picture(learned_by_scheme: BySchemeTrainings) -> Picture:
    """Right answers against the length."""
    lines = [
        Line(name, list(learned_by_scheme[name].right), [learned_by_scheme[name].at(times).mean for times in TIMES])
        for name in DRAWN
    ]
    return Lines(lines, "length of the text", "right answers", "Past the trained length", log_x=True)


def profile_picture(learned_by_scheme: BySchemeTrainings) -> Picture:
    """Mean weight against distance in the trained models."""
    lines = [
        Line(
            name,
            list(range(learned_by_scheme[name].profile.shape[1])),
            learned_by_scheme[name].profile.mean(0).tolist(),
        )
        for name in DRAWN
    ]
    return Lines(lines, "distance i − j", "mean weight", f"Trained to look {BACK} places back")


def near_picture() -> Picture:
    """What sinusoids say of two places, and rotations of equal queries and keys, before anything is learned.

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


def slope_picture() -> Picture:
    """ALiBi's numbers for some heads."""
    slopes = ALiBi(4).slopes.tolist()
    lines = [
        Line(f"slope 1/{1 / slope:.0f}", list(range(65)), [-slope * distance for distance in range(65)])
        for slope in slopes
    ]
    return Lines(lines, "distance i − j", "added to the logit", "Fixed: ALiBi, 4 heads")


def timing(learned_by_scheme: BySchemeTrainings) -> Timing:
    """How long the trainings took."""
    return Timing((training_times("scheme", {name: each.runs for name, each in learned_by_scheme.items()}),))


def claims(orders: dict[str, OrderChanges], learned_by_scheme: BySchemeTrainings) -> tuple[Claim, ...]:
    """What is said of positions."""
    largest = {name: float(each.shuffled.max()) for name, each in orders.items()}
    causal = mean(orders[CAUSAL].shuffled)
    before = [scheme.name for scheme in SCHEMES if scheme.enters == "embeddings"]
    schemes = list(DRAWN)
    through = [name for name in schemes if float(orders[name].values.max()) > 0]
    broken = [name for name in schemes if float(orders[name].shuffled.min()) > ZERO]
    apart = [name for name in RELATIVE if float(orders[name].moved.max()) < ZERO]
    peaked = [name for name in schemes if learned_by_scheme[name].peak == BACK]
    none = "corrected: a causal mask is one" if causal.low > ZERO else "confirmed"
    only = confirmed(not through, f"corrected: not of {', '.join(through)}")
    emerge = f"{len(peaked)} of {len(schemes)} look {BACK} back most"
    same = confirmed(largest["none"] < ZERO)
    return (
        Claim("shuffled tokens, shuffled outputs", "the same", f"{largest['none']:.0e}", same),
        Claim("no notion of position at all", "none", causal, none),
        Claim("a scheme breaks it", "all", *_all(broken, schemes)),
        Claim("positions are added before attention", "all", *_all(before, schemes)),
        Claim("position flows in through Q and K", "only", f"{len(through)} of {len(schemes)} reach V too", only),
        Claim("relative: distance, not absolute", "all", *_all(apart, RELATIVE)),
        Claim("patterns by position emerge, if useful", "may", emerge, confirmed(bool(peaked))),
    )


def _all(which: list[str], of: Sequence[str]) -> tuple[str, str]:
    """How many schemes do it, and whether all do; the others are named if they are few."""
    rest = [name for name in of if name not in which]
    others = ", ".join(rest) if len(rest) < 4 else f"{len(rest)} of them"
    return f"{len(which)} of {len(of)} schemes", confirmed(not rest, f"corrected: not {others}")


def finding(orders: dict[str, OrderChanges], learned_by_scheme: BySchemeTrainings) -> str:
    """One sentence, from the numbers."""
    able = [name for name, each in learned_by_scheme.items() if each.at(1).mean >= KNOWN]
    lasting = [
        name for name in able if learned_by_scheme[name].at(TIMES[-1]).mean >= KEPT * learned_by_scheme[name].at(1).mean
    ]
    lost = [name for name in able if name not in lasting]
    task = next(iter(learned_by_scheme.values())).runs[0].task
    assert isinstance(task, PositionRecall)
    return (
        f"Without positions a shuffled text gives the shuffled output to {float(orders['none'].shuffled.max()):.0e}, a "
        f"causal mask alone changes it by {mean(orders[CAUSAL].shuffled).mean:.2f}; trained on {task.length} tokens, "
        f"{_list(able)} can tell which token stood {BACK} places before, and at {TIMES[-1] * task.length} tokens "
        f"{_list(lasting)} still can{f', {_list(lost)} not' if lost else ''}."
    )


def _list(names: list[str]) -> str:
    return "nobody" if not names else names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
