"""FeedForward: the part of a block that works on each position alone."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from regard.checks import whole
from regard.nn.fused import products
from regard.spec.dropout import check_rate

#: name: the function, and whether its result gates a second projection
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "relu": (functional.relu, False),
    "gelu": (functional.gelu, False),
    "gelu_tanh": (partial(functional.gelu, approximate="tanh"), False),
    "silu": (functional.silu, False),
    "swiglu": (functional.silu, True),
    "geglu": (functional.gelu, True),
}


class FeedForward(nn.Module):
    """W₂ · φ(W₁x), or gated W₂ · (φ(W_g x) ∘ W₁x) for swiglu and geglu; d_ff is 4 · d_model unless given.

    `activation` is relu, gelu, gelu_tanh, silu, swiglu or geglu. Weights start Xavier uniform, biases at 0.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        *,
        activation: str = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        d_ff = 4 * whole("d_model", d_model, 1) if d_ff is None else whole("d_ff", d_ff, 1)
        check_rate(dropout)
        self.activation = activation
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if ACTIVATIONS[activation][1] else None
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights uniform with the variance 2 / (in + out) (Xavier), biases 0."""
        for layer in (self.gate, self.up, self.down):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, d_model) to the same."""
        phi = ACTIVATIONS[self.activation][0]
        if self.gate is None:
            hidden = phi(self.up(x))
        else:
            gate, up = products(x, (self.gate, self.up))
            hidden = phi(gate) * up
        if self.training and self.dropout:
            hidden = functional.dropout(hidden, self.dropout)
        out: Tensor = self.down(hidden)
        return out

    def extra_repr(self) -> str:
        """The activation and the rate of dropout."""
        return f"activation={self.activation!r}" + (f", dropout={self.dropout}" if self.dropout else "")
