"""Positions: modules that add to embeddings, turn queries and keys, or make a bias for the logits.

Relative keys are a score, see scores.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.checks import shape, whole
from regard.spec.biases import T5 as T5Bias
from regard.spec.biases import ALiBi as ALiBiBias
from regard.spec.biases import Distance as DistanceBias
from regard.spec.positions import Stretch, rotary_tables, sinusoidal
from regard.spec.positions.rotary import Pairing
from regard.spec.positions.sinusoidal import inverse_frequencies

if TYPE_CHECKING:
    from regard.engine.ring import Ring


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
            angles = rows.double().unsqueeze(-1) * inverse_frequencies(self.d_model, self.base)
            pairs = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
            added = pairs[..., : self.d_model].float()
        else:
            length = int(rows.max()) + 1 if rows.numel() else 0
            table = self._table
            if length > len(table):
                self._table = table = sinusoidal(max(length, 2 * len(table)), self.d_model, base=self.base)
            added = table[rows]
        return (x + added.to(x.device)).to(x.dtype)

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


def at_offsets(
    module: Callable[[Tensor, Start], Tensor], x: Tensor, start: Start, engine: "str | Ring", dim: int = -2
) -> Tensor:
    """`module(x, start)`; with a Ring, each span of the shard along `dim` at its position in the whole."""
    if isinstance(engine, str):
        return module(x, start)
    placed = engine.placed(x.shape[dim])
    parts = [module(x.narrow(dim, at.start, at.stop - at.start), start + first) for first, at in placed]
    return torch.cat(parts, -2) if parts else module(x, start)


Tables = tuple[Tensor, Tensor]
CPU = torch.device("cpu")


class Rotary(nn.Module):
    """Turns the first `width` numbers of queries and keys (batch, head, length, d) by their positions.

    Pairs are (i, i + width/2) ("half": LLaMA, GPT-NeoX) or (2i, 2i + 1) ("interleaved": RoFormer, GPT-J). Cosines and
    sines are computed in float64 and kept, for positions seen so far, in the precision of the rotation: float32, or
    float64 for float64 inputs. One module may serve every layer. `angles=torch.float32` rounds frequencies and angles
    as transformers does: at position 2,000 it turns by a ten-thousandth more or less, and models were trained so.
    """

    def __init__(
        self,
        width: int,
        *,
        base: float = 10000.0,
        pairing: Pairing = "half",
        stretch: Stretch | None = None,
        angles: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        if pairing not in ("half", "interleaved"):
            raise ValueError(
                f"pairing wants 'half' (i with i + width/2) or 'interleaved' (2i with 2i + 1), got {pairing!r}"
            )
        if angles not in (torch.float32, torch.float64):
            raise ValueError(f"angles wants torch.float64 (exact) or torch.float32 (as transformers), got {angles}")
        self.width, self.base, self.pairing, self.stretch = whole("width", width, 2), base, pairing, stretch
        self.angles = angles
        self._kept = self._tables(torch.arange(0, device=CPU))
        self._last: tuple[tuple[object, ...], Tables] = (), self._kept

    def forward(self, x: Tensor, start: Start = 0) -> Tensor:
        """`x` turned, row 0 standing at `start`: a number, or one per batch row."""
        if x.shape[-1] < self.width:
            raise ValueError(f"Rotary turns the first {self.width} numbers of a head, got x {shape(x)}")
        dtype = torch.promote_types(x.dtype, torch.float32)
        cos, sin = self._at(start, x.shape[-2], x.device, dtype)
        if x.shape[-1] == self.width and x.dtype == dtype:
            return (x * cos).addcmul(self._partner(x), sin)
        first = x[..., : self.width].to(dtype)
        turned = (first * cos).addcmul(self._partner(first), sin).to(x.dtype)
        return torch.cat([turned, x[..., self.width :]], -1)

    def _partner(self, x: Tensor) -> Tensor:
        """The other number of each pair, in its place."""
        if self.pairing == "half":
            return x.roll(self.width // 2, -1)
        swapped: Tensor = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return swapped

    def _at(self, start: Start, length: int, device: torch.device, dtype: torch.dtype) -> Tables:
        """The tables (length, width), or (batch, 1, length, width) for one start per batch row."""
        if not (torch.compiler.is_compiling() or isinstance(start, Tensor) or start < 0):
            asked = (start, length, device, dtype)
            if self._last[0] != asked:  # the layers of a model ask for the same one after another
                cos, sin = self._reaching(start + length, device, dtype)
                self._last = asked, (cos[start : start + length], sin[start : start + length])
            return self._last[1]
        cos, sin = self._tables(places(start, length, CPU))
        if cos.ndim == 3:
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return cos.to(device, dtype), sin.to(device, dtype)

    def _reaching(self, length: int, device: torch.device, dtype: torch.dtype) -> Tables:
        """Tables of at least `length` positions; they grow by doubling."""
        cos = self._kept[0]
        if len(cos) < length or cos.device != device or cos.dtype != dtype:
            reach = max(length, 2 * len(cos)) if len(cos) < length else len(cos)
            cos, sin = self._tables(torch.arange(reach, device=CPU))
            self._kept = cos.to(device, dtype), sin.to(device, dtype)
        return self._kept

    def _tables(self, positions: Tensor) -> Tables:
        """Each pair's cosine twice, and its sine with the sign that its partner needs: a·cos − b·sin, b·cos + a·sin."""
        if self.angles == torch.float64:
            cos, sin = rotary_tables(positions, self.width, base=self.base, stretch=self.stretch)
        else:
            cos, sin = self._rounded(positions)
        if self.pairing == "half":
            return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
        return torch.stack([cos, cos], -1).flatten(-2), torch.stack([-sin, sin], -1).flatten(-2)

    def _rounded(self, positions: Tensor) -> Tables:
        """Cosines and sines of angles that are float32 at every step."""
        factor = 1.0
        if self.stretch is None:
            exponents = torch.arange(0, self.width, 2, device=positions.device).float() / self.width
            frequencies = 1.0 / self.base**exponents
        else:
            exact, factor = self.stretch.frequencies(self.width, self.base)
            frequencies = exact.float()
        angles = positions.float().unsqueeze(-1) * frequencies
        return angles.cos() * factor, angles.sin() * factor

    def extra_repr(self) -> str:
        """What differs from the plain rotation."""
        parts = [f"width={self.width}, base={self.base:g}"]
        parts += [f"pairing={self.pairing!r}"] if self.pairing != "half" else []
        parts += [f"stretch={self.stretch!r}"] if self.stretch is not None else []
        return ", ".join(parts)
