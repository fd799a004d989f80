"""Parts: a Transformer block taken apart. No norms, for they are nonlinear, and none of the two parts has one."""

from torch import Tensor
from torch import nn as torch_nn

from regard import nn

ATTENTION, FEED, BOTH, DEEP = "attention alone", "feed-forward alone", "both", "attention × 3"
KINDS = {ATTENTION: "a", FEED: "f", BOTH: "af", DEEP: "aaa"}  # attention × 3 has as many parameters as both


class Parts(torch_nn.Module):
    """(batch, length, features) to one logit per token, through the parts, each in a residual branch."""

    def __init__(self, kind: str, features: int, width: int, heads: int) -> None:
        super().__init__()
        self.enter = torch_nn.Linear(features, width)
        self.parts = torch_nn.ModuleList(
            nn.MultiHeadAttention(width, heads, engine="reference") if part == "a" else nn.FeedForward(width)
            for part in KINDS[kind]
        )
        self.leave = torch_nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, length)."""
        x = self.enter(x)
        for part in self.parts:
            x = x + part(x)
        found: Tensor = self.leave(x)
        return found.squeeze(-1)
