"""ShardedMatrix: the weights of a sequence whose shards are in several processes, and reductions over them."""

from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from regard.checks import whole
from regard.engine.arguments import Shapes, mask_of
from regard.engine.request import Aux
from regard.inspection.matrix.reductions import Peak, cell_of, edges
from regard.spec.masks import Mask
from regard.spec.masks.count import count_cells
from regard.spec.normalizers import Softmax
from regard.spec.plane import Plane

if TYPE_CHECKING:
    from regard.engine.ring import Ring


_OFFERS = (
    "it has lse, entropy, peak, received, distance, mass and pool; for all else make regard.matrix(query, key) of "
    "the whole sequence in one process"
)


class ShardedMatrix:
    """Reductions over all pairs, for this process's queries; `received` is of its own keys.

    Every process calls the same reductions in the same order: each is a round of the ring. Results are cached, except
    those with a graph: `lse`, `entropy` and `mass` are differentiable.
    """

    def __init__(self, query: Tensor, key: Tensor, ring: "Ring", spec: dict[str, Any]) -> None:
        self._query, self._key, self._ring, self._spec = query, key, ring, spec
        self._cached: dict[str, Tensor] = {}

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a matrix that processes share has no {name}: {_OFFERS}")

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(f"a matrix that processes share cannot be indexed: {_OFFERS}")

    def lse(self) -> Tensor:
        """log Σ e^x of each row, the sink included; differentiable."""
        return self._result("lse")

    def entropy(self) -> Tensor:
        """−Σ w·log w of each row, in nats; differentiable."""
        return self._result("entropy")

    def peak(self) -> Peak:
        """The largest weight of each row and its key in the whole sequence (the first of equals)."""
        self._computed("peak", "peak_at")
        return Peak(self._result("peak"), self._result("peak_at"))

    def received(self) -> Tensor:
        """Σ over all queries of the weights of this process's keys, (…, key)."""
        return self._result("received")

    def distance(self) -> Tensor:
        """Σ w·|i − j| of each row."""
        return self._result("distance")

    def mass(self, mask: Mask | Tensor | str) -> Tensor:
        """The share of each row's weight that lies on a mask of the whole; differentiable."""
        shapes = self._whole()
        inside = mask_of(self._spec["mask"], shapes) & mask_of(mask, shapes)
        some = self._aux(("lse",), mask=inside, normalizer=Softmax()).lse
        assert some is not None
        empty = some == -torch.inf
        return torch.where(empty, 0.0, (torch.where(empty, 0.0, some) - torch.where(empty, 0.0, self.lse())).exp())

    def pool(self, rows: int, cols: int, how: Literal["sum", "mean"] = "mean") -> Tensor:
        """A grid of rows × cols cells over all pairs of the whole, on every process; as `AttentionMatrix.pool`."""
        if how not in ("sum", "mean"):
            raise ValueError(f"how must be sum or mean of a matrix that processes share, got {how!r}")
        shapes = self._whole()
        rows, cols = min(whole("rows", rows, 1), shapes.queries), min(whole("cols", cols, 1), shapes.keys)
        # the value of a key is its column of the grid as one-hot: the output of a query is then its row of the grid
        column = torch.nn.functional.one_hot(cell_of(self._positions(self._key), shapes.keys, cols), cols)
        value = column.to(self._key).expand(*self._key.shape[:-1], cols)
        with torch.no_grad():
            seen = self._ring.attend(self._query, self._key, value, (), self._options())
        assert isinstance(seen, Tensor)
        grid = torch.zeros((*seen.shape[:-2], rows, cols), dtype=torch.float64, device=seen.device)
        grid.index_add_(-2, cell_of(self._positions(self._query), shapes.queries, rows).to(seen.device), seen.double())
        dist.all_reduce(grid, group=self._ring.group)
        if how == "mean":
            grid = grid / self._pairs(shapes, rows, cols).to(grid.device).view(grid.shape).clamp(min=1)
        return grid.to(seen.dtype)

    def _pairs(self, shapes: Shapes, rows: int, cols: int) -> Tensor:
        """Visible pairs of every cell."""
        start = self._spec["query_start"]
        starts = torch.as_tensor(shapes.keys - shapes.queries if start is None else start, device="cpu").reshape(-1)
        plane = Plane(shapes.batch, shapes.kv_heads, shapes.group, shapes.queries, shapes.keys, starts)
        down, right = edges(shapes.queries, rows).tolist(), edges(shapes.keys, cols).tolist()
        return count_cells(mask_of(self._spec["mask"], shapes), plane, down, right)

    def _positions(self, tensor: Tensor) -> Tensor:
        """The positions of a shard's rows in the full sequence."""
        positions = [
            torch.arange(at.stop - at.start, device="cpu") + first for first, at in self._ring.placed(tensor.shape[-2])
        ]
        return torch.cat(positions) if positions else torch.arange(0, device="cpu")

    def _whole(self) -> Shapes:
        """The sizes of the full sequence."""
        own = Shapes.of(self._query, self._key, self._key)
        lengths = torch.tensor([own.queries, own.keys], device="cpu", dtype=torch.int64)
        dist.all_reduce(lengths, group=self._ring.group)
        queries, keys = lengths.tolist()
        return Shapes(own.leading, own.kv_heads, own.group, queries, keys, own.d_value, own.rank)

    def _result(self, name: str) -> Tensor:
        if name in self._cached and not (torch.is_grad_enabled() and name in ("lse", "entropy")):
            return self._cached[name]
        return self._computed(name)

    def _computed(self, *names: str) -> Tensor:
        aux = self._aux(names)
        self._cached |= {name: getattr(aux, name).detach() for name in names}
        first: Tensor = getattr(aux, names[0])
        return first

    def _aux(self, names: tuple[str, ...], **other: Any) -> Aux:
        """One round of the ring, without values."""
        out = self._ring.attend(self._query, self._key, self._key[..., :0], names, self._options(**other))
        assert isinstance(out, tuple)
        return out[1]

    def _options(self, **other: Any) -> Any:
        return {**self._spec, "dropout": 0.0, **other}
