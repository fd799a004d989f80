"""What peers need instead of a mask or a bias: tables over all pairs."""

import torch
from torch import Tensor

from regard.bench.case import Case, Inputs
from regard.spec import masks
from regard.spec.biases import T5

LARGEST = 1 << 30  # bytes of a table over all pairs and heads that is still tried


def too_large(case: Case) -> str | None:
    """Why a table over all pairs is not tried."""
    shape = case.shape
    table = 4 * shape.batch * shape.heads * shape.rows * shape.n
    return f"a table of all pairs takes {table / 2**30:.0f} GiB" if table > LARGEST else None


def visible_table(case: Case, inputs: Inputs) -> Tensor | None:
    """Mask and bias as one table that broadcasts over (batch, head, query, key): bool, or numbers to add; or None."""
    spec, mask, pairs = case.spec(case.shape, inputs), case.mask(), case.plane().all
    shape = case.shape
    seen = None
    if not isinstance(mask, masks.Full):
        seen = mask.visible(pairs).expand(1, 1, 1, shape.rows, shape.n)[0].contiguous()
    if "bias" not in spec:
        return seen
    if isinstance(spec["bias"], T5):
        return inputs[3].mT[:, buckets(case, inputs)].unsqueeze(0)
    table: Tensor = spec["bias"].values(pairs).to(shape.dtype).reshape(1, shape.heads, shape.rows, shape.n)
    return table if seen is None else table.masked_fill(~seen, -torch.inf)


def buckets(case: Case, inputs: Inputs) -> Tensor:
    """The entry of T5's table for every pair."""
    pairs = case.plane().all
    bias: T5 = case.spec(case.shape, inputs)["bias"]
    return bias.bucket(pairs.i - pairs.j)


def offsets(case: Case) -> Tensor:
    """Every i − j there is, from the last key before the first query to the last query before the first key."""
    return torch.arange(1 - case.shape.n, case.shape.rows, device=case.shape.device)
