"""RMSNorm: torch's, computed in half as many passes over memory."""

import torch
from torch import Tensor, nn

PLAIN = (torch.float32, torch.float64)
LARGE = 1 << 15  # numbers; below it one call of torch's is as quick


class RMSNorm(nn.RMSNorm):
    """x / √(mean(x²) + eps) · weight over the last axis. What is not float32 or float64 goes torch's way."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        alike = x.dtype in PLAIN and getattr(self.weight, "dtype", None) == x.dtype
        if x.numel() < LARGE or not alike or self.eps is None:
            return super().forward(x)
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scaled: Tensor = x * (norm.square() / x.shape[-1] + self.eps).rsqrt()
        # without gradients the product is ours to overwrite
        return scaled * self.weight if torch.is_grad_enabled() else scaled.mul_(self.weight)
