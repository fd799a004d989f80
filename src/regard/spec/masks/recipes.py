"""Named patterns made of the basic masks."""

import torch

from regard.checks import whole
from regard.spec.masks.band import Causal, Dilated, Window
from regard.spec.masks.base import Mask
from regard.spec.masks.columns import Global
from regard.spec.masks.tables import Blocks


def local(width: int) -> Mask:
    """A band of `width` keys centered on the query (odd widths); work grows as n × width."""
    if whole("local's width", width, least=1) % 2 == 0:
        raise ValueError(
            f"local's width must be odd, so that the band has a center; got {width}. "
            f"For the {width} last keys use masks.Window({width - 1}, 0)"
        )
    return Window(width // 2, width // 2)


def longformer(width: int, positions: list[int], step: int = 1) -> Mask:
    """Longformer: a (dilated) local band and a few global positions (Beltagy et al., 2020)."""
    band = local(width) if step == 1 else Dilated(width, step)
    return band | Global(torch.tensor(positions, dtype=torch.int64))


def bigbird(
    length: int, size: int = 64, *, window: int = 3, ends: int = 1, random: int = 3, seed: int = 0, causal: bool = False
) -> Mask:
    """BigBird in blocks of `size`: a band of `window` blocks, `ends` global blocks at each end, `random` more per row
    (Zaheer et al., 2020)."""
    count = -(-whole("bigbird's length", length, least=1) // whole("bigbird's size", size, least=1))
    if window % 2 == 0:
        raise ValueError(f"bigbird's window counts blocks around the diagonal and must be odd, got {window}")
    row, column = torch.arange(count).view(-1, 1), torch.arange(count)
    layout = (row - column).abs() <= window // 2
    for index in (row, column):
        layout = layout | (index < ends) | (index >= count - ends)
    draw = torch.rand((count, count), generator=torch.Generator().manual_seed(seed))
    chosen = draw.masked_fill(layout, -1.0).topk(min(random, count), -1).indices
    layout = layout.scatter(1, chosen, True)
    mask = Blocks(size, layout)
    return mask & Causal() if causal else mask
