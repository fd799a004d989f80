"""capture: run a model once, or for the length of a block, and keep what it attends to."""

import os
from typing import Any

import torch
from torch import nn

from regard import checks
from regard.inspection.capture.choice import Choice, Heads, Layers
from regard.inspection.capture.labels import Labels, Tokens
from regard.inspection.capture.patches import image_in
from regard.inspection.capture.result import Capture
from regard.inspection.capture.session import Session


def capture(
    model: nn.Module,
    *inputs: Any,
    tokens: Tokens | None = None,
    layers: Layers = None,
    heads: Heads = None,
    dtype: torch.dtype | None = None,
    spill: str | os.PathLike[str] | int | None = None,
    **kw: Any,
) -> Capture:
    """The attention of `model(*inputs, **kw)`; without inputs, of all it computes in a `with` block.

    The model's output is not changed by a bit. `tokens` label the queries and keys of layers that have as many: a list,
    one for each batch row, or two by "encoder" and "decoder". `layers` (numbers, names or patterns of names) and
    `heads` (numbers) are kept, all unless given; `dtype` is what queries and keys are stored in. What is more than
    `spill` bytes, an eighth of the machine's memory unless given, goes to a temporary file, or all to the file of that
    name, which `regard.load` opens. A model with arguments of these names is called in a `with` block.

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
    if isinstance(spill, bool) or not isinstance(spill, str | os.PathLike | int | None):
        raise TypeError(f"spill must be a path or a number of bytes, got {type(spill).__name__}")
    if isinstance(spill, int):
        checks.whole("spill", spill, 0)
    session = Session(model, Choice.of(layers, heads, dtype), spill)
    found = Capture(type(model).__name__, [], Labels.of(tokens), session)
    if inputs or kw:
        session.image = image_in((*inputs, *kw.values()))
        with found:
            found.output = model(*inputs, **kw)
    return found
