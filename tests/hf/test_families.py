"""Every family under regard equals eager wherever a row sees a key: outputs, gradients, cached decoding."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, StaticCache, masking_utils

import regard.hf
from regard.hf.tensor import SharedMask

Close = Callable[[Tensor, Tensor], None]
SEEDS = (3, 5, 7)


def inputs(pair: Any, side: str | None) -> tuple[dict[str, Tensor], Tensor | None, list[str]]:
    """What a forward takes, which rows of its result see a key (None: all), and which inputs get gradients."""
    sizes, kind = pair.sizes, pair.family.kind
    if kind == "image":
        return {"pixel_values": pair.normal(sizes.batch, 3, 12, 12)}, None, ["pixel_values"]
    embeds = pair.normal(sizes.batch, sizes.length, sizes.width)
    seen = torch.ones(sizes.batch, sizes.length, dtype=torch.long) if side is None else pair.padding(side, sizes.length)
    if kind in ("encoder", "decoder"):
        return {"inputs_embeds": embeds, "attention_mask": seen}, seen.bool(), ["inputs_embeds"]
    length = sizes.length - 2
    decoded = pair.padding("right" if side is None else side, length)
    given = {"decoder_inputs_embeds": pair.normal(sizes.batch, length, sizes.width), "decoder_attention_mask": decoded}
    if kind == "audio":
        given["input_features"] = pair.normal(sizes.batch, 8, 26)
        return given, decoded.bool(), ["input_features", "decoder_inputs_embeds"]
    given |= {"inputs_embeds": embeds, "attention_mask": seen}
    return given, decoded.bool(), ["inputs_embeds", "decoder_inputs_embeds"]


def first(output: Any) -> Tensor:
    """The logits, or the last hidden state."""
    found: Tensor = output.logits if "logits" in output else output.last_hidden_state
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_and_gradients(padded: tuple[Any, str | None], seed: int, close: Close) -> None:
    family, side = padded
    pair = family.pair(seed)
    given, rows, learned = inputs(pair, side)
    toward: Tensor | None = None
    found = []
    for model in (pair.eager, pair.ours):
        mine = {name: tensor.clone().requires_grad_(name in learned) for name, tensor in given.items()}
        if model is pair.ours:
            with pair.once_each():
                out = first(model(**mine))
        else:
            out = first(model(**mine))
        out = out if rows is None else out[rows]
        toward = pair.normal(*out.shape) if toward is None else toward
        gradients = torch.autograd.grad((out * toward).sum(), [mine[name] for name in learned])
        found.append((out, *gradients))
    for theirs, ours in zip(*found, strict=True):
        assert float(theirs.detach().abs().max()) > 1e-3
        close(ours, theirs)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("seed", SEEDS)
def test_steps_of_cached_decoding(decoder: Any, seed: int, cache: str, close: Close) -> None:
    """A prefill with padding on the left, single tokens, and several tokens at once."""
    pair = decoder.pair(seed)
    parts = [pair.tokens(length) for length in (pair.sizes.length, 1, 1, 3, 1)]
    whole = sum(part.shape[1] for part in parts)
    seen = torch.cat(
        [
            pair.padding("left", pair.sizes.length),
            torch.ones(pair.sizes.batch, whole - pair.sizes.length, dtype=torch.long),
        ],
        1,
    )
    caches = {model: _cache(model, cache, whole) for model in (pair.eager, pair.ours)}
    done = 0
    for part in parts:
        done += part.shape[1]
        given = {"input_ids": part, "attention_mask": seen[:, :done], "use_cache": True}
        theirs = pair.eager(**given, past_key_values=caches[pair.eager]).logits
        with pair.once_each():
            ours = pair.ours(**given, past_key_values=caches[pair.ours]).logits
        rows = seen[:, done - part.shape[1] : done].bool()
        close(ours[rows], theirs[rows])


def _cache(model: Any, kind: str, length: int) -> Any:
    if kind == "dynamic":
        return DynamicCache(config=model.config)
    return StaticCache(config=model.config, max_cache_len=length + 3)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_greedy_generation(generator: Any, seed: int, cache: str) -> None:
    pair, new = generator.pair(seed), 7
    given: dict[str, Any] = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
    if cache == "static":
        given["cache_implementation"] = "static"
    if generator.kind == "audio":
        given["input_features"] = pair.normal(pair.sizes.batch, 8, 26)
    else:
        given["input_ids"] = pair.tokens(pair.sizes.length)
        given["attention_mask"] = pair.padding("left", pair.sizes.length)
    theirs = pair.eager.generate(**given)
    with regard.hf.counting() as calls:
        ours = pair.ours.generate(**given)
    assert torch.equal(ours, theirs)
    config = pair.ours.config
    encoder = {"sequence": getattr(config, "num_layers", 0), "audio": getattr(config, "encoder_layers", 0)}
    once = encoder.get(generator.kind, 0)
    assert len(calls) == once + new * (pair.count - once)


def test_no_mask_is_built(padded: tuple[Any, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """In none of the families does anything touch the mask on its way, so nothing of queries × keys is made for it."""
    family, side = padded
    pair = family.pair(5)
    given, _, _ = inputs(pair, side)

    def refuse(self: SharedMask) -> Tensor:
        raise AssertionError("the mask was built")

    monkeypatch.setattr(SharedMask, "materialize", refuse)
    monkeypatch.setattr(masking_utils, "sdpa_mask", refuse)
    with pair.once_each():
        pair.ours(**given)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(family: Any, dtype: torch.dtype) -> None:
    """No further from float32 than eager in the same dtype is, give or take its rounding."""
    pair = family.pair(9)
    given, rows, _ = inputs(pair, family.sides[0] if family.sides else None)
    exact = first(pair.eager(**given))
    errors = []
    for model in (pair.eager, pair.ours):
        half = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in given.items()}
        out = first(model.to(dtype)(**half))
        assert out.dtype == dtype
        error = (out.float() - exact).abs()
        errors.append(float((error if rows is None else error[rows]).max()))
    scale = float((exact if rows is None else exact[rows]).abs().max())
    assert errors[1] <= 2 * errors[0] + 4 * torch.finfo(dtype).eps * scale
