"""A normalizer of one's own in one class: python examples/extending/squares.py"""

from dataclasses import dataclass

import torch
from torch import Tensor

import regard
from regard import normalizers
from regard.spec import register


@register
@dataclass(frozen=True, eq=False, repr=False)
class Squares(normalizers.Normalizer):
    """x² over the sum of the row's squares. The row state is that sum."""

    title = "squares"
    symbols = ("x² / sum of x²", r"\frac{x^2}{\sum x^2}")

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        squares = torch.where(logits == -torch.inf, 0.0, logits).square()
        total = squares.sum(-1, keepdim=True)
        return squares / torch.where(total > 0, total, 1.0), total.squeeze(-1)


if __name__ == "__main__":
    print(regard.explain([[1.0]], [[1.0], [2.0]], [[1.0], [0.0]], normalizer=Squares()))
