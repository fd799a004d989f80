"""Compiled FlexAttention as a contender: masks and biases as the functions it takes, or why it cannot."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.bench.case import Case, Inputs, Work
from regard.spec import biases, masks

LONGEST = 8192  # its block mask is made from all pairs


def refuses(case: Case) -> str | None:
    """Why FlexAttention cannot run this on a CPU."""
    spec = case.spec(case.shape, case.inputs_like())
    if case.backward:
        return "it cannot train on a CPU"
    if "dropout" in spec:
        return "it has no dropout"
    if "mask" in spec and case.shape.n > LONGEST:
        return f"its block mask is made from all {case.shape.rows * case.shape.n / 1e9:.1f} billion pairs"
    return None


def prepare(case: Case, inputs: Inputs) -> Work:
    """Make the block mask, compile, and run once so that compiling is over."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # a function that was compiled for many cases is not compiled again
    spec, shape = case.spec(case.shape, inputs), case.shape
    mask = case.mask()
    block = None
    if not isinstance(mask, masks.Full):
        block = create_block_mask(_mask_mod(mask), None, None, shape.rows, shape.n, device="cpu")
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    score_mod = _score_mod(spec.get("bias"))

    def attention(x: Inputs) -> Tensor:
        out: Tensor = compiled(
            x[0], x[1], x[2], score_mod=score_mod, block_mask=block, enable_gqa=shape.key_heads != shape.heads
        )
        return out

    work = case.around(attention)
    work(inputs)
    return work


def _mask_mod(mask: masks.Mask) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    if isinstance(mask, masks.Causal):
        return lambda b, h, i, j: j <= i
    assert isinstance(mask, masks.Window)
    before, after = mask.before, mask.after
    assert before is not None
    assert after is not None
    return lambda b, h, i, j: (i - j <= before) & (j - i <= after)


def _score_mod(bias: biases.Bias | None) -> Callable[..., Tensor] | None:
    if bias is None:
        return None
    assert isinstance(bias, biases.ALiBi)
    slopes = bias.slopes.float()
    return lambda score, b, h, i, j: score - slopes[h] * (i - j).abs()
