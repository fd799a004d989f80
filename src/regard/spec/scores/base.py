"""Score: how well a query and a key match."""

from torch import Tensor

from regard.spec.forms import Form
from regard.spec.part import Part
from regard.spec.plane import Pairs


class Score(Part):
    """A scalar for each (query, key) pair, before bias, mask and temperature.

    Inside, queries are (batch, kv head, group, query, d_q) and keys (batch, kv head, 1, key, d_k).
    """

    #: how engines compute it: "product" q′·k′, "sum" v·φ(a + b), "relative", or "function"
    form: str = "product"

    @property
    def positional(self) -> bool:
        """Whether the score depends on i and j."""
        return False

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        """The definition, pair by pair and dense: (batch, kv head, group, query, key)."""
        raise NotImplementedError(f"{type(self).__name__} must define formula(query, key, pairs)")

    def lower(self, query: Tensor, key: Tensor) -> Form:
        """The same as a form that computes any rectangle alone; nothing of size query × key."""
        raise NotImplementedError(f"{type(self).__name__} must define lower(query, key)")

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        """Raise if widths or heads do not fit."""
        same_width(type(self).__name__, d_query, d_key)

    def flops(self, d_query: int, d_key: int) -> int:
        """Floating-point operations per pair in products, two for a multiply and add; φ and friends not counted."""
        return 2 * d_key

    def prepare_flops(self, queries: int, keys: int, d_query: int, d_key: int) -> int:
        """The same for what is done once per query and once per key (over all heads)."""
        return 0

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The tensors it holds, by name."""
        return {name: value for name, value in self.held.items() if isinstance(value, Tensor)}


def same_width(name: str, d_query: int, d_key: int) -> None:
    """Refuse a query and a key of different width where the score multiplies them."""
    if d_query != d_key:
        raise ValueError(
            f"{name} multiplies query and key, so their widths must be equal: query has {d_query}, key has {d_key}; "
            "project one of them, or use scores.General or scores.Additive, which take different widths"
        )
