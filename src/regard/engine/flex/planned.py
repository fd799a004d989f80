"""What a call would compute: the pairs of all blocks that are listed."""

import torch

from regard.engine.flex.blocks import Listing, block_size, blocks_of
from regard.engine.flex.call import has_kernel
from regard.engine.flex.lowering import wants_lse
from regard.engine.request import Request
from regard.spec.plane import Plane
from regard.spec.steps import shows_everything


def planned(request: Request) -> tuple[int, None]:
    """Pairs whose logit is computed; how much memory that takes, only torch knows."""
    plane = request.plane
    every = plane.batch * plane.heads * plane.queries * plane.keys
    if shows_everything(request.mask.steps(plane)) or not has_kernel(request.query, wants_lse(request)):
        return every, None
    size = block_size(plane)
    blocks = blocks_of(request.mask, plane, size)
    return sum(_pairs(listing, plane, size) for listing in (blocks.partial, blocks.full)), None


def _pairs(listing: Listing, plane: Plane, size: int) -> int:
    batch, heads, rows, columns = listing.blocks.shape
    heights = (plane.queries - torch.arange(rows, device="cpu") * size).clamp(0, size)
    listed = torch.arange(columns, device="cpu") < listing.count.unsqueeze(-1)
    last = (listed & (listing.blocks == (plane.keys - 1) // size)).any(-1)
    widths = listing.count * size - last * (-plane.keys % size)
    lanes = (plane.batch // batch) * (plane.heads // heads)
    return int((heights * widths).sum()) * lanes
