"""Found: what trained models of one kind answered."""

from dataclasses import dataclass

from torch import Tensor

from regard.inspection.records import Estimate
from regard.lab.training import Trained
from regard.lab.training.over import share

KEPT = (1, 4)  # marked tokens


@dataclass(frozen=True)
class Found:
    """The trainings of one kind of model for so many marks, and how each answered, with the distance of every question.

    `others` are the answers at other lengths, `focus` the weights on the right token (attention alone).
    """

    kind: str
    kept: int
    trained: list[Trained]
    right: list[Tensor]
    distance: list[Tensor]
    others: dict[int, list[Tensor]]
    reach: int
    focus: list[Tensor]
    before: list[Tensor]

    def accuracy(self, low: int = 1, high: int = 2**62) -> Estimate:
        """Of the questions about distances from `low` to below `high`: over trainings, or the questions of one."""
        kept = [each[(far >= low) & (far < high)] for each, far in zip(self.right, self.distance, strict=True)]
        return over(kept)


def over(found: list[Tensor]) -> Estimate:
    """Mean and interval over trainings; over sequences if there is one training."""
    return share(found[0] if len(found) == 1 else [float(each.mean()) for each in found])


def lengths(trained: int) -> tuple[int, ...]:
    """A quarter of the trained length, to four times it."""
    return tuple(trained * share // 4 for share in (1, 2, 4, 8, 16))


def octaves(length: int) -> list[int]:
    """Distances from which on each doubling is counted."""
    return [2**power for power in range((length - 1).bit_length())]


def of(found: list[Found], kind: str, kept: int) -> Found:
    """One of them."""
    return next(each for each in found if (each.kind, each.kept) == (kind, kept))
