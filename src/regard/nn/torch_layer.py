"""TorchLayerCall: a call of MultiHeadAttention with the arguments of torch's nn.MultiheadAttention, and its results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from regard.arrays import Array, tensor_of
from regard.checks import dtype, is_tensor, shape
from regard.engine import context
from regard.engine.nonfinite import divide_by_temperature
from regard.engine.partial import KeyChunk
from regard.engine.reference import masked_logits, normalize
from regard.engine.request import request
from regard.nn.parts import AnyBias, AnyMask, added, both
from regard.spec.biases import Bias
from regard.spec.biases import Dense as DenseBias
from regard.spec.masks import Causal, Mask, from_mha

# arguments of torch's constructor, and how to write them here
CONSTRUCTOR = {
    "embed_dim": "write d_model=",
    "num_heads": "write heads=",
    "kdim": "write d_key=",
    "vdim": "write d_value=",
    "add_zero_attn": "write normalizer=normalizers.Softmax(0.0): a key of zeros is a sink of 0",
    "add_bias_kv": "this layer has no learned key; append one to the keys",
    "device": "make the layer, then move it: .to(device)",
    "dtype": "make the layer, then convert it: .to(dtype)",
}


class TorchArguments(TypedDict, total=False):
    """The arguments that torch's layer has beside query, key and value. In a bool mask True is *hidden*."""

    key_padding_mask: Tensor | Array | None
    need_weights: bool
    attn_mask: Tensor | Array | None
    average_attn_weights: bool
    is_causal: bool


def unknown_arguments(given: Mapping[str, object]) -> TypeError:
    """The error for arguments that the constructor does not have."""
    first = next(iter(given))
    hint = CONSTRUCTOR.get(first, "help(regard.nn.MultiHeadAttention) lists its arguments")
    return TypeError(f"MultiHeadAttention() got an unexpected keyword argument {first!r}; {hint}")


@dataclass(frozen=True, eq=False)
class TorchLayerCall:
    """The arguments, with torch's defaults."""

    key_padding_mask: Tensor | None = None
    need_weights: bool = True
    attn_mask: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "TorchLayerCall":
        """The arguments, checked one by one."""
        for name in arguments:
            if name not in TorchArguments.__annotations__:
                names = ", ".join(TorchArguments.__annotations__)
                raise TypeError(
                    f"MultiHeadAttention.forward() got an unexpected keyword argument {name!r}; it takes query, key, "
                    f"value, mask, bias, query_start and cache, and torch's {names}"
                )
        given: dict[str, Any] = dict(arguments)
        return cls(**given | {name: _mask(name, given[name]) for name in given if "mask" in name})

    def joined(
        self, mask: AnyMask, bias: AnyBias, query: Tensor, keys: int | None, heads: int
    ) -> tuple[AnyMask, AnyBias]:
        """Mask and bias of the call with those of torch's arguments; `keys` is None if a cache has more of them."""
        if query.ndim > 3:
            raise ValueError(
                f"torch's arguments are for inputs (batch, length, width) or (length, width), got {shape(query)}; "
                "write mask= and bias= instead"
            )
        batch = query.shape[:-2]
        for part in self._parts(batch, query.shape[-2], keys, heads):
            mask, bias = (both(mask, part), bias) if isinstance(part, Mask) else (mask, added(bias, part))
        return mask, bias

    def _parts(self, batch: Sequence[int], queries: int, keys: int | None, heads: int) -> list[Mask | Bias]:
        parts: list[Mask | Bias] = [Causal()] if self.is_causal else []
        if (padding := self.key_padding_mask) is not None:
            wanted = (*batch, padding.shape[-1] if keys is None and padding.ndim else keys)
            if tuple(padding.shape) != wanted:
                axes = "(batch, key)" if batch else "(key,)"
                raise ValueError(f"key_padding_mask must be {axes} = {wanted}, got {shape(padding)}")
            bools = padding.dtype == torch.bool
            rows = padding if bools or not batch else padding[:, None, None, :]
            parts.append(from_mha(key_padding_mask=rows) if bools else DenseBias(rows))
        if (pairs := self.attn_mask) is not None:
            size = (queries, pairs.shape[-1] if keys is None and pairs.ndim else keys)
            all_heads = heads * (batch[0] if batch else 1)
            if tuple(pairs.shape) not in (size, (all_heads, *size)):
                raise ValueError(
                    f"attn_mask must be (query, key) = {size} or (batch · heads, query, key) = {(all_heads, *size)}, "
                    f"got {shape(pairs)}; one that broadcasts to (batch, head, query, key) is mask= (True = visible) "
                    "or bias="
                )
            if pairs.dtype == torch.bool:
                parts.append(from_mha(pairs, heads=heads))
            else:
                parts.append(DenseBias(pairs if pairs.ndim == 2 else pairs.unflatten(0, (-1, heads))))
        return parts

    @_disable_dynamo  # unlike torch.compiler.disable, it does not load the compiler; weights are the reference engine's
    def weights(self, query: Tensor, chunks: Sequence[KeyChunk], engine: object, spec: dict[str, Any]) -> Tensor:
        """(batch, query, key), the mean over heads, or (batch, head, query, key); after dropout, as torch has them."""
        if len(chunks) > 1 or not isinstance(engine, str):
            where = "a cache with a window or sinks" if len(chunks) > 1 else "a Ring"
            raise ValueError(f"weights are not returned of {where}; pass need_weights=False")
        query, key = context.to_autocast(query), context.to_autocast(chunks[0].key)
        with context.autocast_disabled(query.device):
            checked = request(query, key, key[..., :0], aux=(), key_start=chunks[0].start, **spec)
            checked.hold_numbers()
            logits, visible = masked_logits(checked)
            x = torch.where(visible, divide_by_temperature(logits, checked.temperatures), -torch.inf)
            weights, _ = normalize(x, checked)
            if checked.dropout is not None:
                weights = weights * checked.dropout.factors(checked.plane.all, weights.dtype)
        weights = checked.shapes.unfold(weights)
        return (weights.mean(-3) if self.average_attn_weights else weights).to(query.dtype)


def _mask(name: str, value: Any) -> Tensor | None:
    """None, or a bool or float tensor."""
    if value is None:
        return None
    tensor = is_tensor(name, tensor_of(name, value))
    if tensor.dtype == torch.bool or tensor.is_floating_point():
        return tensor
    raise TypeError(
        f"{name} must be bool (True = hidden) or float (added to the scores), got {dtype(tensor)}; a tokenizer's "
        "attention_mask of 0 and 1 is mask=masks.from_padding(attention_mask)"
    )
