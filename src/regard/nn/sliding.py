"""SlidingSlot: a layer's last keys and values and, if wanted, its first ones; what lies between is forgotten."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.engine.pieces import Piece
from regard.nn.slots import Seen, Slot
from regard.spec.masks import Causal, Mask, Prefix, Window


@dataclass
class SlidingSlot:
    """The last `window` keys and the first `sinks` that ever came, each at its own absolute position.

    A query sees what it would see in one pass under `Causal() & (Window(window − 1, 0) | Prefix(sinks))`, in whatever
    chunks the tokens come. The last keys move along a buffer, and to the front of another when it is full, so that
    appending costs the same at any length.
    """

    window: int
    sinks: int = 0
    length: int = 0
    front: Slot = field(default_factory=Slot)
    key: Tensor | None = None
    value: Tensor | None = None
    begin: int = 0  # where in the buffer the last keys begin,
    count: int = 0  # how many there are

    def extend(self, key: Tensor, value: Tensor) -> Seen:
        """Append keys and values, and give those that are left and the new ones."""
        start = self.length
        to_front = min(max(self.sinks - start, 0), key.shape[-2])
        if to_front:
            self.front.extend(key[..., :to_front, :], value[..., :to_front, :])
        gone = max(self.count - (self.window - 1), 0)
        self.begin, self.count = self.begin + gone, self.count - gone
        self._append(key[..., to_front:, :], value[..., to_front:, :])
        self.length = start + key.shape[-2]
        pieces = [Piece(key, value)] if start == 0 else self._pieces()
        return Seen(tuple(pieces), start, self.mask)

    @property
    def mask(self) -> Mask:
        """What a query sees, whatever is left."""
        near = Window(self.window - 1, 0)
        return Causal() & (near | Prefix(self.sinks)) if self.sinks else near

    def _pieces(self) -> list[Piece]:
        front, pieces = self.front, []
        if front.key is not None and front.value is not None:
            used = front.longest
            pieces.append(Piece(front.key[..., :used, :], front.value[..., :used, :]))
        if self.count and self.key is not None and self.value is not None:
            live = slice(self.begin, self.begin + self.count)
            pieces.append(Piece(self.key[..., live, :], self.value[..., live, :], self.length - self.count))
        return pieces

    def _append(self, key: Tensor, value: Tensor) -> None:
        new = key.shape[-2]
        if new == 0:
            return
        begin, stop = self.begin, self.begin + self.count
        grows = torch.is_grad_enabled() and any(
            tensor is not None and tensor.requires_grad for tensor in (key, value, self.key, self.value)
        )
        if self.key is None or self.value is None:
            self.key, self.value = key[..., :0, :], value[..., :0, :]
        if grows:
            self.key = torch.cat([self.key[..., begin:stop, :], key], -2)
            self.value = torch.cat([self.value[..., begin:stop, :], value], -2)
            self.begin = 0
        else:
            if stop + new > self.key.shape[-2] or self.key.requires_grad:
                room = 2 * (self.window - 1 + new)
                self.key, self.value = (_moved(t, begin, stop, room) for t in (self.key, self.value))
                self.begin, stop = 0, self.count
            self.key[..., stop : stop + new, :] = key
            self.value[..., stop : stop + new, :] = value
        self.count += new

    def truncate(self, length: int | Tensor) -> None:
        """Nothing to do at the present length; what was forgotten does not come back."""
        if isinstance(length, Tensor) or length < self.length:
            raise ValueError(
                f"a cache with a window forgets, so it cannot go back from {self.length} tokens to {length}, "
                "and its rows have one length; use KVCache() or KVCache(capacity=...)"
            )

    def mark(self) -> "SlidingSlot":
        """What `back` needs to return to this moment: nothing that is in use is ever written over."""
        return replace(self, front=self.front.mark())

    def back(self, mark: "SlidingSlot") -> None:
        """Return to the moment of a mark."""
        self.front.back(mark.front)
        self.key, self.value = mark.key, mark.value
        self.length, self.begin, self.count = mark.length, mark.begin, mark.count

    def reorder(self, rows: Tensor) -> None:
        """Batch row r becomes what row `rows[r]` was."""
        self.front.reorder(rows)
        if self.key is not None and self.value is not None:
            self.key, self.value = (t.index_select(0, rows.to(t.device)) for t in (self.key, self.value))

    def copy(self) -> "SlidingSlot":
        """One that goes its own way."""
        key, value = (None if tensor is None else tensor.clone() for tensor in (self.key, self.value))
        return replace(self, front=self.front.copy(), key=key, value=value)


def _moved(buffer: Tensor, begin: int, stop: int, room: int) -> Tensor:
    """What lies between `begin` and `stop`, at the front of a new buffer."""
    live = buffer.detach()[..., begin:stop, :]
    larger = live.new_zeros(*live.shape[:-2], room, live.shape[-1])
    larger[..., : stop - begin, :] = live
    return larger
