"""The arguments of a call as parts of a spec, or an error that says what was wanted, what came and what to do."""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard import checks
from regard.engine.shapes import Shapes
from regard.spec.biases import Bias
from regard.spec.biases import Dense as DenseBias
from regard.spec.closures import read_tensors
from regard.spec.masks import Causal, Full, Mask
from regard.spec.masks import Dense as DenseMask
from regard.spec.normalizers import Normalizer, Softmax
from regard.spec.part import Part
from regard.spec.scores import Score, SoftCapped

ADDED = "numbers that are added to the logits belong in bias="


def score_of(score: object) -> Score:
    """A Score."""
    if isinstance(score, Score):
        return score
    hint = _made(score, Score) or "for 1/√d write scores.ScaledDot()"
    if callable(score) and not isinstance(score, type):
        hint = "a function of scores is scores.Modified(score, function)"
    raise TypeError(f"score must be one of regard.scores, got {_kind(score)}; {hint}")


def normalizer_of(normalizer: object) -> Normalizer:
    """A Normalizer."""
    if isinstance(normalizer, Normalizer):
        return normalizer
    hint = _made(normalizer, Normalizer) or "the usual one is normalizers.Softmax()"
    raise TypeError(f"normalizer must be one of regard.normalizers, got {_kind(normalizer)}; {hint}")


def mask_of(mask: object, shapes: Shapes) -> Mask:
    """A Mask; a bool tensor is a dense one, None is the full one."""
    if mask is None:
        return Full()
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, str):
        if mask == "causal":
            return Causal()
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


def bias_of(bias: object, shapes: Shapes) -> Bias | None:
    """A Bias; a float tensor is a dense one."""
    if bias is None or isinstance(bias, Bias):
        return bias
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
    if isinstance(temperature, Tensor):
        checks.is_tensor("temperature", temperature)
        if temperature.ndim > 1 or temperature.numel() not in (1, heads):
            raise ValueError(
                f"temperature must be a number or one for each of the {heads} query heads, "
                f"got shape {checks.shape(temperature)}"
            )
        checks.is_float("temperature", temperature)
        checks.same_device([("temperature", temperature)], device)
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
    least, most = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    for name, value in part.held.items():
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
        for field, value in part.held.items():
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
