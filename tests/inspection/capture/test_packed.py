"""A single query of grouped heads whose groups are handed to torch as queries, as transformers does since 5.23."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from regard.inspection.capture import capture
from regard.inspection.interventions import Ablate, Forbid, intervene

HEADS, KV_HEADS = 6, 2


def packing(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any) -> Any:
    """An attention function that packs a single query in any version of transformers."""
    batch, heads, queries, width = query.shape
    if queries > 1:
        return repeating(module, query, key, value, mask, **more)
    shared = mask is None or mask.shape[1] == 1
    mask = mask if shared or mask is None else mask.reshape(batch, KV_HEADS, -1, mask.shape[-1])
    query = query.reshape(batch, KV_HEADS, heads // KV_HEADS, width)
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=more["scaling"])
    return out.reshape(batch, heads, 1, width).transpose(1, 2).contiguous(), None


def repeating(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any) -> Any:
    """The same without it."""
    key, value = (tensor.repeat_interleave(HEADS // KV_HEADS, 1) for tensor in (key, value))
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=more["scaling"])
    return out.transpose(1, 2).contiguous(), None


def made(family: type[Any], **more: Any) -> Any:
    sizes = {"hidden_size": 24, "intermediate_size": 20, "vocab_size": 31, "num_hidden_layers": 2, "head_dim": 8}
    config = family(**sizes, **more, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, eos_token_id=None)
    torch.manual_seed(0)
    found = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    for parameter in found.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return found


@pytest.fixture
def model() -> Any:
    return made(transformers.LlamaConfig)


Use = Callable[[Callable[..., Any]], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    return lambda function: monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "sdpa", function)


def mask_of(kind: str) -> Tensor | None:
    made = torch.Generator().manual_seed(1)
    if kind == "one for each head":
        return torch.randn(2, HEADS, 1, 6, generator=made)
    return torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]]) if kind == "padding" else None


def step(model: Any, kind: str) -> dict[str, Any]:
    """A token after five others."""
    ids = torch.randint(1, 31, (2, 6), generator=torch.Generator().manual_seed(2))
    cache = model(ids[:, :5], use_cache=True).past_key_values
    return {"input_ids": ids[:, 5:], "past_key_values": cache, "attention_mask": mask_of(kind)}


@pytest.mark.parametrize("kind", ["none", "padding", "one for each head"])
@torch.no_grad()
def test_heads_and_queries_are_those_of_the_layer(model: Any, use: Use, kind: str) -> None:
    use(repeating)
    want = [found.dense() for found in capture(model, **step(model, kind))]
    use(packing)
    plain = model(**step(model, kind)).logits
    c = capture(model, **step(model, kind))
    assert torch.equal(c.output.logits, plain)
    assert [found.shape for found in c] == [(2, HEADS, 1, 6)] * 2
    for found, theirs in zip(c, want, strict=True):
        assert_close(found.dense(), theirs, atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_the_head_that_is_changed_is_that_of_the_layer(model: Any, use: Use) -> None:
    outputs = []
    for function in (repeating, packing):
        use(function)
        given = step(model, "padding")
        with intervene(model, Ablate(), heads=4):
            outputs.append(model(**given).logits)
    assert_close(outputs[1], outputs[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_positions_are_counted_on_where_keys_are_no_longer_repeated(use: Use) -> None:
    """The first call repeats the keys, later ones do not, and the cache keeps a window."""
    model = made(transformers.MistralConfig, sliding_window=4)
    ids = torch.randint(1, 31, (2, 9), generator=torch.Generator().manual_seed(2))
    asked = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    logits = []
    for function in (repeating, packing):
        use(function)
        with intervene(model, Forbid([7, 8]), heads=[0, 1]):
            found = model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **asked)
        logits.append(torch.stack(found.logits))
    assert_close(logits[1], logits[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_function_that_hands_on_what_it_is_given_is_read_as_it_is(model: Any, use: Use) -> None:
    use(packing)
    ids = torch.ones(1, 3, dtype=torch.long)
    assert [found.shape for found in capture(model, ids)] == [(1, HEADS, 3, 3)] * 2


def test_the_interface_is_left_as_it_was(model: Any) -> None:
    before = transformers.AttentionInterface.__getitem__
    capture(model, torch.ones(1, 3, dtype=torch.long))
    assert transformers.AttentionInterface.__getitem__ is before
