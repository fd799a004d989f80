"""Sight: what the queries of a layer can see: how many keys, which kinds of them, and which queries count."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.inspection.heads.tokens import KeyTokens
from regard.inspection.heads.visible import looks
from regard.spec.masks import Documents, Mask, Prefix, Window
from regard.spec.plane import Plane

NARROW = ("previous", "first", "diagonal")  # kinds with about one key for a query
WIDE = ("duplicate", "induction", "punctuation")
HERE = ("previous", "diagonal", "duplicate", "induction")  # kinds that mean something within one text only


@dataclass(frozen=True, eq=False)
class Sight:
    """`keys`: visible keys of each query, 0 of one that does not count. `kinds`: the pairs of each kind, as masks, and
    `sees`: which queries have a visible one. (batch, 1 or head, query) each."""

    keys: Tensor
    kinds: dict[str, Mask]
    sees: dict[str, Tensor]

    @property
    def counted(self) -> Tensor:
        """Queries that count."""
        return self.keys > 0


def sight_of(
    request: Request, words: KeyTokens, within: bool, wanted: Iterable[str], queries: Tensor | None = None
) -> Sight:
    """`within`: queries and keys are of one text. `queries`, (1 or batch, query), are those that count."""
    plane = request.plane
    keys = torch.zeros((plane.batch, 1, plane.queries), dtype=torch.int64, device="cpu")
    if plane.keys == 0 or plane.queries == 0:
        return Sight(keys, {}, {})
    seen = torch.zeros((plane.batch, plane.keys), dtype=torch.bool, device="cpu")
    own = torch.zeros((plane.batch, plane.queries), dtype=torch.bool, device="cpu")
    for rows, look in looks(request):
        if look.shape[1] > keys.shape[1]:
            keys = keys.repeat(1, look.shape[1], 1)
        keys[..., rows] = look.sum(-1).cpu()
        seen |= look.any(1).any(-2).cpu()
        own[:, rows] = (look & _whole(Window(0, 0), plane, rows)).any(1).any(-1).cpu()
    if queries is not None:
        keys = torch.where(queries.unsqueeze(1), keys, 0)
    elif within:
        keys = torch.where(_padding(plane, seen, own).unsqueeze(1), 0, keys)
    kinds = {name: mask for name, mask in _kinds(plane, words, seen, within).items() if name in wanted}
    sees = {name: torch.zeros(keys.shape, dtype=torch.bool, device="cpu") for name in kinds}
    for rows, look in looks(request) if kinds else ():
        for name, mask in kinds.items():
            sees[name][..., rows] = (look & _whole(mask, plane, rows)).any(-1).cpu() & (keys[..., rows] > 0)
    return Sight(keys, kinds, sees)


def _whole(mask: Mask, plane: Plane, rows: slice) -> Tensor:
    """(1 or batch, 1, row or 1, key or 1) of a mask that is one for all heads."""
    found = mask.visible(plane.pairs(rows, slice(0, plane.keys)))
    return found[(None,) * (5 - found.ndim)][:, 0]


def _padding(plane: Plane, seen: Tensor, own: Tensor) -> Tensor:
    """Queries whose own key nobody sees, if there is any that sees its own: (batch, query)."""
    place = _places(plane)
    hidden = _inside(plane, place) & ~seen.gather(1, place.clamp(0, plane.keys - 1))
    return hidden & own.any(-1, keepdim=True)


def _places(plane: Plane) -> Tensor:
    """The column at which each query stands, (batch, query); some may lie outside."""
    return (plane.starts.view(-1, 1) - plane.key_start + torch.arange(plane.queries, device="cpu")).expand(
        plane.batch, -1
    )


def _inside(plane: Plane, place: Tensor) -> Tensor:
    return (place >= 0) & (place < plane.keys)


def _kinds(plane: Plane, words: KeyTokens, seen: Tensor, within: bool) -> dict[str, Mask]:
    first = torch.where(seen.any(-1), seen.int().argmax(-1), 0)
    found: dict[str, Mask] = {"first": Prefix(first + 1) & ~Prefix(first)}
    if words.punctuation is not None:
        signs = words.punctuation.long()
        found["punctuation"] = Documents(
            signs, query_ids=torch.ones((1, plane.queries), dtype=torch.int64, device="cpu")
        )
    if within:
        found |= {"previous": Window(1, -1), "diagonal": Window(0, 0)}
    if within and words.ids is not None:
        ids, place = words.ids.expand(plane.batch, -1), _places(plane)
        asked = torch.where(_inside(plane, place), ids.gather(1, place.clamp(0, plane.keys - 1)), -2)
        before = torch.cat([torch.full_like(ids[:, :1], -1), ids[:, :-1]], 1)
        found["duplicate"] = Documents(ids, query_ids=asked) & ~Window(0, 0)
        found["induction"] = Documents(before, query_ids=asked) & ~Window(-1, 1)
    return found
