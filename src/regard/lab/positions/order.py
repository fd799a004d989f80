"""What a layer makes of order: shuffle its tokens, move them all, and look at its values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.lab.positions.schemes import Scheme
from regard.nn import T5, Learned, MultiHeadAttention, Sinusoidal
from regard.spec.masks import Causal

TOKENS, WIDTH, HEADS, MOVED = 24, 64, 4, 100


@dataclass(frozen=True)
class Order:
    """Relative changes, one per repetition: of the output when tokens are shuffled or moved, and of the values."""

    shuffled: Tensor
    moved: Tensor
    values: Tensor


def order(scheme: Scheme, repetitions: int, generator: torch.Generator, causal: bool = False) -> Order:
    """New layers with weights and tables as they start, in float64, over random tokens.

    Without positions a shuffled text gives the shuffled output: `shuffled` is how far it is from that. `moved` is how
    much changes when the whole text begins at another place, `values` how much of the positions is in V.
    """
    rows = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        for _ in range(repetitions):
            rows.append(torch.stack(_changes(scheme, causal)))
    return Order(*torch.stack(rows, 1))


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
        found: Tensor = layer(given(x, start), query_start=start)
        return found

    x, shuffle = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64), torch.randperm(TOKENS)
    plain = out(x)
    values = layer.v_proj(given(x, 0))
    return (
        _apart(out(x[:, shuffle]), plain[:, shuffle]),
        _apart(out(x, MOVED), plain),
        _apart(values, layer.v_proj(x)),
    )


def _apart(found: Tensor, expected: Tensor) -> Tensor:
    apart: Tensor = (found - expected).norm() / expected.norm()
    return apart
