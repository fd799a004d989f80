"""KVCache: the keys and values of earlier tokens, so that a new one costs one row of attention and not all rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from regard.checks import whole
from regard.nn.sliding import SlidingSlot
from regard.nn.slots import Slot
from regard.spec.masks.columns import integers


@dataclass(frozen=True, eq=False)
class Memory:
    """Keys and values of what a cross attention looks at, made once for the tensors that they came from."""

    source: tuple[Tensor, Tensor]
    key: Tensor
    value: Tensor

    def reordered(self, rows: Tensor) -> "Memory":
        """The same for other batch rows; the source stays what a later call is known by."""
        key, value = (t.index_select(0, rows.to(t.device)) if len(t) > 1 else t for t in (self.key, self.value))
        return Memory(self.source, key, value)


class KVCache:
    """One cache serves a whole model: pass it to every call, and each attention layer finds its own place in it.

    - `KVCache()` grows by doubling.
    - `KVCache(capacity=n)` has room for n tokens from the start, and refuses more.
    - `KVCache(window=w, sinks=s)` keeps the last w tokens and the first s; memory stays constant.

    Tokens may come one by one or in chunks of any size. `truncate(lengths)` after a padded batch lets every row go on
    from its own length. A cache belongs to one batch of sequences.

    >>> import torch, regard
    >>> layer = regard.nn.MultiHeadAttention(64, 8, mask="causal")
    >>> cache, x = regard.nn.KVCache(), torch.randn(1, 10, 64)
    >>> steps = [layer(x[:, i : i + 1], cache=cache) for i in range(10)]
    >>> bool((torch.cat(steps, 1) - layer(x)).abs().max() < 1e-5)
    True
    """

    def __init__(self, *, capacity: int | None = None, window: int | None = None, sinks: int = 0) -> None:
        if capacity is not None and window is not None:
            raise ValueError("KVCache takes capacity or window, not both: a window needs the same room at any length")
        if window is None and sinks:
            raise ValueError(f"sinks={sinks} are kept beside a window; pass window= too")
        self.capacity = None if capacity is None else whole("capacity", capacity, 1)
        self.window = None if window is None else whole("window", window, 1)
        self.sinks = whole("sinks", sinks, 0)
        self._slots: WeakKeyDictionary[nn.Module, Slot | SlidingSlot] = WeakKeyDictionary()
        self._memories: WeakKeyDictionary[nn.Module, Memory] = WeakKeyDictionary()

    def slot(self, layer: nn.Module) -> Slot | SlidingSlot:
        """The place of a layer."""
        if layer not in self._slots:
            fresh = Slot(self.capacity) if self.window is None else SlidingSlot(self.window, self.sinks)
            self._slots[layer] = fresh
        return self._slots[layer]

    def memory(self, layer: nn.Module, source: tuple[Tensor, Tensor]) -> Memory | None:
        """What a cross attention kept of these very tensors."""
        kept = self._memories.get(layer)
        return kept if kept is not None and all(a is b for a, b in zip(kept.source, source, strict=True)) else None

    def remember(self, layer: nn.Module, memory: Memory) -> None:
        """Keep the keys and values of a cross attention."""
        self._memories[layer] = memory

    @property
    def length(self) -> int | Tensor:
        """Tokens so far: a number, or one per batch row after `truncate` with several."""
        for slot in self._slots.values():
            return slot.length
        return 0

    @property
    def _rows(self) -> int | None:
        """Batch rows, if anything is held."""
        for slot in self._slots.values():
            if slot.key is not None:
                return len(slot.key)
        return None

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Should the block fail or be interrupted, every layer forgets what it was given in it."""
        before = {layer: slot.mark() for layer, slot in self._slots.items()}
        try:
            yield
        except BaseException:
            for layer, slot in list(self._slots.items()):
                if layer in before:
                    slot.back(before[layer])  # type: ignore[arg-type]
                else:
                    del self._slots[layer]
            raise

    def truncate(self, length: int | Tensor | Sequence[int]) -> None:
        """Forget what stands at or after `length`: one number, or one per batch row (right-padded prompts)."""
        if not isinstance(length, int):
            length = integers("truncate's lengths", length, axes=(1,)).cpu()
            if len(length) != (rows := self._rows) and rows is not None:
                raise ValueError(f"truncate wants one length for each of the {rows} rows, got {len(length)}")
        if bool(torch.as_tensor(length < 0, device="cpu").any()):
            raise ValueError(f"truncate wants lengths of at least 0, got {length}")
        for slot in self._slots.values():
            slot.truncate(length)

    def reorder(self, rows: Tensor | Sequence[int]) -> None:
        """Batch row r goes on from what row `rows[r]` has seen, as beam search wants; rows may repeat."""
        rows = integers("reorder's rows", rows, axes=(1,))
        if (held := self._rows) is not None and bool(((rows < 0) | (rows >= held)).any()):
            raise ValueError(f"reorder wants rows from 0 to {held - 1}, got {rows.tolist()}")
        for slot in self._slots.values():
            slot.reorder(rows)
        for layer, memory in list(self._memories.items()):
            self._memories[layer] = memory.reordered(rows)

    def copy(self) -> "KVCache":
        """One that goes its own way from here: several continuations of one prompt."""
        made = KVCache(capacity=self.capacity, window=self.window, sinks=self.sinks)
        made._slots = WeakKeyDictionary({layer: slot.copy() for layer, slot in self._slots.items()})
        made._memories = WeakKeyDictionary(dict(self._memories))
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> "KVCache":
        return self.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        held = [*self._slots.values(), *self._memories.values()]
        held += [slot.front for slot in self._slots.values() if isinstance(slot, SlidingSlot)]
        return sum(t.nbytes for part in held for t in (part.key, part.value) if t is not None)

    def __repr__(self) -> str:
        given = {"capacity": self.capacity, "window": self.window, "sinks": self.sinks or None}
        made = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        length = self.length.tolist() if isinstance(self.length, Tensor) else self.length
        layers = "1 layer" if len(self._slots) == 1 else f"{len(self._slots)} layers"
        return f"KVCache({made}): {length} tokens, {layers}, {self.nbytes / 2**20:.1f} MiB"
