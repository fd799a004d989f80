"""Score modules: they own the parameters of a score, and calling one gives the score as a value.

Matrices start Xavier uniform, vectors normal with variance 1 / width, biases at 0.
"""

import torch
from torch import Tensor, nn

from regard.checks import whole
from regard.spec.normalizers import Softmax
from regard.spec.scores import Additive as AdditiveScore
from regard.spec.scores import ConcatMLP as ConcatMLPScore
from regard.spec.scores import General as GeneralScore
from regard.spec.scores import Relative as RelativeScore


def _matrix(rows: int, columns: int, heads: int | None) -> nn.Parameter:
    """(rows, columns), or one per head."""
    sizes = [whole("a width", size, 1) for size in (rows, columns)]
    if heads is None:
        return nn.Parameter(nn.init.xavier_uniform_(torch.empty(*sizes)))
    parts = [nn.init.xavier_uniform_(torch.empty(*sizes)) for _ in range(whole("heads", heads, 1))]
    return nn.Parameter(torch.stack(parts))


def _vector(width: int, heads: int | None) -> nn.Parameter:
    size = (whole("a width", width, 1),) if heads is None else (heads, whole("a width", width, 1))
    return nn.Parameter(torch.randn(size) * width**-0.5)


class General(nn.Module):
    """q · W · k with a learned W, (d_query, d_key), or one per query head."""

    def __init__(self, d_query: int, d_key: int | None = None, *, heads: int | None = None) -> None:
        super().__init__()
        self.weight = _matrix(d_query, d_query if d_key is None else d_key, heads)

    def forward(self) -> GeneralScore:
        """The score."""
        return GeneralScore(self.weight)


class Additive(nn.Module):
    """v · tanh(W₁q + W₂k + b) with learned W₁, W₂ and v (Bahdanau). `heads` gives every query head a v of its own.

    `bias` adds b. Without it the score changes its sign with query and key; behind projections that have biases, as
    those of `MultiHeadAttention` do by default, it needs none of its own.
    """

    def __init__(
        self, d_query: int, hidden: int, d_key: int | None = None, *, bias: bool = False, heads: int | None = None
    ) -> None:
        super().__init__()
        self.w_query = _matrix(hidden, d_query, None)
        self.w_key = _matrix(hidden, d_query if d_key is None else d_key, None)
        self.b = nn.Parameter(torch.zeros(hidden)) if bias else None
        self.v = _vector(hidden, heads)

    def forward(self) -> AdditiveScore:
        """The score."""
        return AdditiveScore(self.w_query, self.w_key, self.v, self.b)


class ConcatMLP(nn.Module):
    """v · φ(W[q; k] + b): one learned hidden layer over query and key; φ is tanh, relu, gelu or sigmoid."""

    def __init__(
        self,
        d_query: int,
        hidden: int,
        d_key: int | None = None,
        *,
        activation: str = "tanh",
        bias: bool = True,
        heads: int | None = None,
    ) -> None:
        super().__init__()
        self.w_query = _matrix(hidden, d_query, None)
        self.w_key = _matrix(hidden, d_query if d_key is None else d_key, None)
        self.b = nn.Parameter(torch.zeros(hidden)) if bias else None
        self.v = _vector(hidden, heads)
        self.activation = activation
        self()  # an activation that is not known is refused here

    def forward(self) -> ConcatMLPScore:
        """The score."""
        return ConcatMLPScore(self.w_query, self.w_key, self.b, self.v, self.activation)

    def extra_repr(self) -> str:
        """The activation."""
        return f"activation={self.activation!r}"


class Relative(nn.Module):
    """(q + u) · k + (q + v) · r₍ᵢ₋ⱼ₎, over √d: learned vectors for the offsets −reach to reach.

    Shaw's relative keys by default; `heads` gives each query head the u and v of Transformer-XL, which start at 0.
    """

    def __init__(self, d_key: int, reach: int, *, heads: int | None = None) -> None:
        super().__init__()
        rows = 2 * whole("reach", reach, 0) + 1
        self.keys = nn.Parameter(torch.randn(rows, whole("d_key", d_key, 1)) * d_key**-0.5)
        self.u = None if heads is None else nn.Parameter(torch.zeros(whole("heads", heads, 1), d_key))
        self.v = None if heads is None else nn.Parameter(torch.zeros(heads, d_key))

    def forward(self) -> RelativeScore:
        """The score."""
        return RelativeScore(self.keys, self.u, self.v, scale=None)


class Sink(nn.Module):
    """Softmax with a learned sink: one logit per query head that takes weight and gives no value; it starts at 0."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(whole("heads", heads, 1)))

    def forward(self) -> Softmax:
        """The normalizer."""
        sink: Tensor = self.sink
        return Softmax(sink)
