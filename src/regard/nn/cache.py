"""KVCache: the keys and values of earlier tokens, so that a new one costs one row of attention and not all rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from regard.checks import shape, whole
from regard.engine.partial import KeyChunk
from regard.spec.masks import Causal, Lengths, Mask, Prefix, Window
from regard.spec.masks.columns import integers


@dataclass(frozen=True, eq=False)
class CachedKeys:
    """What a query may see: keys in chunks, the position of the first new one, and the mask of the cache."""

    chunks: tuple[KeyChunk, ...]
    start: int | Tensor
    mask: Mask | None = None


@dataclass(kw_only=True)
class _Buffers:
    """Keys and values in one buffer (batch, head, room, width) each."""

    key: Tensor | None = None
    value: Tensor | None = None

    def snapshot(self) -> Self:
        """What `restore` needs to return to this moment: nothing that is in use is ever written over."""
        return replace(self)

    def restore(self, snapshot: Self) -> None:
        """Return to the moment of a snapshot."""
        vars(self).update(vars(snapshot))

    def reorder(self, rows: Tensor) -> None:
        """Batch row r becomes what row `rows[r]` was."""
        if self.key is not None and self.value is not None:
            self.key, self.value = (t.index_select(0, rows.to(t.device)) for t in (self.key, self.value))

    def copy(self) -> Self:
        """An independent copy."""
        key, value = (None if tensor is None else tensor.clone() for tensor in (self.key, self.value))
        return replace(self, key=key, value=value)


@dataclass
class LayerCache(_Buffers):
    """Keys and values of which `length` are used.

    `length` is one per batch row (int64 on the CPU) once rows differ. `capacity` fixes the room; without it the buffer
    doubles when it is full. Tensors that need a gradient are joined instead, so that it flows.
    """

    capacity: int | None = None
    length: int | Tensor = 0

    @property
    def longest(self) -> int:
        """Keys of the longest row."""
        return int(self.length.max()) if isinstance(self.length, Tensor) else self.length

    def append(self, key: Tensor, value: Tensor) -> CachedKeys:
        """Append keys and values, and give all that there are."""
        for name, old, added in (("key", self.key, key), ("value", self.value, value)):
            if old is not None and (*old.shape[:-2], old.shape[-1]) != (*added.shape[:-2], added.shape[-1]):
                raise ValueError(
                    f"the cache holds {name}s of shape {shape(old[..., : self.longest, :])}, {shape(added)} came; "
                    "a cache belongs to one batch of sequences: make a new KVCache() for another"
                )
        start, new = self.length, key.shape[-2]
        stop = self.longest + new
        if self.capacity is not None and stop > self.capacity:
            raise ValueError(
                f"the cache has room for {self.capacity} tokens, {stop} came; "
                f"make it with KVCache(capacity={stop}) or more, or with KVCache(), which grows"
            )
        self.key, self.value = self._written(self.key, key, stop), self._written(self.value, value, stop)
        self.length = start + new
        piece = KeyChunk(self.key[..., :stop, :], self.value[..., :stop, :])
        return CachedKeys((piece,), start, Lengths(self.length) if isinstance(self.length, Tensor) else None)

    def truncate(self, length: int | Tensor) -> None:
        """Forget what lies at or beyond `length`."""
        shorter = torch.minimum(*(torch.as_tensor(one, device="cpu") for one in (self.length, length)))
        self.length = int(shorter) if shorter.ndim == 0 else shorter

    def reorder(self, rows: Tensor) -> None:
        """Batch row r becomes what row `rows[r]` was."""
        super().reorder(rows)
        if isinstance(self.length, Tensor):
            self.length = self.length[rows.cpu()]

    def _written(self, old: Tensor | None, new: Tensor, stop: int) -> Tensor:
        """The buffer with `new` after what is used; a new tensor if it needs gradients."""
        if torch.is_grad_enabled() and (new.requires_grad or (old is not None and old.requires_grad)):
            if old is None:
                return new
            used = old[..., : self.longest, :]
            if not isinstance(self.length, Tensor):
                return torch.cat([used, new], -2)
            widened = torch.cat([used, torch.zeros_like(new)], -2)
            return widened.scatter(-2, self._rows(new), new)
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

    def _rows(self, new: Tensor) -> Tensor:
        """Where each new key of each batch row goes, in the shape of `new`."""
        assert isinstance(self.length, Tensor)
        rows = self.length.view(-1, 1) + torch.arange(new.shape[-2], device="cpu")
        return rows.view(len(rows), *[1] * (new.ndim - 3), -1, 1).expand(new.shape).to(new.device)


@dataclass
class SlidingLayerCache(_Buffers):
    """The last `window` keys and the first `sinks` that ever came, each at its own absolute position.

    A query sees what it would see in one pass under `Causal() & (Window(window − 1, 0) | Prefix(sinks))`, in whatever
    chunks the tokens come. The last keys move along a buffer, and to the front of another when it is full, so that
    appending costs the same at any length.
    """

    window: int
    sinks: int = 0
    length: int = 0
    first: LayerCache = field(default_factory=LayerCache)
    begin: int = 0  # where in the buffer the last keys begin,
    count: int = 0  # how many there are

    def append(self, key: Tensor, value: Tensor) -> CachedKeys:
        """Append keys and values, and give those that are left and the new ones."""
        start = self.length
        to_first = min(max(self.sinks - start, 0), key.shape[-2])
        if to_first:
            self.first.append(key[..., :to_first, :], value[..., :to_first, :])
        gone = max(self.count - (self.window - 1), 0)
        self.begin, self.count = self.begin + gone, self.count - gone
        self._append(key[..., to_first:, :], value[..., to_first:, :])
        self.length = start + key.shape[-2]
        if start == 0:
            return CachedKeys((KeyChunk(key, value),), start, self.mask)
        first, chunks = self.first, list[KeyChunk]()
        if first.key is not None and first.value is not None:
            used = first.longest
            chunks.append(KeyChunk(first.key[..., :used, :], first.value[..., :used, :]))
        if self.count and self.key is not None and self.value is not None:
            live = slice(self.begin, self.begin + self.count)
            chunks.append(KeyChunk(self.key[..., live, :], self.value[..., live, :], self.length - self.count))
        return CachedKeys(tuple(chunks), start, self.mask)

    @property
    def mask(self) -> Mask:
        """The keys that a query sees, as in one pass over all tokens."""
        near = Window(self.window - 1, 0)
        return Causal() & (near | Prefix(self.sinks)) if self.sinks else near

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

    def snapshot(self) -> Self:
        """What `restore` needs to return to this moment."""
        return replace(self, first=self.first.snapshot())

    def reorder(self, rows: Tensor) -> None:
        """Batch row r becomes what row `rows[r]` was."""
        self.first.reorder(rows)
        super().reorder(rows)

    def copy(self) -> Self:
        """An independent copy."""
        return replace(super().copy(), first=self.first.copy())


def _moved(buffer: Tensor, begin: int, stop: int, room: int) -> Tensor:
    """What lies between `begin` and `stop`, at the front of a new buffer."""
    live = buffer.detach()[..., begin:stop, :]
    larger = live.new_zeros(*live.shape[:-2], room, live.shape[-1])
    larger[..., : stop - begin, :] = live
    return larger


@dataclass(frozen=True, eq=False)
class CrossKeys:
    """Keys and values of what a cross attention looks at, made once for the tensors that they came from."""

    source: tuple[Tensor, Tensor]
    key: Tensor
    value: Tensor

    def reordered(self, rows: Tensor) -> "CrossKeys":
        """The same for other batch rows; the source stays what a later call is known by."""
        key, value = (t.index_select(0, rows.to(t.device)) if len(t) > 1 else t for t in (self.key, self.value))
        return CrossKeys(self.source, key, value)


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
        self._layers: WeakKeyDictionary[nn.Module, LayerCache | SlidingLayerCache] = WeakKeyDictionary()
        self._cross: WeakKeyDictionary[nn.Module, CrossKeys] = WeakKeyDictionary()

    def layer(self, layer: nn.Module) -> LayerCache | SlidingLayerCache:
        """The cache of one layer."""
        if layer not in self._layers:
            fresh = LayerCache(self.capacity) if self.window is None else SlidingLayerCache(self.window, self.sinks)
            self._layers[layer] = fresh
        return self._layers[layer]

    def cross(self, layer: nn.Module, source: tuple[Tensor, Tensor]) -> CrossKeys | None:
        """What a cross attention kept of these very tensors."""
        kept = self._cross.get(layer)
        return kept if kept is not None and all(a is b for a, b in zip(kept.source, source, strict=True)) else None

    def keep_cross(self, layer: nn.Module, keys: CrossKeys) -> None:
        """Keep the keys and values of a cross attention."""
        self._cross[layer] = keys

    @property
    def length(self) -> int | Tensor:
        """Tokens so far: a number, or one per batch row after `truncate` with several."""
        for layer_cache in self._layers.values():
            return layer_cache.length
        return 0

    @property
    def _rows(self) -> int | None:
        """Batch rows, if anything is held."""
        for layer_cache in self._layers.values():
            if layer_cache.key is not None:
                return len(layer_cache.key)
        return None

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Should the block fail or be interrupted, every layer forgets what it was given in it."""
        before = {layer: layer_cache.snapshot() for layer, layer_cache in self._layers.items()}
        try:
            yield
        except BaseException:
            for layer, layer_cache in list(self._layers.items()):
                if layer in before:
                    layer_cache.restore(before[layer])  # type: ignore[arg-type]
                else:
                    del self._layers[layer]
            raise

    def truncate(self, length: int | Tensor | Sequence[int]) -> None:
        """Forget what stands at or after `length`: one number, or one per batch row (right-padded prompts)."""
        if not isinstance(length, int):
            length = integers("truncate's lengths", length, axes=(1,)).cpu()
            if len(length) != (rows := self._rows) and rows is not None:
                raise ValueError(f"truncate wants one length for each of the {rows} rows, got {len(length)}")
        if bool(torch.as_tensor(length < 0, device="cpu").any()):
            raise ValueError(f"truncate wants lengths of at least 0, got {length}")
        for layer_cache in self._layers.values():
            layer_cache.truncate(length)

    def reorder(self, rows: Tensor | Sequence[int]) -> None:
        """Batch row r goes on from what row `rows[r]` has seen, as beam search wants; rows may repeat."""
        rows = integers("reorder's rows", rows, axes=(1,))
        if (held := self._rows) is not None and bool(((rows < 0) | (rows >= held)).any()):
            raise ValueError(f"reorder wants rows from 0 to {held - 1}, got {rows.tolist()}")
        for layer_cache in self._layers.values():
            layer_cache.reorder(rows)
        for layer, memory in list(self._cross.items()):
            self._cross[layer] = memory.reordered(rows)

    def copy(self) -> "KVCache":
        """An independent copy: several continuations of one prompt."""
        made = KVCache(capacity=self.capacity, window=self.window, sinks=self.sinks)
        made._layers = WeakKeyDictionary({layer: layer_cache.copy() for layer, layer_cache in self._layers.items()})
        made._cross = WeakKeyDictionary(dict(self._cross))
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> "KVCache":
        return self.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        held = [*self._layers.values(), *self._cross.values()]
        held += [each.first for each in self._layers.values() if isinstance(each, SlidingLayerCache)]
        return sum(t.nbytes for part in held for t in (part.key, part.value) if t is not None)

    def __repr__(self) -> str:
        given = {"capacity": self.capacity, "window": self.window, "sinks": self.sinks or None}
        made = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        length = self.length.tolist() if isinstance(self.length, Tensor) else self.length
        layers = "1 layer" if len(self._layers) == 1 else f"{len(self._layers)} layers"
        return f"KVCache({made}): {length} tokens, {layers}, {self.nbytes / 2**20:.1f} MiB"
