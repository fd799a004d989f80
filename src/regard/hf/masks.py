"""The mask half: transformers' mask functions as regard's masks, or as bools where they are not recognized."""

import operator
from collections.abc import Callable, Iterator
from functools import reduce
from inspect import getclosurevars
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.hf.tensor import MaskTensor, SharedMask
from regard.spec.masks import Causal, Dense, Documents, Full, Lengths, Mask, Prefix, Window
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
    from transformers import masking_utils as made

    for join, combine in ((made.and_masks, _both), (made.or_masks, operator.or_)):
        if getattr(function, "__code__", None) is join().__code__:
            parts = [recognized(part, view, table) for part in getclosurevars(function).nonlocals["mask_functions"]]
            masks = [part for part in parts if part is not None]
            return reduce(combine, masks) if masks and len(masks) == len(parts) else None
    return None


def _both(left: Mask, right: Mask) -> Mask:
    """left & right, without a mask that shows everything."""
    if isinstance(left, Full):
        return right
    return left if isinstance(right, Full) else left & right


def _examples(made: Any) -> Iterator[tuple[Any, Build]]:
    """A function of each kind that there is, and the mask that is meant."""
    ids = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 1, 1, 1, 2, 2, 3]], device="cpu", dtype=torch.int64)
    kinds: tuple[tuple[str, tuple[Any, ...] | None, Build], ...] = (
        ("causal_mask_function", None, lambda names, view: Causal()),
        ("bidirectional_mask_function", None, lambda names, view: Full()),
        ("sliding_window_overlay", (3,), lambda names, view: Window(names["sliding_window"] - 1, None)),
        (
            "sliding_window_bidirectional_overlay",
            (2,),
            lambda names, view: Window(names["sliding_window"], names["sliding_window"]),
        ),
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
    """Whether a function and the mask that stands for it show the same pairs of a small plane."""
    view = View(queries=4, keys=5, query_start=3, key_start=2)
    cpu = torch.device("cpu")
    b, i, j = (
        torch.arange(2, device="cpu").view(2, 1, 1),
        view.query_places(cpu).view(1, -1, 1),
        view.key_places(cpu).view(1, 1, -1),
    )
    expected = torch.as_tensor(function(b, 0, i, j), device="cpu").expand(2, 4, 5)
    mask = recognized(function, view, table)
    assert mask is not None
    start = torch.tensor([view.query_start - view.key_start], device="cpu", dtype=torch.int64)
    plane = Plane(2, 1, 1, view.queries, view.keys, start)
    return torch.equal(mask.visible(plane.all).expand(2, 1, 1, 4, 5)[:, 0, 0], expected)


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: MaskFunction | None = None,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    *,
    table: Known,
    **unused: Any,
) -> Tensor:
    """The (batch, 1, query, key) mask of a call: with its structure where it is known, else as bools.

    It is never None, so that the attention half need not guess what no mask means.
    """
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    function = causal_mask_function if mask_function is None else mask_function
    result: Mask | None = None
    if not torch.compiler.is_compiling() and (attention_mask is None or attention_mask.ndim == 2):
        view = View(q_length, kv_length, int(q_offset), int(kv_offset))
        result = recognized(function, view, table)
    if result is None:
        bools: Tensor = sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            mask_function=function,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            allow_is_bidirectional_skip=False,
            use_vmap=use_vmap,
            device=device,
        )
        return bools
    if attention_mask is not None:
        padding = view.key_part(attention_mask.bool())
        # keys past the end of the padding mask, which a static cache has, are hidden
        result = _with_padding(result, torch.nn.functional.pad(padding, (0, kv_length - padding.shape[1])))
    start = view.query_start - view.key_start
    return MaskTensor(SharedMask(result, start, (batch_size, q_length, kv_length), torch.device(device)))


def _with_padding(result: Mask, seen: Tensor) -> Mask:
    """Rows that see one stretch of keys need its two ends only; any other padding is one bool for each key."""
    keys = seen.shape[1]
    counts = seen.sum(1)
    if bool((counts == keys).all()):
        return result
    first = torch.where(counts > 0, seen.int().argmax(1), 0)
    stop = first + counts
    places = torch.arange(keys, device=seen.device)
    if not torch.equal(seen, (places >= first.unsqueeze(1)) & (places < stop.unsqueeze(1))):
        return _both(result, Dense(seen[:, None, None, :]))
    if bool((stop < keys).any()):
        result = _both(result, Lengths(stop))
    if bool((first > 0).any()):
        result = _both(result, ~Prefix(first))
    return result
