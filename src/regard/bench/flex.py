"""Compiled FlexAttention as a contender: masks and biases as the functions it takes, or why it cannot."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.bench.case import Case, Inputs, Work
from regard.bench.dense import offsets
from regard.spec import biases, masks

LONGEST = 8192  # its block mask is made from all pairs


def refuses(case: Case) -> str | None:
    """Why FlexAttention cannot run this; on a CPU it has no gradients."""
    spec = case.spec(case.shape, case.inputs_like())
    if case.backward and case.shape.device == "cpu":
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
        block = create_block_mask(_mask_mod(mask), None, None, shape.rows, shape.n, device=shape.device)
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    score_mod_of = _score_mod(case, spec.get("bias"))

    def attention(x: Inputs) -> Tensor:
        out: Tensor = compiled(
            x[0], x[1], x[2], score_mod=score_mod_of(x), block_mask=block, enable_gqa=shape.key_heads != shape.heads
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


def _score_mod(case: Case, bias: biases.Bias | None) -> Callable[[Inputs], Callable[..., Tensor] | None]:
    """Makes the function of a score from a call's inputs: a learned table is one of them."""
    if bias is None:
        return lambda x: None
    if isinstance(bias, biases.T5):
        index, past = bias.bucket(offsets(case)), case.shape.n - 1
        return lambda x: lambda score, b, h, i, j: score + x[3][index[i - j + past], h]
    assert isinstance(bias, biases.ALiBi)
    slopes = bias.slopes.float().to(case.shape.device)
    sloped = lambda score, b, h, i, j: score - slopes[h] * (i - j).abs()  # noqa: E731
    return lambda x: sloped
