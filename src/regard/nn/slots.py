"""Slots: the keys and values that one attention layer has seen, and what it may still look at."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.checks import shape
from regard.engine.pieces import Piece
from regard.spec.masks import Lengths, Mask


@dataclass(frozen=True, eq=False)
class Seen:
    """What a query may look at: keys in pieces, where the first new one stands, and a mask of the cache's own."""

    pieces: tuple[Piece, ...]
    start: int | Tensor
    mask: Mask | None = None


@dataclass
class Slot:
    """Keys and values in one buffer (batch, head, room, width) each, of which `length` are used.

    `length` is one per batch row (int64 on the CPU) once rows differ. `capacity` fixes the room; without it the buffer
    doubles when it is full. Tensors that need a gradient are joined instead, so that it flows.
    """

    capacity: int | None = None
    length: int | Tensor = 0
    key: Tensor | None = None
    value: Tensor | None = None

    @property
    def longest(self) -> int:
        """Keys of the longest row."""
        return int(self.length.max()) if isinstance(self.length, Tensor) else self.length

    def extend(self, key: Tensor, value: Tensor) -> Seen:
        """Append keys and values, and give all that there are."""
        self._fits(key, value)
        start, new = self.length, key.shape[-2]
        stop = self.longest + new
        if self.capacity is not None and stop > self.capacity:
            raise ValueError(
                f"the cache has room for {self.capacity} tokens, {stop} came; "
                f"make it with KVCache(capacity={stop}) or more, or with KVCache(), which grows"
            )
        self.key, self.value = self._written(self.key, key, stop), self._written(self.value, value, stop)
        self.length = start + new
        piece = Piece(self.key[..., :stop, :], self.value[..., :stop, :])
        return Seen((piece,), start, Lengths(self.length) if isinstance(self.length, Tensor) else None)

    def truncate(self, length: int | Tensor) -> None:
        """Forget what lies at or beyond `length`."""
        kept = torch.minimum(*(torch.as_tensor(one, device="cpu") for one in (self.length, length)))
        self.length = int(kept) if kept.ndim == 0 else kept

    def mark(self) -> "Slot":
        """What `back` needs to return to this moment: nothing that is in use is ever written over."""
        return replace(self)

    def back(self, mark: "Slot") -> None:
        """Return to the moment of a mark."""
        self.length, self.key, self.value = mark.length, mark.key, mark.value

    def reorder(self, rows: Tensor) -> None:
        """Batch row r becomes what row `rows[r]` was."""
        if self.key is not None and self.value is not None:
            self.key, self.value = (t.index_select(0, rows.to(t.device)) for t in (self.key, self.value))
        if isinstance(self.length, Tensor):
            self.length = self.length[rows.cpu()]

    def copy(self) -> "Slot":
        """One that goes its own way."""
        return replace(self, key=_cloned(self.key), value=_cloned(self.value))

    def _fits(self, key: Tensor, value: Tensor) -> None:
        for name, old, new in (("key", self.key, key), ("value", self.value, value)):
            if old is not None and (*old.shape[:-2], old.shape[-1]) != (*new.shape[:-2], new.shape[-1]):
                raise ValueError(
                    f"the cache holds {name}s of shape {shape(old[..., : self.longest, :])}, {shape(new)} came; "
                    "a cache belongs to one batch of sequences: make a new KVCache() for another"
                )

    def _written(self, old: Tensor | None, new: Tensor, stop: int) -> Tensor:
        """The buffer with `new` after what is used."""
        if torch.is_grad_enabled() and (new.requires_grad or (old is not None and old.requires_grad)):
            return self._joined(old, new)
        room = old.shape[-2] if old is not None else 0
        if old is None or room < stop or old.requires_grad:
            larger = self.capacity or max(stop, 2 * room)
            buffer = new.new_zeros(*new.shape[:-2], larger, new.shape[-1])
            if old is not None:
                buffer[..., : self.longest, :] = old.detach()[..., : self.longest, :]
            old = buffer
        if isinstance(self.length, Tensor):
            old.scatter_(-2, self._rows(new), new)
        else:
            old[..., self.length : stop, :] = new
        return old

    def _joined(self, old: Tensor | None, new: Tensor) -> Tensor:
        if old is None:
            return new
        kept = old[..., : self.longest, :]
        if not isinstance(self.length, Tensor):
            return torch.cat([kept, new], -2)
        widened = torch.cat([kept, torch.zeros_like(new)], -2)
        return widened.scatter(-2, self._rows(new), new)

    def _rows(self, new: Tensor) -> Tensor:
        """Where each new key of each batch row goes, in the shape of `new`."""
        assert isinstance(self.length, Tensor)
        rows = self.length.view(-1, 1) + torch.arange(new.shape[-2], device="cpu")
        return rows.view(len(rows), *[1] * (new.ndim - 3), -1, 1).expand(new.shape).to(new.device)


def _cloned(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()
