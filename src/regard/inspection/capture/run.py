"""capture: run a model once, or for the length of a block, and keep what it attends to."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from regard.inspection.capture.result import Capture


def capture(model: nn.Module, *inputs: Any, tokens: Sequence[str] | None = None, **kw: Any) -> Capture:
    """The attention of `model(*inputs, **kw)`; without inputs, of all it computes in a `with` block.

    The model's output is not changed by a bit. `tokens` label the queries and keys of layers that have as many.

    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    >>> c = capture(model, torch.randn(1, 10, 16))
    >>> c.layers
    ('layers.0.self_attn', 'layers.1.self_attn', 'layers.2.self_attn')
    >>> c[2, 0].shape
    (1, 10, 10)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, got {type(model).__name__}; "
            "for a method of a model write: with capture(model) as c: model.generate(...)"
        )
    for path, module in model.named_modules():
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            raise ValueError(
                f"{path or 'the model'} is compiled, which leaves no call of attention to hear; "
                "capture the model as it was before torch.compile (its _orig_mod)"
            )
    found = Capture(model, tokens)
    if inputs or kw:
        with found:
            found.output = model(*inputs, **kw)
    return found
