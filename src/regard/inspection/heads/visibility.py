"""Which pairs of a call are visible, and which kinds of keys each query sees, without computing a weight."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.engine.request import Request, request
from regard.engine.second_pass import KeyKind
from regard.engine.tiled.engine import lower_tiled
from regard.engine.tiled.tiles import Tile
from regard.inspection.heads.tokens import KeyTokens
from regard.inspection.matrix.handle import DEFAULTS
from regard.spec.biases import Dense as DenseBias
from regard.spec.masks import Causal, Dense, Documents, Full, Mask, Prefix, Window
from regard.spec.masks.count import look
from regard.spec.plane import Plane
from regard.spec.scores import Score

CELLS = 1 << 22  # pairs that are computed together
SPARSE = 16  # a kind with fewer than a pair in so many is a list of pairs
LOWEST = -9e3  # models write −10,000, −65,504 or the lowest number of their format where they mean −inf


def plain(request: Request) -> Request:
    """The same call with pairs hidden that a tensor of a bias all but hides."""
    for term in () if request.bias is None else request.bias.terms():
        if isinstance(term, DenseBias) and term.tensor.numel() and bool(term.tensor.amin() <= LOWEST):
            request = replace(request, mask=request.mask & Dense(term.tensor > LOWEST))
    return request


def request_of(weights: Tensor) -> Request:
    """A call with the axes of given weights, (batch, head, query, key), in which pairs of weight 0 are hidden."""
    batch, heads, queries, keys = weights.shape
    zero = torch.zeros((1, 1, 1, 1), dtype=torch.float32, device=weights.device)
    query, key = zero.expand(batch, heads, queries, 1), zero.expand(batch, heads, keys, 1)
    spec = {**DEFAULTS, "mask": _seen(weights)}
    if queries > keys:
        spec["query_start"] = 0
    return request(query, key, key[..., :0], **spec, dropout=0.0, aux=())


def _seen(weights: Tensor) -> Mask:
    """The pairs whose weight is not 0."""
    heads, queries, keys = weights.shape[1:]
    rows = []
    for row in weights:
        first = row[:1] != 0
        alike = all(torch.equal(row[head : head + 1] != 0, first) for head in range(1, heads))
        rows.append(first if alike else row != 0)
    if all(bool(row.all()) for row in rows):
        return Full()
    triangle = torch.ones((1, queries, keys), dtype=torch.bool, device=weights.device).tril(keys - queries)
    if queries <= keys and all(row.shape[0] == 1 and torch.equal(row, triangle) for row in rows):
        return Causal()
    if all(row.shape == rows[0].shape and torch.equal(row, rows[0]) for row in rows):
        return Dense(rows[0].unsqueeze(0))
    count = max(row.shape[0] for row in rows)
    return Dense(torch.stack([row.expand(count, -1, -1) for row in rows]))


def alike(one: Request, other: Request) -> bool:
    """Whether two calls are certain to have the same visible pairs."""
    sizes, others = (
        (plane.batch, plane.heads, plane.queries, plane.keys, plane.key_start) for plane in (one.plane, other.plane)
    )
    if sizes != others or not torch.equal(one.plane.starts, other.plane.starts) or one.mask != other.mask:
        return False
    return not any(_written(each.score) or (each.bias is not None and each.bias.hides) for each in (one, other))


def visible_blocks(request: Request) -> Iterator[tuple[slice, Tensor]]:
    """All rows in blocks, and what they see: (1 or batch, 1 or head, row, key)."""
    plane = request.plane
    batch_heads = plane.batch * (plane.heads if _written(request.score) else 1)
    step = max(1, CELLS // max(1, batch_heads * plane.keys))
    for first in range(0, plane.queries, step):
        rows = slice(first, min(plane.queries, first + step))
        yield rows, visible(request, rows)


def visible(request: Request, rows: slice) -> Tensor:
    """What some rows see, (1 or batch, 1 or head, row, key)."""
    plane, columns = request.plane, slice(0, request.plane.keys)
    if _written(request.score):  # its function may hide pairs too
        kernel, _, operands = lower_tiled(request)
        tile = Tile(plane, rows, columns, mixed=True)
        seen = kernel.logits.tile(tile, kernel.logits.cut(operands, tile))[0] != -torch.inf
    else:
        bias = request.bias if request.bias is not None and request.bias.hides else None
        seen = look(request.mask, plane, rows, columns, bias)
    return headed(seen, request).expand(-1, -1, rows.stop - rows.start, plane.keys)


def headed(tensor: Tensor, request: Request) -> Tensor:
    """What broadcasts to (batch, kv head, group, row, key), with one head axis."""
    tensor = tensor[(None,) * (5 - tensor.ndim)]
    if tensor.shape[1:3] != (1, 1):
        tensor = tensor.expand(-1, request.plane.kv_heads, request.plane.group, -1, -1)
    return tensor.flatten(1, 2)


def _written(score: Score) -> bool:
    """Whether a score may hide pairs: it holds a function, or has only its formula."""
    return bool(score.functions) or not score.steps()


WIDE = ("duplicate", "induction", "punctuation")  # kinds with many keys for a query; the others have about one
HERE = ("previous", "diagonal", "duplicate", "induction")  # kinds that mean something within one text only


class MarkedPairs(NamedTuple):
    """The pairs of one kind in a rectangle, which all heads of a text share: columns, the same for all rows, or single
    pairs in the order of rows, with the end of each row among them."""

    columns: Tensor | None = None
    pairs: Tensor | None = None
    ends: Tensor | None = None

    @classmethod
    def of(cls, mark: Tensor) -> "MarkedPairs | None":
        """From (row, column) bools; None if they are too many to be listed."""
        if bool((mark == mark[:1]).all()):
            return cls(columns=mark[0].nonzero()[:, 0])
        if int(mark.sum()) * SPARSE > mark.numel():
            return None
        return cls(pairs=mark.flatten().nonzero()[:, 0], ends=mark.sum(-1).cumsum(0))

    def sums(self, weights: Tensor) -> Tensor | None:
        """The weights of these pairs by row: (map, row, column) to (map, row), in double; None if there is no pair."""
        if self.columns is not None:
            return weights[..., self.columns].double().sum(-1) if len(self.columns) else None
        assert self.pairs is not None
        assert self.ends is not None
        running = weights.flatten(1)[:, self.pairs].double().cumsum(1)
        running = torch.cat([running.new_zeros((len(running), 1)), running], 1)[:, self.ends]
        return running.diff(dim=1, prepend=running.new_zeros((len(running), 1)))


@dataclass(frozen=True, eq=False)
class Visibility:
    """`keys`: visible keys of each query, 0 of one that does not count. `kinds`: the pairs of each kind, as masks,
    `numbers`: the same as numbers of keys and queries, and `sees`: which queries have a visible one. (batch, 1 or head,
    query) each. `marked`: pairs of the kinds by rectangle, listed by the first layer that needs them."""

    keys: Tensor
    kinds: dict[str, Mask]
    numbers: dict[str, KeyKind]
    sees: dict[str, Tensor]
    marked: dict[tuple[int, ...], dict[str, MarkedPairs | None]] = field(default_factory=dict)

    @property
    def counted(self) -> Tensor:
        """Queries that count."""
        return self.keys > 0


def visibility_of(
    request: Request, words: KeyTokens, within: bool, wanted: Iterable[str], queries: Tensor | None = None
) -> Visibility:
    """`within`: queries and keys are of one text. `queries`, (1 or batch, query), are those that count."""
    plane = request.plane
    keys = torch.zeros((plane.batch, 1, plane.queries), dtype=torch.int64, device="cpu")
    if plane.keys == 0 or plane.queries == 0:
        return Visibility(keys, {}, {}, {})
    seen = torch.zeros((plane.batch, plane.keys), dtype=torch.bool, device="cpu")
    own = torch.zeros((plane.batch, plane.queries), dtype=torch.bool, device="cpu")
    for rows, seen_pairs in visible_blocks(request):
        if seen_pairs.shape[1] > keys.shape[1]:
            keys = keys.repeat(1, seen_pairs.shape[1], 1)
        keys[..., rows] = seen_pairs.sum(-1).cpu()
        seen |= seen_pairs.any(1).any(-2).cpu()
        own[:, rows] = (seen_pairs & _shared(Window(0, 0), plane, rows)).any(1).any(-1).cpu()
    if queries is not None:
        keys = torch.where(queries.unsqueeze(1), keys, 0)
    elif within:
        # padding: queries whose own key is visible to no query, if there is any that sees its own
        place = _places(plane)
        hidden = _inside(plane, place) & ~seen.gather(1, place.clamp(0, plane.keys - 1))
        keys = torch.where((hidden & own.any(-1, keepdim=True)).unsqueeze(1), 0, keys)
    both = {name: kind for name, kind in _kinds(plane, words, seen, within).items() if name in wanted}
    kinds = {name: mask for name, (mask, _) in both.items()}
    sees = {name: torch.zeros(keys.shape, dtype=torch.bool, device="cpu") for name in kinds}
    for rows, seen_pairs in visible_blocks(request) if kinds else ():
        for name, mask in kinds.items():
            sees[name][..., rows] = (seen_pairs & _shared(mask, plane, rows)).any(-1).cpu() & (keys[..., rows] > 0)
    return Visibility(keys, kinds, {name: numbers for name, (_, numbers) in both.items()}, sees)


def _shared(mask: Mask, plane: Plane, rows: slice) -> Tensor:
    """(1 or batch, 1, row or 1, key or 1) of a mask that is one for all heads."""
    pairs = mask.visible(plane.pairs(rows, slice(0, plane.keys)))
    return pairs[(None,) * (5 - pairs.ndim)][:, 0]


def _places(plane: Plane) -> Tensor:
    """The column at which each query stands, (batch, query); some may lie outside."""
    places = plane.starts.view(-1, 1) - plane.key_start + torch.arange(plane.queries, device="cpu")
    return places.expand(plane.batch, -1)


def _inside(plane: Plane, place: Tensor) -> Tensor:
    return (place >= 0) & (place < plane.keys)


def _kinds(plane: Plane, words: KeyTokens, seen: Tensor, within: bool) -> dict[str, tuple[Mask, KeyKind]]:
    first = torch.where(seen.any(-1), seen.int().argmax(-1), 0)
    columns = torch.arange(plane.keys, device="cpu").unsqueeze(0)
    all_queries = torch.zeros((1, plane.queries), dtype=torch.int64, device="cpu")
    kinds: dict[str, tuple[Mask, KeyKind]] = {
        "first": (Prefix(first + 1) & ~Prefix(first), KeyKind((columns == first.view(-1, 1)).long() - 1, all_queries))
    }
    if words.punctuation is not None:
        mask = Documents(words.punctuation.long(), query_ids=all_queries + 1)
        kinds["punctuation"] = mask, KeyKind(words.punctuation.long() - 1, all_queries)
    place = _places(plane)
    if within:
        for name, window, away in (("previous", Window(1, -1), 1), ("diagonal", Window(0, 0), 0)):
            kinds[name] = window, KeyKind(columns, torch.where(_inside(plane, place - away), place - away, -1))
    if within and words.ids is not None:
        ids = words.ids.expand(plane.batch, -1)
        own = torch.where(_inside(plane, place), ids.gather(1, place.clamp(0, plane.keys - 1)), -2)
        before = torch.cat([torch.full_like(ids[:, :1], -1), ids[:, :-1]], 1)
        kinds["duplicate"] = Documents(ids, query_ids=own) & ~Window(0, 0), KeyKind(ids, own, 0)
        kinds["induction"] = Documents(before, query_ids=own) & ~Window(-1, 1), KeyKind(before, own, 1)
    return kinds
