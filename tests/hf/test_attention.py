"""The attention half: weights on request, dropout, masks that a user brings, rows that see nothing, and refusals."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import regard.hf
from regard import AttentionMatrix
from regard.hf.attention import attention

Close = Callable[[Tensor, Tensor], None]
Named = Callable[[str], Any]


class Layer(nn.Module):
    """What the attention half needs to know of a layer."""

    def __init__(self, is_causal: bool | None = None) -> None:
        super().__init__()
        if is_causal is not None:
            self.is_causal = is_causal


def called(pair: Any, model: Any, **more: Any) -> Any:
    """A forward over every kind of input the family takes."""
    sizes, kind = pair.sizes, pair.family.kind
    made = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 60, (sizes.batch, sizes.length), generator=made)
    if kind == "image":
        return model(pixel_values=torch.randn(sizes.batch, 3, 12, 12, generator=made), **more)
    if kind == "audio":
        features = torch.randn(sizes.batch, 8, 26, generator=made)
        return model(input_features=features, decoder_input_ids=tokens, **more)
    if kind == "sequence":
        return model(input_ids=tokens, decoder_input_ids=tokens[:, :5], **more)
    return model(input_ids=tokens, **more)


def collected(output: Any) -> dict[str, Any]:
    """All attentions a model gives, by name."""
    return {name: output[name] for name in output if "attentions" in name}


def test_dense_attentions_are_those_of_eager(family: Any, close: Close) -> None:
    pair = family.pair(5)
    plain = called(pair, pair.ours)
    assert collected(plain) == {}
    with pair.once_each():
        ours = called(pair, pair.ours, output_attentions=True)
    theirs = collected(called(pair, pair.eager, output_attentions=True))
    assert torch.equal(ours[0], plain[0])
    assert list(collected(ours)) == list(theirs)
    assert sum(map(len, theirs.values())) == pair.count
    for name, layers in collected(ours).items():
        for mine, other in zip(layers, theirs[name], strict=True):
            assert mine.dtype == other.dtype
            close(mine, other)


def test_matrices_instead_of_tensors(family: Any, close: Close) -> None:
    pair = family.pair(7)
    regard.hf.register(attentions="matrix")
    ours = called(pair, pair.ours, output_attentions=True)
    theirs = collected(called(pair, pair.eager, output_attentions=True))
    assert sum(map(len, theirs.values())) == pair.count
    for name, layers in collected(ours).items():
        for mine, other in zip(layers, theirs[name], strict=True):
            assert isinstance(mine, AttentionMatrix)
            assert mine.shape == tuple(other.shape)
            close(mine[:, -1, -3:], other[:, -1, -3:])
            close(mine.received(), other.sum(-2))


def test_attentions_of_generation(family_named: Named, close: Close) -> None:
    pair = family_named("gemma2").pair(5)
    given = {"max_new_tokens": 4, "do_sample": False, "output_attentions": True, "return_dict_in_generate": True}
    tokens, seen = pair.tokens(6), pair.padding("left", 6)
    ours, theirs = (
        model.generate(tokens, attention_mask=seen, **given).attentions for model in (pair.ours, pair.eager)
    )
    assert len(ours) == 4
    for mine, other in zip(ours, theirs, strict=True):
        for layer, its in zip(mine, other, strict=True):
            close(layer[0], its[0])


@pytest.mark.parametrize("name", ["bert", "gemma2", "gpt_oss", "t5"])
def test_attentions_are_differentiable(family_named: Named, name: str, close: Close) -> None:
    pair = family_named(name).pair(5)
    embeds = pair.normal(pair.sizes.batch, 7, pair.sizes.width).requires_grad_()
    toward = pair.normal(pair.sizes.batch, pair.sizes.heads, 7, 7)
    more = {"decoder_inputs_embeds": embeds} if name == "t5" else {}
    found = []
    for model in (pair.ours, pair.eager):
        out = model(inputs_embeds=embeds, output_attentions=True, **more)
        weights = out["encoder_attentions" if name == "t5" else "attentions"][-1]
        found.append((weights, *torch.autograd.grad((weights * toward).sum(), embeds)))
    for mine, other in zip(*found, strict=True):
        close(mine, other)


def test_weights_of_a_row_that_sees_no_key_are_zero() -> None:
    q, k = torch.randn(2, 1, 2, 4, 8)
    seen = torch.ones(1, 1, 4, 4).tril().bool()
    seen[:, :, 2] = False
    for query in (q, q.clone().requires_grad_()):
        _, found = attention(Layer(), query, k, k, seen, output_attentions=True, attentions="dense")
        assert isinstance(found, Tensor)
        assert bool((found[:, :, 2] == 0).all())
        torch.testing.assert_close(found.detach().sum(-1)[:, :, [0, 1, 3]], torch.ones(1, 2, 3))
        if found.requires_grad:
            (gradient,) = torch.autograd.grad(found.square().sum(), query)
            assert bool(gradient.isfinite().all())
            assert bool((gradient[:, :, 2] == 0).all())


@pytest.mark.parametrize("kind", ["bool", "added", "added -inf"])
def test_a_mask_of_four_axes(family_named: Named, kind: str, close: Close) -> None:
    """A user's own mask goes through as it is: bools hide, numbers are added."""
    pair = family_named("llama").pair(5)
    tokens, length = pair.tokens(9), 9
    seen = (torch.rand(pair.sizes.batch, 1, length, length, generator=pair.made) > 0.4) | torch.eye(length).bool()
    low = -torch.inf if kind == "added -inf" else torch.finfo(torch.float32).min
    added = torch.where(seen, 0.0, low)
    with pair.once_each():
        ours = pair.ours(tokens, attention_mask=seen if kind == "bool" else added).logits
    close(ours, pair.eager(tokens, attention_mask=added).logits)


def test_packed_sequences(family_named: Named, close: Close) -> None:
    """Positions that start again separate the sequences of one row."""
    for name in ("llama", "mistral", "qwen3"):
        pair = family_named(name).pair(7)
        tokens = pair.tokens(10)
        positions = torch.tensor([0, 1, 2, 3, 0, 1, 2, 0, 1, 2]).expand(pair.sizes.batch, -1)
        with pair.once_each():
            ours = pair.ours(tokens, position_ids=positions, use_cache=False).logits
        close(ours, pair.eager(tokens, position_ids=positions, use_cache=False).logits)
        changed = tokens.clone()
        changed[:, :4] = 1
        close(pair.ours(changed, position_ids=positions, use_cache=False).logits[:, 4:], ours[:, 4:])


def test_a_mask_that_a_model_changes(family_named: Named, close: Close) -> None:
    """Masks that were written to, sliced or cut arrive as the bools they have become."""
    pair = family_named("llama").pair(5)
    tokens, hooks = pair.tokens(8), []

    def write(module: nn.Module, args: Any, kwargs: Any) -> Any:
        kwargs["attention_mask"][:, :, :, 2] = False if kwargs["attention_mask"].dtype == torch.bool else -1e38
        return args, kwargs

    for model in (pair.ours, pair.eager):
        hooks.append(model.model.layers[0].self_attn.register_forward_pre_hook(write, with_kwargs=True))
    keep = torch.arange(8) != 2
    close(pair.ours(tokens).logits[:, keep], pair.eager(tokens).logits[:, keep])
    free = pair.ours(tokens).logits
    for hook in hooks:
        hook.remove()
    assert not torch.allclose(free, pair.ours(tokens).logits)


def test_a_row_that_sees_no_key_is_zero() -> None:
    q, k, v = torch.randn(3, 1, 2, 4, 8)
    seen = torch.ones(1, 1, 4, 4).tril().bool()
    seen[:, :, 2] = False
    out, _ = attention(Layer(), q, k, v, seen, attentions="dense")
    assert bool((out[:, 2] == 0).all())
    assert bool((out[:, 3] != 0).all())


@pytest.mark.parametrize(
    "layer, said, causal",
    [(True, None, True), (False, None, False), (None, None, True), (True, False, False), (False, True, True)],
)
def test_without_a_mask_the_layer_says_whether_it_is_causal(
    layer: bool | None, said: bool | None, causal: bool, close: Close
) -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 8)
    out, _ = attention(Layer(layer), q, k, v, None, is_causal=said, attentions="dense")
    wanted = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    close(out, wanted.transpose(1, 2))
    one, _ = attention(Layer(layer), q[:, :, :1], k, v, None, is_causal=said, attentions="dense")
    close(one, nn.functional.scaled_dot_product_attention(q[:, :, :1], k, v).transpose(1, 2))


def test_keys_chosen_by_an_indexer(close: Close) -> None:
    q, k, v = torch.randn(3, 2, 2, 5, 8)
    chosen = torch.tensor([[0, 0], [0, 1], [1, 2], [0, 3], [2, 4]]).expand(2, 5, 2)
    causal = torch.ones(1, 1, 5, 5).tril().bool()
    out, _ = attention(Layer(), q, k, v, causal, indices=chosen, attentions="dense")
    seen = torch.zeros(2, 1, 5, 5, dtype=torch.bool).scatter(-1, chosen.unsqueeze(1), True) & causal
    close(out, nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2))


@pytest.mark.parametrize("name, value", [("block_indices", torch.zeros(1)), ("cache", object())])
def test_what_a_kernel_of_its_own_would_take_is_refused(name: str, value: Any) -> None:
    q = torch.randn(1, 2, 4, 8)
    with pytest.raises(ValueError, match=f"Layer passes .*{name}=.*attn_implementation='eager'"):
        attention(Layer(), q, q, q, None, attentions="dense", **{name: value})


def test_dropout_only_in_training(family_named: Named) -> None:
    family = family_named("llama")
    pair = family.pair(5)
    tokens = pair.tokens(9)
    for layer in pair.ours.model.layers:
        layer.self_attn.attention_dropout = 0.5
    evaluated = pair.ours(tokens).logits
    assert torch.equal(evaluated, pair.ours(tokens).logits)
    pair.ours.train()
    torch.manual_seed(3)
    dropped = pair.ours(tokens).logits
    assert not torch.allclose(dropped, evaluated)
    assert not torch.allclose(dropped, pair.ours(tokens).logits)
    torch.manual_seed(3)
    assert torch.equal(dropped, pair.ours(tokens).logits)


def test_dropout_of_everything_is_zero() -> None:
    q = torch.randn(1, 2, 4, 8)
    out, _ = attention(Layer().train(), q, q, q, None, dropout=1.0, attentions="dense")
    assert bool((out == 0).all())


def test_dropout_keeps_the_mean() -> None:
    q, k, v = torch.randn(3, 1, 2, 3, 8)
    torch.manual_seed(0)
    many = [attention(Layer().train(), q, k, v, None, dropout=0.3, attentions="dense")[0] for _ in range(500)]
    sample = torch.stack(many)
    exact, _ = attention(Layer().eval(), q, k, v, None, dropout=0.3, attentions="dense")
    spread = sample.std(0) / len(many) ** 0.5
    assert bool(((sample.mean(0) - exact).abs() <= 5 * spread + 1e-6).all())


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(family_named: Named, reentrant: bool, close: Close) -> None:
    pair = family_named("mistral").pair(7)
    embeds, seen = pair.normal(2, 9, pair.sizes.width).requires_grad_(), pair.padding("left", 9)[:2]
    rows = seen.bool()
    gradients = []
    for model in (pair.ours, pair.eager):
        out = model(inputs_embeds=embeds, attention_mask=seen, use_cache=False).logits[rows]
        gradients += torch.autograd.grad(out.square().sum(), embeds)
    newer = getattr(pair.ours, "activation_checkpointing_enable", None)  # since transformers 5.23
    (newer or pair.ours.gradient_checkpointing_enable)({"use_reentrant": reentrant})
    pair.ours.train()
    again = embeds.detach().clone().requires_grad_()
    with regard.hf.counting() as calls:
        out = pair.ours(inputs_embeds=again, attention_mask=seen, use_cache=False).logits[rows]
        torch.autograd.backward(out.square().sum())
    assert len(calls) == 2 * pair.count
    close(gradients[0], gradients[1])
    assert again.grad is not None
    close(again.grad, gradients[1])


@pytest.mark.parametrize("name", ["qwen3", "t5", "bert"])
def test_under_autocast(family_named: Named, name: str) -> None:
    """No further from float32 than eager under autocast is, give or take its rounding; weights as well."""
    pair = family_named(name).pair(7)
    exact, outputs = called(pair, pair.eager, output_attentions=True), []
    with torch.autocast("cpu", torch.bfloat16):
        outputs += [called(pair, model, output_attentions=True) for model in (pair.eager, pair.ours)]
    for at in (0, 1):
        wanted, low, mine = ((out[0], next(iter(collected(out).values()))[-1])[at].float() for out in (exact, *outputs))
        theirs, ours = (float((found - wanted).abs().max()) for found in (low, mine))
        assert ours <= 2 * theirs + 4 * torch.finfo(torch.bfloat16).eps * float(wanted.abs().max())


def test_under_torch_compile(family_named: Named, close: Close) -> None:
    pair = family_named("llama").pair(3)
    tokens, seen = pair.tokens(9), pair.padding("left", 9)
    compiled: Any = torch.compile(pair.ours, backend="eager")
    ours = compiled(tokens, attention_mask=seen, use_cache=False).logits
    close(ours[seen.bool()], pair.eager(tokens, attention_mask=seen, use_cache=False).logits[seen.bool()])


def test_the_softcap_and_the_scale_matter(family_named: Named) -> None:
    """The settings of the tests are such that leaving any of them out would be seen."""
    for name, setting in (("gemma2", "attn_logit_softcapping"), ("mistral", "sliding_window")):
        pair = family_named(name).pair(5)
        tokens = pair.tokens(12)
        before = pair.eager(tokens).logits
        changed = family_named(name).pair(5).eager
        changed.config.sliding_window = 64
        for layer in changed.model.layers:
            if hasattr(layer.self_attn, setting):
                setattr(layer.self_attn, setting, None if setting == "attn_logit_softcapping" else 64)
        assert not torch.allclose(before, changed(tokens).logits, atol=1e-3)


def test_compiled_in_one_graph() -> None:
    torch._dynamo.reset()
    sizes = {"vocab_size": 97, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2}
    config = transformers.MistralConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, sliding_window=5)
    regard.hf.register()
    kind: Any = transformers.MistralForCausalLM
    model = kind._from_config(config, attn_implementation="regard").eval()
    tokens, seen = torch.randint(97, (3, 15)), torch.ones(3, 15, dtype=torch.long)
    seen[1, :4] = 0
    compiled: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        found = compiled(tokens, attention_mask=seen, use_cache=False).logits
        torch.testing.assert_close(found, model(tokens, attention_mask=seen, use_cache=False).logits)
    torch._dynamo.reset()
