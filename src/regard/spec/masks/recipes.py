"""Named patterns made of the basic masks."""

from collections.abc import Sequence

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
            f"local's width must be odd, so that the band has a center, got {width}; "
            f"for the {width} last keys use masks.Window({width - 1}, 0)"
        )
    return Window(width // 2, width // 2)


def longformer(width: int, positions: Sequence[int], step: int = 1) -> Mask:
    """Longformer: a local band, dilated if `step` is more than 1, and a few global positions (Beltagy et al., 2020)."""
    band = local(width) if step == 1 else Dilated(width, step)
    return band | Global(positions)


def bigbird(
    length: int, size: int = 64, *, window: int = 3, ends: int = 1, random: int = 3, seed: int = 0, causal: bool = False
) -> Mask:
    """BigBird (Zaheer et al., 2020): a band, global ends and random keys, all in blocks of `size` positions.

    Each block of queries sees `window` blocks around its own, the first and last `ends` blocks, which also see
    everything, and `random` more blocks drawn with `seed` from those left (all of them if fewer are). With `causal` the
    draw is among earlier blocks, and no query sees a later key.
    """
    count = -(-whole("bigbird's length", length, least=1) // whole("bigbird's size", size, least=1))
    if whole("bigbird's window", window, least=1) % 2 == 0:
        raise ValueError(
            f"bigbird's window counts blocks around the diagonal and must be odd, got {window}; "
            f"take {window - 1} or {window + 1}"
        )
    whole("bigbird's ends", ends, least=0)
    random = min(whole("bigbird's random", random, least=0), count)
    row, column = torch.arange(count, device="cpu").view(-1, 1), torch.arange(count, device="cpu")
    layout = (row - column).abs() <= window // 2
    for block in (row, column):
        layout = layout | (block < ends) | (block >= count - ends)
    draw = torch.rand(
        (count, count),
        generator=torch.Generator().manual_seed(whole("bigbird's seed", seed, most=(1 << 64) - 1)),
        device="cpu",
        dtype=torch.float32,
    )
    taken = layout | (column > row) if causal else layout
    chosen = draw.masked_fill(taken, -1.0).topk(random, -1)
    layout = layout.scatter(1, chosen.indices, layout.gather(1, chosen.indices) | (chosen.values >= 0))
    mask = Blocks(size, layout)
    return mask & Causal() if causal else mask
