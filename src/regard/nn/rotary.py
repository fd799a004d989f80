"""Rotary: a module that turns queries and keys by their positions, with tables that all layers share."""

import torch
from torch import Tensor, nn

from regard.checks import shape, whole
from regard.nn.positions import Start, places
from regard.spec.positions import Stretch, rotary_tables
from regard.spec.positions.rotation import Pairing

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
