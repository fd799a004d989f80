"""StorageTable: what a trace knows of the tensors of a model, by their storage.

Views share the storage of their tensor, so that they need no rules. A weak reference keeps the address of a storage
from being used again, but not its data.
"""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from regard.inspection.hooks.axes import Layout
from regard.inspection.hooks.handwritten import Factors, Weights
from regard.inspection.hooks.operators import address_of

# flags of a tensor
WEIGHT = 1  # follows from parameters and buffers alone
MADE = 2  # and a product was among its operators
SCORE = 4  # follows from a product of two activations
PROBABILITY = 8  # and from a softmax of it
MIXED = 16  # and then from a linear layer
STRICT = 32  # a probability that a linear layer ends: of functions that often follow products, such as relu
CHANGED = 64  # a probability to which something was done that is neither dropout nor a mask
RANDOM = 128  # random numbers of dropout
SCORES = SCORE | PROBABILITY | MIXED | STRICT | CHANGED

ENTRIES = 4096  # storages that are tracked before those that were freed are dropped


class Entry(NamedTuple):
    """What is known of a storage. `origin` are the factors of scores, or the weights that a tensor was made of."""

    flags: int
    ref: StorageWeakRef | None
    layout: Layout | None = None
    origin: tuple[Factors | Weights, ...] = ()


UNKNOWN, PARAMETER = Entry(0, None), Entry(WEIGHT, None)


class StorageTable:
    """The entries of all storages; those of `parameters` have the flag WEIGHT."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._entries: dict[int, Entry] = {}
        self._holding: list[int] = []  # addresses of entries that hold tensors
        self._limit = ENTRIES
        for tensor in parameters:
            self.put(tensor, WEIGHT)
        self._limit += 2 * len(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, tensor: Tensor) -> Entry:
        """The entry of a tensor's storage."""
        if type(tensor) is nn.Parameter:
            return PARAMETER
        address = address_of(tensor)
        return UNKNOWN if address is None else self._entries.get(address, UNKNOWN)

    def put(
        self, tensor: Tensor, flags: int, layout: Layout | None = None, origin: tuple[Factors | Weights, ...] = ()
    ) -> None:
        """Replace the entry of a tensor's storage."""
        address = address_of(tensor)
        if address is None:
            return
        entry = self._entries.get(address)
        if not flags and layout is None:
            self._entries.pop(address, None)
            return
        if origin:
            self._holding.append(address)
        if entry is not None:
            self._entries[address] = Entry(flags, entry.ref, layout, origin)
            return
        self._entries[address] = Entry(flags, StorageWeakRef(tensor.untyped_storage()), layout, origin)
        if len(self._entries) > self._limit:
            self._entries = {key: each for key, each in self._entries.items() if not _freed(each)}
            self._limit = ENTRIES + 2 * len(self._entries)

    def drop_freed(self) -> None:
        """Drop the entries of freed storages that hold tensors."""
        kept = []
        for address in dict.fromkeys(self._holding):
            entry = self._entries.get(address)
            if entry is not None and _freed(entry):
                del self._entries[address]
            elif entry is not None and entry.origin:
                kept.append(address)
        self._holding = kept


def _freed(entry: Entry) -> bool:
    return entry.ref is not None and bool(entry.ref.expired())
