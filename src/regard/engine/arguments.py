"""The arguments of a call: shapes and parts of a spec, checked; errors say what was wanted, what came, what to do."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard import checks
from regard.arrays import tensor_of
from regard.engine.context import refuse_trace, tracing_state
from regard.spec.biases import Bias
from regard.spec.biases import Dense as DenseBias
from regard.spec.closures import read_tensors
from regard.spec.masks import Causal, Full, Mask
from regard.spec.masks import Dense as DenseMask
from regard.spec.normalizers import Normalizer, Softmax
from regard.spec.part import Part
from regard.spec.scores import Score, SoftCapped

AXES = "axes are (batch, head, length, width)"
# arguments of torch's attention functions and of transformers, and how to write them here
TORCH_ARGUMENTS = {
    "attn_mask": "a bool mask, True where visible, is mask=, and numbers that are added are bias=",
    "is_causal": "write mask='causal', and query_start=0 too if the lengths differ: torch counts from the first key",
    "dropout_p": "write dropout=",
    "scale": "write score=scores.ScaledDot(scale)",
    "enable_gqa": "leave it out: the key's heads may divide the query's",
    "key_padding_mask": "write mask=~key_padding_mask[:, None, None, :], or mask=masks.Lengths(lengths)",
    "attention_mask": "write mask=masks.from_padding(attention_mask) for a tokenizer's 0 and 1",
    "causal": "write mask='causal'",
    "need_weights": "regard.matrix(query, key, ...) gives the weights",
    "average_attn_weights": "regard.matrix(query, key, ...).dense().mean(1) are the mean weights",
    "score_mod": "write score=scores.Modified(scores.ScaledDot(), score_mod)",
    "block_mask": "write mask=masks.Where(mask_mod), or one of regard.masks",
    "return_lse": "write aux='lse'",
}


@dataclass(frozen=True)
class Shapes:
    """Sizes of one call. `leading` is what stands before (head, length, width), `rank` the axes of the result."""

    leading: tuple[int, ...]
    kv_heads: int
    group: int
    queries: int
    keys: int
    d_value: int
    rank: int

    @property
    def batch(self) -> int:
        """All leading axes in one."""
        return math.prod(self.leading)

    @classmethod
    def of(cls, query: Tensor, key: Tensor, value: Tensor) -> "Shapes":
        """Read and check the shapes of the three inputs."""
        if not torch.compiler.is_compiling() and tracing_state() is not None:
            refuse_trace()
        named = {"query": query, "key": key, "value": value}
        for name, tensor in named.items():
            plain = type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.is_nested
            if not plain or tensor.ndim < 2 or tensor.dtype not in checks.FLOATS:
                _check_input(name, tensor)
        if not (query.dtype == key.dtype == value.dtype and query.device == key.device == value.device):
            checks.same_kind(named)
        if key.shape[-2] != value.shape[-2]:
            _refuse_lengths(named)
        heads, kv_heads, value_heads = (tensor.shape[-3] if tensor.ndim > 2 else 1 for tensor in named.values())
        if kv_heads != value_heads or (heads % kv_heads if kv_heads else heads):
            _refuse_heads(named)
        leading = query.shape[:-3]
        return cls(
            leading=tuple(leading) if leading == key.shape[:-3] == value.shape[:-3] else _broadcast(named),
            kv_heads=kv_heads,
            group=heads // kv_heads if kv_heads else 1,
            queries=query.shape[-2],
            keys=key.shape[-2],
            d_value=value.shape[-1],
            rank=max(tensor.ndim for tensor in named.values()),
        )

    def fold_leading(self, name: str, tensor: Tensor) -> Tensor:
        """A mask or bias as (batch, head, query, key); its batch axes broadcast to those of the inputs."""
        axes, rest = tensor.shape[:-3], tensor.shape[-3:]
        if len(axes) < 2 and (len(self.leading) < 2 or math.prod(axes) == 1):
            return tensor
        try:
            return tensor.expand(*self.leading, *rest).reshape(self.batch, *rest)
        except RuntimeError as error:
            raise ValueError(
                f"the batch axes of {name} {checks.shape(tensor)} do not broadcast to those of the inputs, "
                f"{self.leading}; axes are (batch, head, query, key), each of them 1 or equal"
            ) from error

    def unfold(self, tensor: Tensor) -> Tensor:
        """(batch, kv head, group, …) back to the user's axes."""
        tensor = tensor.flatten(1, 2)
        if self.leading:
            return tensor.reshape(*self.leading, *tensor.shape[1:])
        return tensor[0, 0] if self.rank == 2 else tensor[0]


def _check_input(name: str, tensor: Tensor) -> None:
    checks.is_tensor(name, tensor)
    if tensor.ndim < 2:
        raise ValueError(
            f"{name} must be (batch, head, length, width), or at least (length, width), "
            f"got shape {checks.shape(tensor)}"
        )
    checks.is_float(name, tensor)


def fold(tensor: Tensor, shapes: Shapes, group: int) -> Tensor:
    """(…, head, length, width) to (batch, kv head, group, length, width)."""
    tensor = tensor if tensor.ndim > 2 else tensor.unsqueeze(0)
    tensor = tensor.expand(*shapes.leading, *tensor.shape[-3:])
    return tensor.reshape(shapes.batch, shapes.kv_heads, group, *tensor.shape[-2:])


def _refuse_lengths(named: dict[str, Tensor]) -> None:
    query, key, value = named.values()
    hint = _swapped(named)
    if key.shape[-1] == value.shape[-2] and key.shape[-2] == query.shape[-1]:
        hint = "key looks like (…, width, length): pass key.mT"
    elif key.shape[-1] == value.shape[-1] and key.shape[-2] == query.shape[-2]:
        hint = "they look like (…, width, length): pass query.mT, key.mT and value.mT"
    raise ValueError(f"key and value must have the same length, got {_listed(named)}; {hint or AXES}")


def _refuse_heads(named: dict[str, Tensor]) -> None:
    q, k, v = map(_heads, named.values())
    hint = _swapped(named) or AXES
    if k != v:
        raise ValueError(
            f"key and value must have the same number of heads, got {k} and {v} ({_listed(named)}); {hint}"
        )
    raise ValueError(
        f"the key's heads must divide the query's, got {q} query heads and {k} key heads ({_listed(named)}); {hint}"
    )


def _swapped(named: dict[str, Tensor]) -> str | None:
    """What to do if the shapes would fit with heads and lengths exchanged in some of the inputs."""
    if min(tensor.ndim for tensor in named.values()) < 3:
        return None
    for names in (("query", "key", "value"), ("query",), ("key", "value"), ("key",), ("value",)):
        turned = {name: tensor.transpose(-3, -2) if name in names else tensor for name, tensor in named.items()}
        q, k, v = map(_heads, turned.values())
        lengths = {tensor.shape[-2] for tensor in turned.values()}
        likely = all(_heads(tensor) <= min(lengths) for tensor in turned.values())  # few heads, long sequences
        if likely and k and k == v and q % k == 0 and turned["key"].shape[-2] == turned["value"].shape[-2]:
            what = f"{names[0]} looks" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} look"
            return f"{what} like (batch, length, head, width): call .transpose(-3, -2)"
    return None


def _heads(tensor: Tensor) -> int:
    return tensor.shape[-3] if tensor.ndim > 2 else 1


def _listed(named: dict[str, Tensor]) -> str:
    return ", ".join(f"{name} {checks.shape(tensor)}" for name, tensor in named.items())


def widest(shapes: list[torch.Size]) -> list[int]:
    """The axes that they broadcast to, if they do; sizes may be symbols, which no set can hold."""
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return [next((size for size in axis if size != 1), 1) for axis in zip(*aligned, strict=True)]


def _broadcast(named: dict[str, Tensor]) -> tuple[int, ...]:
    """The batch axes that all three broadcast to (torch.broadcast_shapes would load sympy, half a second, first)."""
    shapes = [tensor.shape[:-3] for tensor in named.values()]
    axes = widest(shapes)
    pairs = [pair for shape in shapes for pair in zip(reversed(shape), reversed(axes), strict=False)]
    if any(size not in (1, most) for size, most in pairs):
        raise ValueError(f"the batch axes of {_listed(named)} do not broadcast; make them equal or 1")
    return tuple(axes)


FULL, CAUSAL = Full(), Causal()
ADDED = "numbers that are added to the logits belong in bias="


def unknown_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> TypeError:
    """The error for arguments that a function does not have; it says how to write those of torch's functions."""
    first = next(iter(given))
    hint = TORCH_ARGUMENTS.get(first, f"it takes {', '.join(known)}")
    return TypeError(f"{function}() got an unexpected keyword argument {first!r}; {hint}")


def wrong_score(score: object) -> TypeError:
    """The error for what is no Score."""
    hint = _made(score, Score) or "for 1/√d write scores.ScaledDot()"
    if callable(score) and not isinstance(score, type):
        hint = "a function of scores is scores.Modified(score, function)"
    return TypeError(f"score must be one of regard.scores, got {_kind(score)}; {hint}")


def wrong_normalizer(normalizer: object) -> TypeError:
    """The error for what is no Normalizer."""
    hint = _made(normalizer, Normalizer) or "the usual one is normalizers.Softmax()"
    return TypeError(f"normalizer must be one of regard.normalizers, got {_kind(normalizer)}; {hint}")


def mask_of(mask: object, shapes: Shapes) -> Mask:
    """A Mask; a bool tensor is a dense one, None is the full one."""
    if mask is None:
        return FULL
    if isinstance(mask, Mask):
        return mask
    mask = mask if isinstance(mask, Tensor) else tensor_of("mask", mask)
    if isinstance(mask, str):
        if mask == "causal":
            return CAUSAL
        raise ValueError(f"mask={mask!r} is not known; the one short name is 'causal', the others are in regard.masks")
    if isinstance(mask, Tensor) and checks.is_tensor("mask", mask).dtype == torch.bool:
        return DenseMask(shapes.fold_leading("mask", mask))
    hint = ADDED
    if isinstance(mask, Tensor) and not mask.is_floating_point():
        hint = f"0 and 1 become bools with .bool(), {ADDED}"
    elif _made(mask, Mask):
        hint = str(_made(mask, Mask))
    elif callable(mask):
        hint = "a function of (b, h, i, j) is masks.Where(function)"
    elif not isinstance(mask, Tensor | Part):
        hint = "wrap an array with torch.as_tensor(...), or write mask='causal'"
    raise TypeError(f"mask must be a Mask or a bool tensor (True = visible), got {_kind(mask)}; {hint}")


def bias_of(bias: object, shapes: Shapes) -> Bias:
    """A Bias; a float tensor is a dense one."""
    if isinstance(bias, Bias):
        return bias
    bias = tensor_of("bias", bias)
    if isinstance(bias, Tensor) and checks.is_tensor("bias", bias).is_floating_point():
        return DenseBias(shapes.fold_leading("bias", bias))
    hint = _made(bias, Bias) or "wrap it with torch.as_tensor(...)"
    if isinstance(bias, Tensor):
        hint = "a bool tensor is a mask: pass it as mask=" if bias.dtype == torch.bool else "convert it with .float()"
    elif isinstance(bias, Mask):
        hint = "pass a mask as mask="
    raise TypeError(f"bias must be one of regard.biases or a float tensor, got {_kind(bias)}; {hint}")


def temperature_of(temperature: object, heads: int, device: torch.device, dtype: torch.dtype) -> float | Tensor:
    """A number above 0, or a tensor of them, one for each query head; itself and 1/τ must exist in `dtype`."""
    least, most = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    temperature = temperature if isinstance(temperature, float) else tensor_of("temperature", temperature)
    if isinstance(temperature, Tensor):
        checks.is_tensor("temperature", temperature)
        if temperature.ndim > 1 or temperature.numel() not in (1, heads):
            raise ValueError(
                f"temperature must be a number or one for each of the {heads} query heads, "
                f"got shape {checks.shape(temperature)}"
            )
        checks.is_float("temperature", temperature)
        checks.same_device([("temperature", temperature)], device)
        if torch.compiler.is_compiling():  # a traced tensor has no numbers yet
            return temperature
        wrong = temperature.detach()[~((temperature >= least) & (temperature <= most))]
        if wrong.numel():
            raise _wrong_temperature(float(wrong.reshape(-1)[0]), dtype)
        return temperature
    if isinstance(temperature, bool) or not isinstance(temperature, int | float):
        raise TypeError(
            f"temperature must be a number or a tensor, got {_kind(temperature)}; leave it out for temperature=1.0"
        )
    if not least <= temperature <= most:
        raise _wrong_temperature(temperature, dtype)
    return float(temperature)


def numbers_fit(part: Score | Normalizer, dtype: torch.dtype) -> None:
    """Numbers that a score or normalizer holds must exist in `dtype`, and so must 1 / cap."""
    if part.contents is not None and not any(part.contents[1:]):
        return  # it holds no numbers
    least, most = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    for name, value in part.attributes.items():
        if isinstance(value, Score):
            numbers_fit(value, dtype)
        elif isinstance(value, int | float) and abs(value) > most:
            raise ValueError(
                f"{type(part).__name__}'s {name} must be at most {most:.3g} either way, as logits are {_plain(dtype)}, "
                f"got {checks.written(value)}"
            )
    if isinstance(part, SoftCapped) and part.cap < least:
        raise ValueError(
            f"SoftCapped's cap must be at least {least:.3g}, as logits are {_plain(dtype)}, got {part.cap}; "
            "a cap near 0 makes all weights equal"
        )


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _wrong_temperature(temperature: float, dtype: torch.dtype) -> ValueError:
    got = checks.written(temperature)
    if temperature > 1:
        most = f"at most {torch.finfo(dtype).max:.3g}, as logits are {_plain(dtype)}"
        return ValueError(f"temperature must be {most}, got {got}; a large one makes the weights equal")
    if temperature > 0:
        least = f"at least {torch.finfo(dtype).tiny:.3g}, as logits are {_plain(dtype)}"
        return ValueError(f"temperature must be {least}, got {got}; for its limit 0 use normalizers.Hard()")
    return ValueError(f"temperature must be above 0, got {got}; for its limit 0 use normalizers.Hard()")


def aux_of(aux: object, known: tuple[str, ...], normalizer: Normalizer) -> tuple[str, ...]:
    """Names of statistics."""
    names = (aux,) if isinstance(aux, str) else aux
    if not isinstance(names, tuple | list | set | frozenset):
        raise TypeError(f"aux must be a name or a tuple of names, got {_kind(aux)}; it knows {', '.join(known)}")
    for name in names:
        if name not in known:
            raise ValueError(f"aux knows {', '.join(known)}; got {name!r}")
    if "lse" in names and not isinstance(normalizer, Softmax):
        raise ValueError(f"aux 'lse' belongs to Softmax, the normalizer is {normalizer!r}; leave it out")
    return tuple(names)


def tensors_of(name: str, part: object, functions: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that a part of a spec holds, with its name; with `functions`, also what its functions read."""
    if isinstance(part, Tensor):
        yield name, part
    elif isinstance(part, tuple):
        for inner in part:
            yield from tensors_of(name, inner, functions)
    elif isinstance(part, Part):
        if part.contents is None:  # it holds more than numbers
            for field, value in part.attributes.items():
                yield from tensors_of(f"{type(part).__name__}'s {field}", value, functions)
    elif functions and callable(part):
        yield from ((name, tensor) for tensor in read_tensors(part))


def _made(value: object, kind: type[Part]) -> str | None:
    """The advice for a class given instead of one of its values."""
    if isinstance(value, type) and issubclass(value, kind):
        return f"make one: {value.__name__}(...)"
    return None


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {checks.dtype(value)}"
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
