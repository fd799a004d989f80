"""Position modules: what is added to embeddings, and what is added to logits.

The rotation of queries and keys is in `rotary.py`, relative keys are a score (`scores.py`).
"""

import torch
from torch import Tensor, nn

from regard.checks import shape, whole
from regard.spec.biases import T5 as T5Bias
from regard.spec.biases import ALiBi as ALiBiBias
from regard.spec.biases import Distance as DistanceBias
from regard.spec.positions import sinusoidal
from regard.spec.positions.frequencies import inverse_frequencies

Start = int | Tensor  # the position of the first token: for all rows, or one per batch row


def places(start: Start, length: int, device: torch.device) -> Tensor:
    """Positions of `length` tokens: (length,), or (batch, length) when each batch row has a start of its own."""
    steps = torch.arange(length, device=device)
    if isinstance(start, Tensor):
        return start.to(device).unsqueeze(-1) + steps if start.ndim else steps + start.to(device)
    return steps + start


class Sinusoidal(nn.Module):
    """Adds the fixed sines and cosines of "Attention Is All You Need" to embeddings (…, length, d_model)."""

    def __init__(self, d_model: int, *, base: float = 10000.0, length: int = 512) -> None:
        super().__init__()
        self.d_model, self.base = whole("d_model", d_model, 1), base
        # float32 whatever the model becomes: a sine that was rounded before the sum would be rounded twice
        self._table = sinusoidal(whole("length", length, 0), d_model, base=base)

    def forward(self, x: Tensor, start: Start = 0) -> Tensor:
        """`x` at the positions from `start` on."""
        rows = places(start, x.shape[-2], torch.device("cpu"))
        if torch.compiler.is_compiling():  # a graph is made once, and its table could not grow
            found = self._computed(rows)
        else:
            found = self._reaching(int(rows.max()) + 1 if rows.numel() else 0)[rows]
        return (x + found.to(x.device)).to(x.dtype)

    def _computed(self, rows: Tensor) -> Tensor:
        angles = rows.double().unsqueeze(-1) * inverse_frequencies(self.d_model, self.base)
        pairs = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
        return pairs[..., : self.d_model].float()

    def _reaching(self, length: int) -> Tensor:
        if length > len(self._table):
            self._table = sinusoidal(max(length, 2 * len(self._table)), self.d_model, base=self.base)
        return self._table

    def extra_repr(self) -> str:
        """The width."""
        return f"d_model={self.d_model}"


class Learned(nn.Module):
    """Adds one learned vector per position to embeddings; there are `length` of them, normal with std 0.02."""

    def __init__(self, length: int, d_model: int) -> None:
        super().__init__()
        size = (whole("length", length, 1), whole("d_model", d_model, 1))
        self.weight = nn.Parameter(torch.randn(size) * 0.02)

    def forward(self, x: Tensor, start: Start = 0) -> Tensor:
        """`x` at the positions from `start` on."""
        rows = places(start, x.shape[-2], self.weight.device)
        if not torch.compiler.is_compiling():
            last = int(rows.max()) if rows.numel() else 0
            if last >= len(self.weight):
                raise ValueError(
                    f"Learned has vectors for positions 0 to {len(self.weight) - 1}, position {last} came in an input "
                    f"{shape(x)}; make it longer, or use a scheme that has no end (Rotary, ALiBi, T5, Sinusoidal)"
                )
        return x + self.weight[rows]

    def extra_repr(self) -> str:
        """The sizes."""
        return "length={}, d_model={}".format(*self.weight.shape)


class ALiBi(nn.Module):
    """−slope · |i − j| on the logits, with a fixed slope per head."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.bias = ALiBiBias(heads)

    def forward(self) -> ALiBiBias:
        """The bias."""
        return self.bias

    def extra_repr(self) -> str:
        """The heads."""
        return f"heads={self.bias.heads}"


class T5(nn.Module):
    """One learned number per bucket of distances and head, normal with std 0.02. T5 shares one for all layers."""

    def __init__(self, heads: int, *, buckets: int = 32, bidirectional: bool = True, max_distance: int = 128) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(whole("buckets", buckets, 2), whole("heads", heads, 1)) * 0.02)
        self.bidirectional, self.max_distance = bidirectional, max_distance
        self()  # sizes that do not fit are refused here

    def forward(self) -> T5Bias:
        """The bias."""
        return T5Bias(self.table, self.bidirectional, self.max_distance)

    def extra_repr(self) -> str:
        """The sizes."""
        buckets, heads = self.table.shape
        return f"heads={heads}, buckets={buckets}, bidirectional={self.bidirectional}"


class Distance(nn.Module):
    """One learned number per offset −reach to reach and head, starting at 0; offsets beyond take the last."""

    def __init__(self, heads: int, reach: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(whole("heads", heads, 1), 2 * whole("reach", reach, 0) + 1))

    def forward(self) -> DistanceBias:
        """The bias."""
        return DistanceBias(self.table)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"heads={len(self.table)}, reach={self.table.shape[-1] // 2}"
