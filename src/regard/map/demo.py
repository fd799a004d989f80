"""A demo: heads of known structure, made as queries and keys, so that no weight is stored.

Every number depends on the length alone. With n queries and keys, causal:

| head | what its rows look at |
| --- | --- |
| band | the keys just before them: a peak at distance 0, most of the weight within 8 |
| stripes | the keys behind earlier copies of their own token, in a text that repeats after `period(n)`: induction |
| sink | the first key takes about 3/4 of every row, the rest is even |
| needle | all keys about evenly, but row `needle(n)[0]`, which gives nearly all its weight to key `needle(n)[1]` |
| documents | the keys of their own document; documents start at `documents(n)` |
| columns | every `COLUMN`-th key, a delimiter |
| even | all keys about evenly |
| mixed | the first key and the band, about half each |
"""

import math

import torch
from torch import Tensor

from regard import checks
from regard.inspection.matrix import matrix
from regard.map.views import CaptureView, LayerView

WIDTH = 64
COLUMN = 997  # a prime, so that delimiters fall anywhere in a cell
HEADS = ("band", "stripes", "sink", "needle", "documents", "columns", "even", "mixed")
TEXT = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which "
    "one you were her all she there would their we him been has when who will more no if out so said what up its about"
)


def needle(n: int) -> tuple[int, int]:
    """The one cell that stands out: query and key."""
    return (4 * n) // 5, (3 * n) // 10


def period(n: int) -> int:
    """Tokens before the text repeats."""
    return max(2, n // 7)


def documents(n: int) -> list[int]:
    """Where each document starts: lengths grow from one to the next."""
    parts = 12
    total = parts * (parts + 1) // 2
    return sorted({n * (part * (part + 1) // 2) // total for part in range(parts)})


def view(n: int) -> CaptureView:
    """The demo of n queries and keys."""
    if not 16 <= checks.whole("the demo's tokens", n) <= 1 << 20:
        raise ValueError(f"the demo has 16 to {1 << 20:,} tokens, got {n!r}")
    query, key = torch.zeros(2, 1, len(HEADS), n, WIDTH, device="cpu", dtype=torch.float32)
    for head, name in enumerate(HEADS):
        fill(name, query[0, head], key[0, head])
    words = tokens(n)
    shown = matrix(query, key, mask="causal", query_tokens=words, key_tokens=words)
    return CaptureView((LayerView("demo", shown, HEADS),), f"demo, {n:,} tokens")


def tokens(n: int) -> list[str]:
    """A text of common words, with delimiters, and the needle's key by its name."""
    draw, words = torch.Generator().manual_seed(1), TEXT.split()
    text = [words[number] for number in torch.randint(len(words), (n,), generator=draw, device="cpu").tolist()]
    text[::COLUMN] = ["."] * len(text[::COLUMN])
    for start in documents(n):
        text[start] = "<s>"
    row, column = needle(n)
    text[row], text[column] = "needle?", "needle"
    return text


def fill(name: str, query: Tensor, key: Tensor) -> None:
    """Write the queries and keys of one head, (n, WIDTH); scores are divided by √WIDTH as usual."""
    n, own = len(query), math.sqrt(WIDTH)
    draw = torch.Generator().manual_seed(HEADS.index(name))
    noise = (
        torch.randn(2, n, 8, generator=draw, device="cpu", dtype=torch.float32) * 0.6
    )  # a little texture everywhere, in the last columns
    query[:, -8:], key[:, -8:] = noise[0], noise[1]
    place = torch.arange(n, device="cpu")
    if name in ("band", "mixed"):
        waves = _waves(n)
        query[:, :32], key[:, :32] = waves * own * _strength(n) / 16, waves
    if name == "stripes":
        content = torch.nn.functional.normalize(
            torch.randn(period(n), 48, generator=draw, device="cpu", dtype=torch.float32), dim=-1
        )
        query[:, :48] = content[place % period(n)] * own * 24.0
        key[:, :48] = content[(place - 1) % period(n)]
    if name == "sink":
        query[:, 32], key[0, 32] = own * ((place + 1).float().log() + math.log(3)), 1.0
    if name == "mixed":
        query[:, 32], key[0, :33] = own * (_strength(n) + 0.3), torch.eye(33, device="cpu", dtype=torch.float32)[32]
    if name == "needle":
        row, column = needle(n)
        query[row, 40], key[column, 40] = own * (math.log(n) + 5), 1.0
    if name == "documents":
        starts = torch.tensor(documents(n), device="cpu", dtype=torch.int64)
        number = torch.searchsorted(starts, place, right=True) - 1
        query[place, 34 + number], key[place, 34 + number] = own * (math.log(n) + 4), 1.0
    if name == "columns":
        query[:, 33], key[::COLUMN, 33] = own * 9.0, 1.0


def _strength(n: int) -> float:
    """The logit of a peak that n others together do not outweigh."""
    return math.log(n) + 8


def _waves(n: int) -> Tensor:
    """Sixteen cosines and sines of the position, so that products fall off with the distance."""
    rates = torch.logspace(0.2, -3.5, 16, base=10, dtype=torch.float64, device="cpu")
    angles = torch.arange(n, dtype=torch.float64, device="cpu").view(-1, 1) * rates
    return torch.cat([angles.cos(), angles.sin()], -1).float()
