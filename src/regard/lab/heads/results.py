"""Results: what the experiment on heads has measured, and the numbers that tables, pictures and claims share."""

from dataclasses import dataclass

from torch import Tensor

from regard.inspection.records import Estimate
from regard.lab.heads.measure import Looked, fits
from regard.lab.relations.task import Relating
from regard.lab.training import Trained
from regard.lab.training.over import number, share

SEED = {1: 1.00, 2: 0.12, 4: 0.17, 8: 0.19}  # the row of the source
HEADS = tuple(SEED)
KNOWN = 20  # keys that fit the other tables of the source
QUESTIONS = ("previous", "first", "twin")
TEXTS = 256


@dataclass(frozen=True)
class Run:
    """One training: right answers by question, and the heads before and after it."""

    trained: Trained
    right: dict[str, float]
    before: Looked
    after: Looked


Runs = dict[int, list[Run]]  # by number of heads
Random = dict[tuple[str, str, int], dict[int, Tensor]]  # by start, meaning and tokens: draws by number of heads


def alike(runs: Runs, heads: int, meaning: str, before: bool = False) -> Estimate:
    """The similarity of the heads of the models."""
    return number([(each.before if before else each.after).alike[meaning] for each in runs[heads]])


def patterns(runs: Runs, heads: int, before: bool = False) -> Estimate:
    """Kinds of items that have a head of their own."""
    return number([float((each.before if before else each.after).patterns) for each in runs[heads]])


def everything(runs: Runs, heads: int, less: int = 0) -> Estimate:
    """Right answers to all questions; or how many more there are than with `less` heads, training by training."""
    found = [sum(each.right.values()) / len(each.right) for each in runs[heads]]
    if not less:
        return share(found)
    others = [sum(each.right.values()) / len(each.right) for each in runs[less]]
    return number([one - other for one, other in zip(found, others, strict=True)])


def fitting(random: Random, start: str, meaning: str) -> list[int]:
    """Numbers of tokens with which random heads could have given the source's row."""
    return [
        tokens for first, second, tokens in random
        if (first, second) == (start, meaning) and fits(random[first, second, tokens], SEED)
    ]  # fmt: skip


def width_of(runs: Runs) -> int:
    """The width of the trained layers."""
    asked = runs[1][0].trained.task
    assert isinstance(asked, Relating)
    return asked.width
