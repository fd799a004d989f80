"""A mask of one's own in one class, which works wherever regard\'s own do: python examples/extending/checkerboard.py"""

from dataclasses import dataclass

import torch
from torch import Tensor

import regard
from regard import masks
from regard.spec import register
from regard.spec.plane import SAME_FOR_ALL, Pairs, Plane
from regard.spec.steps import BlockTable, MaskStep


@register
@dataclass(frozen=True, eq=False, repr=False)
class Checkerboard(masks.Mask):
    """Squares of `size` positions, every other one visible, as on a checkerboard."""

    size: int

    axes = SAME_FOR_ALL
    symbols = ("⌊i/size⌋ + ⌊j/size⌋ is even", r"\lfloor i/s \rfloor + \lfloor j/s \rfloor \text{ is even}")

    def visible(self, pairs: Pairs) -> Tensor:
        return (pairs.i // self.size + pairs.j // self.size) % 2 == 0

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        last = max(int(plane.starts.max()) + plane.queries, plane.key_start + plane.keys)
        block = torch.arange(-(-last // self.size))
        return (BlockTable(self.size, ((block[:, None] + block) % 2 == 0)[None, None]),)


if __name__ == "__main__":
    query, key, value = torch.randn(3, 1, 2, 8, 4, generator=torch.Generator().manual_seed(0))
    mask = Checkerboard(2) & masks.Causal()
    print(regard.plan(query, key, value, mask=mask))
    regard.matrix(query, key, mask=mask)[0, 0].show()
