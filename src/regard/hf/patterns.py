"""transformers' mask functions as regard's masks. What is not recognized is left to transformers, as bools."""

from collections.abc import Callable, Iterator
from functools import reduce
from inspect import getclosurevars
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.spec.masks import Causal, Documents, Full, Mask, Window
from regard.spec.plane import Plane

MaskFunction = Callable[[Any, Any, Any, Any], Any]


class View(NamedTuple):
    """The part of all positions a call looks at; inside regard its first key stands at 0."""

    queries: int
    keys: int
    query_start: int
    key_start: int

    def query_places(self, device: torch.device) -> Tensor:
        """Absolute positions of the queries."""
        return torch.arange(self.query_start, self.query_start + self.queries, device=device)

    def key_places(self, device: torch.device) -> Tensor:
        """Absolute positions of the keys."""
        return torch.arange(self.key_start, self.key_start + self.keys, device=device)

    def query_part(self, table: Tensor) -> Tensor:
        """The queries' entries of a (batch, position) table."""
        return table[:, self.query_start : self.query_start + self.queries]

    def key_part(self, table: Tensor) -> Tensor:
        """The keys' entries of a (batch, position) table."""
        return table[:, self.key_start : self.key_start + self.keys]


Build = Callable[[dict[str, Any], View], Mask]
Known = dict[CodeType, Build]


def known() -> Known:
    """The functions that the installed transformers makes and we understand, by their code.

    Each is tried on a small plane first; one that does not give our mask there is left out.
    """
    from transformers import masking_utils as made

    table: Known = {}
    for example, build in _examples(made):
        table[example.__code__] = build
        if not _agree(example, table):
            del table[example.__code__]
    return table


def recognized(function: MaskFunction, view: View, table: Known) -> Mask | None:
    """The mask a function describes, or None."""
    build = table.get(getattr(function, "__code__", None))  # type: ignore[arg-type]
    if build is not None:
        return build(dict(getclosurevars(function).nonlocals), view)
    joined = _joined(function)
    if joined is None:
        return None
    join, parts = joined
    found = [recognized(part, view, table) for part in parts]
    masks = [mask for mask in found if mask is not None]
    return reduce(join, masks) if masks and len(masks) == len(found) else None


def _joined(function: MaskFunction) -> tuple[Callable[[Mask, Mask], Mask], tuple[MaskFunction, ...]] | None:
    """The parts of `and_masks(...)` and `or_masks(...)`."""
    from transformers import masking_utils as made

    for join, combine in ((made.and_masks, _both), (made.or_masks, _either)):
        if getattr(function, "__code__", None) is join().__code__:
            return combine, tuple(getclosurevars(function).nonlocals["mask_functions"])
    return None


def _both(left: Mask, right: Mask) -> Mask:
    if isinstance(left, Full):
        return right
    return left if isinstance(right, Full) else left & right


def _either(left: Mask, right: Mask) -> Mask:
    return left | right


def _examples(made: Any) -> Iterator[tuple[Any, Build]]:
    """A function of each kind that there is, and the mask that is meant."""
    ids = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 1, 1, 1, 2, 2, 3]], device="cpu", dtype=torch.int64)
    kinds: tuple[tuple[str, tuple[Any, ...] | None, Build], ...] = (
        ("causal_mask_function", None, lambda names, view: Causal()),
        ("bidirectional_mask_function", None, lambda names, view: Full()),
        ("sliding_window_overlay", (3,), lambda names, view: Window(names["sliding_window"] - 1, None)),
        ("sliding_window_bidirectional_overlay", (2,), lambda names, view: _around(names["sliding_window"])),
        ("packed_sequence_mask_function", (ids,), lambda names, view: _packed(names["packed_sequence_mask"], view)),
        (
            "chunked_overlay",
            (3, torch.tensor([0, 2], device="cpu", dtype=torch.int64)),
            lambda names, view: _chunks(names["chunk_size"], names["left_padding"], view),
        ),
        ("blockwise_overlay", (ids - 1,), lambda names, view: _blocks(names["block_sequence_ids"], view)),
    )
    for name, given, build in kinds:
        function = getattr(made, name, None)
        if function is not None:
            yield (function if given is None else function(*given)), build


def _around(size: int) -> Mask:
    return Window(size, size)


def _packed(ids: Tensor, view: View) -> Mask:
    return Documents(view.key_part(ids), view.query_part(ids))


def _chunks(size: int, padding: Tensor, view: View) -> Mask:
    """Chunks are counted from the first token that is no padding."""
    keys, queries = (
        (places - padding.unsqueeze(-1)).div(size, rounding_mode="floor")
        for places in (view.key_places(padding.device), view.query_places(padding.device))
    )
    return Documents(keys, queries)


def _blocks(ids: Tensor, view: View) -> Mask:
    """Within one block; −1 is none, and no two of those see each other."""
    keys, queries = view.key_part(ids), view.query_part(ids)
    return Documents(keys.clamp(min=-1), torch.where(queries < 0, -2, queries))


def _agree(function: MaskFunction, table: Known) -> bool:
    view = View(queries=4, keys=5, query_start=3, key_start=2)
    b, i, j = (
        torch.arange(2, device="cpu").view(2, 1, 1),
        view.query_places(torch.device("cpu")),
        torch.arange(2, 7, device="cpu"),
    )
    wanted = torch.as_tensor(function(b, 0, i.view(1, -1, 1), j.view(1, 1, -1)), device="cpu").expand(2, 4, 5)
    mask = recognized(function, view, table)
    assert mask is not None
    plane = Plane(
        2,
        1,
        1,
        view.queries,
        view.keys,
        torch.tensor([view.query_start - view.key_start], device="cpu", dtype=torch.int64),
    )
    return torch.equal(mask.visible(plane.all).expand(2, 1, 1, 4, 5)[:, 0, 0], wanted)
